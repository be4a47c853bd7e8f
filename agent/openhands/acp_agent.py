"""The methods of ACP over conversations of an agent-server; a session's id is its conversation's.

Invariants
- Nothing of a session is sent before the response that opens it, but a replay is sent whole before
  the response to its `session/load` (invariants P8, R1).
- An unknown session is an error, never a new one (invariant R2).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    AuthMethodAgent,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from pydantic import BaseModel

from acp_bridge import __version__
from acp_bridge.core.protocol import AGENT_MESSAGE, VERSION, text_chunk
from agent.errors import invalid_params, unknown_session
from agent.key_help import key_help
from agent.openhands import launch, patience
from agent.openhands.conversation import Conversation
from agent.openhands.events import Json
from agent.openhands.events_socket import open_socket
from agent.openhands.launch import check_cwd, check_id, folder_of
from agent.openhands.options import Options
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.prompt import message_of
from agent.openhands.server import Server
from agent.openhands.settings import KEY_VARIABLE, ServerSettings
from agent.openhands.turn_words import STARTING
from agent.serve.extension import ABILITIES
from agent.serve.open_sessions import OpenSessions, checked_blocks
from agent.serve.sdk_connection import Wire
from agent.session.session_client import SessionClient
from agent.session.session_params import SessionParams

AUTH_METHOD = AuthMethodAgent(
    id="session-api-key",
    name="Session API key",
    description=(
        f"Set the environment variable {KEY_VARIABLE} to the agent-server's key, or write it into"
        " keys.env in acp-bridge's data folder, and start the agent again."
        f" {key_help(KEY_VARIABLE)}"
    ),
)


class OpenHandsAgent(OpenSessions[Conversation]):
    """The handlers of one connection's requests, and its sessions."""

    def __init__(self, server: Server, settings: ServerSettings, wire: Wire) -> None:
        super().__init__()
        self._server = server
        self._settings = settings
        self._wire = wire

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        self.initialized = True
        return introduction()

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Checks the key with a request to the server; raises ServerProblem if that fails.

        There is nothing to log in to: the user has to set the key.
        """
        if method_id != AUTH_METHOD.id:
            raise invalid_params("unknown methodId")
        await self._server.agent_profiles()
        return AuthenticateResponse()

    # opening sessions

    async def new_session(
        self,
        cwd: str,
        additional_directories: Sequence[str] | None = None,
        mcp_servers: Sequence[BaseModel] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        params = SessionParams.checked(cwd, additional_directories, mcp_servers)
        await patience.wait_until_ready(self._server)
        await launch.check_extras(self._server, params)
        session_id = str(uuid.uuid4())
        info = await launch.begin(self._server, session_id, params, self._settings.profile)
        session = await self._open(session_id, info)
        self._wire.later(session.begin)
        return NewSessionResponse(session_id=session_id, **session.options.choices())

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[BaseModel] | None = None,
        additional_directories: Sequence[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        params = SessionParams.checked(cwd, additional_directories, mcp_servers)
        session = await self._reopened(session_id, params, replay=True)
        return LoadSessionResponse(**session.options.choices())

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        additional_directories: Sequence[str] | None = None,
        mcp_servers: Sequence[BaseModel] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        params = SessionParams.checked(cwd, additional_directories, mcp_servers)
        session = await self._reopened(session_id, params, replay=False)
        return ResumeSessionResponse(**session.options.choices())

    async def fork_session(
        self,
        cwd: str,
        session_id: str,
        additional_directories: Sequence[str] | None = None,
        mcp_servers: Sequence[BaseModel] | None = None,
        **_: Any,
    ) -> ForkSessionResponse:
        params = SessionParams.checked(cwd, additional_directories, mcp_servers)
        await launch.check_extras(self._server, params)
        check_cwd(await self._info(session_id), params)
        new_id = str(uuid.uuid4())
        await self._server.fork(session_id, new_id)
        session = await self._open(new_id, await self._info(new_id))
        try:
            await session.read_past()
            if profile := session.options.profile:  # a fork may lack the model's credentials
                await self._server.switch_profile(new_id, profile)
        except BaseException:
            self._sessions.pop(new_id, None)
            raise
        self._wire.later(session.begin)
        return ForkSessionResponse(session_id=new_id, **session.options.choices())

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        page = await self._server.listed(cursor)
        items = page.get("items")
        found = [
            SessionInfo(
                session_id=str(each["id"]),
                cwd=folder_of(each),
                title=each.get("title") or None,
                updated_at=each.get("updated_at") or None,
            )
            for each in (items if isinstance(items, list) else [])
            if isinstance(each, dict) and each.get("id") and cwd in (None, folder_of(each))
        ]
        next_page = page.get("next_page_id")
        return ListSessionsResponse(
            sessions=found, next_cursor=next_page if isinstance(next_page, str) else None
        )

    # one session

    async def prompt(self, session_id: str, prompt: list[BaseModel], **_: Any) -> PromptResponse:
        session = self._session(session_id)
        blocks = checked_blocks(prompt)
        reason = await session.prompt(message_of(blocks))
        if reason != "cancelled":
            self._wire.later(session.news.title)
        return PromptResponse(stop_reason=reason)

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> SetSessionModeResponse:
        session = self._session(session_id)
        await self._set(session, "mode", mode_id)
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        await self._set(session, config_id, value)
        return SetSessionConfigOptionResponse(config_options=list(session.options.listed()))

    async def delete_session(self, session_id: str, **_: Any) -> None:
        check_id(session_id)
        if session := self._sessions.pop(session_id, None):
            await session.close()
        try:
            await self._server.delete(session_id)
        except ServerProblem as problem:
            if problem.kind is not Kind.GONE:
                raise

    async def _info(self, session_id: str) -> Json:
        check_id(session_id)
        try:
            return await self._server.info(session_id)
        except ServerProblem as problem:
            if problem.kind is Kind.GONE:
                raise unknown_session() from problem
            raise

    async def _reopened(
        self, session_id: str, params: SessionParams, *, replay: bool
    ) -> Conversation:
        if session := self._sessions.get(session_id):
            if replay:
                await session.replay()
            return session
        check_id(session_id)
        word = text_chunk(AGENT_MESSAGE, f"\n\n{STARTING}\n\n", f"{session_id}-starting")
        await patience.wait_until_ready(
            self._server, partial(self._client(session_id).update, word)
        )
        await launch.check_extras(self._server, params)
        info = await self._info(session_id)
        check_cwd(info, params)
        session = await self._open(session_id, info)
        try:
            await session.open_again(replay=replay)
        except BaseException:
            self._sessions.pop(session_id, None)
            raise
        self._wire.later(session.serve)
        return session

    async def _open(self, session_id: str, info: Json) -> Conversation:
        profiles = await self._server.model_profiles()
        options = Options(profiles, await self._server.agent_profiles(), info)
        settings = self._settings
        session = Conversation(
            session_id,
            self._server,
            partial(open_socket, settings.url, settings.key, session_id),
            self._client(session_id),
            options,
        )
        self._sessions[session_id] = session
        return session

    def _client(self, session_id: str) -> SessionClient:
        return SessionClient(session_id, request=self._wire.request, notify=self._wire.notify)

    async def _set(self, session: Conversation, option: str, value: object) -> None:
        match option:
            case "mode":
                policy = session.options.mode_policy(value)
                await self._server.set_policy(session.id, policy)
                changes = session.options.changed("confirmation_policy", policy)
            case "model":
                name = session.options.checked_model(value)
                await self._server.switch_profile(session.id, name)
                changes = session.options.chose_model(name)
            case _:
                raise invalid_params("unknown configId")
        self._wire.later(partial(session.shown.all, changes))


def introduction() -> InitializeResponse:
    return InitializeResponse(
        protocol_version=VERSION,
        agent_capabilities=AgentCapabilities(
            load_session=True,
            prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
            field_meta=ABILITIES,
            mcp_capabilities=McpCapabilities(http=False, sse=False),
            session_capabilities=SessionCapabilities(
                list=SessionListCapabilities(),
                resume=SessionResumeCapabilities(),
                close=SessionCloseCapabilities(),
                delete=SessionDeleteCapabilities(),
                fork=SessionForkCapabilities(),
            ),
        ),
        agent_info=Implementation(
            name="acp-bridge-openhands", title="OpenHands", version=__version__
        ),
        auth_methods=[AUTH_METHOD],
    )
