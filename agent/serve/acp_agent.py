"""The methods of ACP: checks what the client sends, calls the session, returns the result.

Invariants
- Nothing of a session is sent before the response that opens it (invariant P8), but a replay is
  sent whole before the response to its `session/load` (invariant R1).
- Once a session that was opened again has its response, nothing is sent of it until the client
  speaks (invariant C23).
- An unknown session is an error, never a new one (invariant R2).
- A missing key keeps a new session from being opened, and no old one from being shown.
- No turn begins by `_session/steering`, whatever the client asks for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

import anyio
from acp.schema import (
    AuthenticateResponse,
    ClientCapabilities,
    ForkSessionResponse,
    Implementation,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptRequest,
    PromptResponse,
    ResumeSessionResponse,
    SessionInfo,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from pydantic import BaseModel

from acp_bridge.core.protocol import NO_DEMO, STEERING, TOKENS, can_own, with_own_meta
from agent.conversation import transcript
from agent.conversation.transcript import Transcript, UnknownSession
from agent.errors import invalid_params, unknown_session
from agent.model import ModelError
from agent.serve.introduction import AUTH_METHOD, introduction
from agent.serve.open_sessions import OpenSessions, checked_blocks
from agent.session.session import Session
from agent.session.session_params import SessionParams
from agent.session.shared_parts import SharedParts

#: starts a task once the response that is being returned has been sent
Later = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]

#: the one `idleBehavior` that is known: without a turn the words are left to a prompt
_PROMPT_REQUIRED = "promptRequired"


class AcpAgent(OpenSessions[Session]):
    """The handlers of one connection's requests, and its sessions; the SDK's `Agent`."""

    def __init__(self, shared: SharedParts, later: Later) -> None:
        super().__init__()
        self._shared = shared
        self._later = later
        #: the client has asked for the tokens of each prompt.
        self._tells_tokens = False

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        self._later(self._shared.models.warm)
        self.initialized = True
        self._shared.capabilities = can = client_capabilities or ClientCapabilities()
        self._tells_tokens = can_own({"_meta": can.field_meta}, TOKENS)
        return introduction()

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Checks that the default model's key is there now; raises ModelError if it isn't.

        There is nothing to log in to: the user has to set the key.
        """
        if method_id != AUTH_METHOD.id:
            raise invalid_params("unknown methodId")
        try:
            self._shared.models.open(self._shared.models.default)
        except ModelError as error:
            raise ModelError(str(error), "missing_key") from error
        return AuthenticateResponse()

    # opening sessions

    async def new_session(
        self,
        cwd: str,
        additional_directories: Sequence[str] | None = None,
        mcp_servers: Sequence[BaseModel] | None = None,
        system_prompt: object = None,
        **_: Any,
    ) -> NewSessionResponse:
        params = SessionParams.checked(cwd, additional_directories, mcp_servers, system_prompt)
        self._check_key()
        session_id = uuid.uuid4().hex
        created = Transcript.create(self._shared.settings.folder, session_id, cwd)
        session = self._open(session_id, created, params)
        self._later(session.begin)
        return NewSessionResponse(session_id=session_id, **_settings(session))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[BaseModel] | None = None,
        additional_directories: Sequence[str] | None = None,
        system_prompt: object = None,
        **_: Any,
    ) -> LoadSessionResponse:
        params = SessionParams.checked(cwd, additional_directories, mcp_servers, system_prompt)
        session = await self._reopen(session_id, params)
        await session.replay()
        await session.reopened()
        self._later(session.serve)
        return LoadSessionResponse(**_settings(session))

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        additional_directories: Sequence[str] | None = None,
        mcp_servers: Sequence[BaseModel] | None = None,
        system_prompt: object = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        params = SessionParams.checked(cwd, additional_directories, mcp_servers, system_prompt)
        session = await self._reopen(session_id, params)
        await session.reopened()
        self._later(session.serve)
        return ResumeSessionResponse(**_settings(session))

    async def fork_session(
        self,
        cwd: str,
        session_id: str,
        additional_directories: Sequence[str] | None = None,
        mcp_servers: Sequence[BaseModel] | None = None,
        system_prompt: object = None,
        **_: Any,
    ) -> ForkSessionResponse:
        """Opens a new session with a copy of another's transcript and options."""
        params = SessionParams.checked(cwd, additional_directories, mcp_servers, system_prompt)
        folder, new_id = self._shared.settings.folder, uuid.uuid4().hex
        try:
            copy = partial(Transcript.fork, folder, session_id, new_id, cwd)
            forked = await anyio.to_thread.run_sync(copy)
        except UnknownSession:
            raise unknown_session() from None
        session = self._open(new_id, forked, params)
        if (parent := self._sessions.get(session_id)) is not None:
            session.options.take_over(parent.options)
        self._later(session.begin)
        return ForkSessionResponse(session_id=new_id, **_settings(session))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        if cursor is not None:  # all sessions are on one page
            raise invalid_params("unknown cursor")
        folder = self._shared.settings.folder
        found = await anyio.to_thread.run_sync(transcript.list_sessions, folder)
        return ListSessionsResponse(
            sessions=[
                SessionInfo(session_id=s.id, cwd=s.cwd, title=s.title, updated_at=s.updated_at)
                for s in found
                if cwd is None or s.cwd == cwd
            ]
        )

    # one session

    async def prompt(
        self,
        session_id: str,
        prompt: list[BaseModel],
        meta: dict[str, Any] | None = None,
        **_: Any,
    ) -> PromptResponse:
        session = self._session(session_id)
        blocks = checked_blocks(prompt)
        stop = await session.prompt(blocks, no_demo=(meta or {}).get(NO_DEMO) is True)
        self._later(session.title.make)
        tokens = session.take_tokens() if self._tells_tokens else None
        own = with_own_meta({}, {TOKENS: tokens})["_meta"] if tokens else None
        return PromptResponse(stop_reason=stop, field_meta=own)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if f"_{method}" == STEERING:
            return await steered(self._session, params)
        return await super().ext_method(method, params)

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> SetSessionModeResponse:
        session = self._session(session_id)
        session.options.set_mode(mode_id)
        update = session.options.update()
        self._later(lambda: session.client.update(update))
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        session.options.set(config_id, value)
        if config_id == "mode":
            update = {"sessionUpdate": "current_mode_update", "currentModeId": value}
            self._later(lambda: session.client.update(update))
        else:
            self._later(session.tell_options_of_choice)
        return SetSessionConfigOptionResponse(config_options=session.options.listed())

    async def delete_session(self, session_id: str, **_: Any) -> None:
        # Before its prompts end, so that no load can find it meanwhile.
        transcript.delete_session(self._shared.settings.folder, session_id)
        if session := self._sessions.pop(session_id, None):
            await session.close()

    def _check_key(self) -> None:
        """Raises ModelError if the default model has no key; a prompt meets any other problem."""
        try:
            self._shared.models.open(self._shared.models.default)
        except ModelError as error:
            if error.kind == "missing_key":
                raise

    async def _reopen(self, session_id: str, params: SessionParams) -> Session:
        if (session := self._sessions.get(session_id)) is None:
            folder = self._shared.settings.folder
            try:
                loaded = await anyio.to_thread.run_sync(Transcript.load, folder, session_id)
            except UnknownSession:
                raise unknown_session() from None
            # another load of the session may have finished first
            if (session := self._sessions.get(session_id)) is None:
                return self._open(session_id, loaded, params)
        session.use(params)
        return session

    def _open(self, session_id: str, opened: Transcript, params: SessionParams) -> Session:
        session = self._sessions[session_id] = Session(self._shared, session_id, opened, params)
        return session


def _settings(session: Session) -> dict[str, Any]:
    return {"modes": session.options.modes(), "config_options": session.options.listed()}


class Steered(Protocol):
    """A session as `_session/steering` uses it."""

    async def steer(self, blocks: list[dict[str, Any]]) -> bool:
        """Has the words join the running turn; returns False if it can take none."""
        ...


async def steered(session: Callable[[str], Steered], params: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of a `_session/steering` request. Raises RequestError, ValidationError.

    `session` returns the open session with an id, or raises RequestError.
    """
    request = PromptRequest.model_validate(params)
    open_session, blocks = session(request.session_id), checked_blocks(request.prompt)
    if _idle_behavior(request.field_meta) not in (None, _PROMPT_REQUIRED):
        raise invalid_params(f"_meta.steering.idleBehavior must be {_PROMPT_REQUIRED}")
    if await open_session.steer(blocks):
        return {"outcome": "injected"}
    return {"outcome": _PROMPT_REQUIRED, "reason": "noRunningTurn"}


def _idle_behavior(meta: dict[str, Any] | None) -> object:
    match meta:
        case {"steering": {"idleBehavior": told}}:
            return told
    return None
