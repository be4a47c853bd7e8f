"""The SDK's `Agent`: wire models in, sessions called, wire models out. Thin.

Invariants
- Nothing of a session is sent before the response that opens it (HAZARDS P8); a replay is whole
  before its load's response (R1).
- An unknown session is an error, never a new one (R2).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
from acp import RequestError
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionDeleteCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from pydantic import BaseModel

from agent import transcript
from agent.client import SendNotification, SendRequest, SessionClient
from agent.model import Model
from agent.permissions import MODES, Mode
from agent.session import Session
from agent.tools import Toolbox, ToolContext
from agent.transcript import Transcript, UnknownSession

PROTOCOL_VERSION = 1
#: the configuration option that is another view of the session's mode
MODE_OPTION = "mode"

#: runs something as soon as the response that is being returned has gone out
Later = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]

ConfigOption = SessionConfigOptionSelect | SessionConfigOptionBoolean


class Server:
    """One connection's sessions."""

    def __init__(
        self,
        *,
        model: Model,
        tools: Toolbox,
        folder: Path,
        request: SendRequest,
        notify: SendNotification,
        later: Later,
    ) -> None:
        self.initialized = False
        self._model = model
        self._tools = tools
        self._folder = folder
        self._request = request
        self._notify = notify
        self._later = later
        self._reads_files = False
        self._sessions: dict[str, Session] = {}

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        self.initialized = True
        fs = client_capabilities.fs if client_capabilities else None
        self._reads_files = bool(fs and fs.read_text_file)
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                ),
            ),
            agent_info=Implementation(
                name="acp-bridge-agent", title="acp-bridge", version=_version()
            ),
            auth_methods=[],
        )

    # opening sessions

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        path = _absolute(cwd)
        session_id = uuid.uuid4().hex
        session = self._open(session_id, Transcript.create(self._folder, session_id, cwd), path)
        return NewSessionResponse(session_id=session_id, **_settings(session))

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        session = await self._reopen(session_id, cwd)
        await session.replay()
        return LoadSessionResponse(**_settings(session))

    async def resume_session(self, cwd: str, session_id: str, **_: Any) -> ResumeSessionResponse:
        return ResumeSessionResponse(**_settings(await self._reopen(session_id, cwd)))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        if cursor is not None:  # there is one page
            raise RequestError(-32602, "Invalid params: unknown cursor")
        found = await anyio.to_thread.run_sync(transcript.list_sessions, self._folder)
        return ListSessionsResponse(
            sessions=[
                SessionInfo(session_id=s.id, cwd=s.cwd, title=s.title, updated_at=s.updated_at)
                for s in found
                if cwd is None or s.cwd == cwd
            ]
        )

    # one session

    async def prompt(self, session_id: str, prompt: list[BaseModel], **_: Any) -> PromptResponse:
        session = self._session(session_id)
        if not prompt:
            raise RequestError(-32602, "Invalid params: prompt is empty")
        blocks = [_wire(block) for block in prompt]
        if any(block["type"] in ("image", "audio") for block in blocks):
            raise RequestError(-32602, "Invalid params: this agent takes no images and no audio")
        return PromptResponse(stop_reason=await session.prompt(blocks))

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session := self._sessions.get(session_id):
            session.cancel()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> SetSessionModeResponse:
        session = self._session(session_id)
        session.permissions.mode = _mode(mode_id)
        options = [_wire(option) for option in _options(session)]
        changed = {"sessionUpdate": "config_option_update", "configOptions": options}
        self._later(lambda: session.client.update(changed))
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        if config_id != MODE_OPTION:
            raise RequestError(-32602, "Invalid params: unknown configId")
        session.permissions.mode = mode = _mode(value)
        changed = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
        self._later(lambda: session.client.update(changed))
        return SetSessionConfigOptionResponse(config_options=_options(session))

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self._session(session_id)
        del self._sessions[session_id]
        await session.cancel_all()
        session.transcript.close()
        return CloseSessionResponse()

    async def delete_session(self, session_id: str, **_: Any) -> None:
        if session_id in self._sessions:
            await self.close_session(session_id)
        transcript.delete_session(self._folder, session_id)

    # the connection

    async def stop(self) -> None:
        """Cancel every prompt and wait until all are answered."""
        async with anyio.create_task_group() as tasks:
            for session in self._sessions.values():
                tasks.start_soon(session.cancel_all)

    def _session(self, session_id: str) -> Session:
        if session := self._sessions.get(session_id):
            return session
        raise RequestError(-32002, "Unknown session")

    async def _reopen(self, session_id: str, cwd: str) -> Session:
        path = _absolute(cwd)
        if session := self._sessions.get(session_id):
            session.context = ToolContext(path, session.client)
            return session
        try:
            loaded = await anyio.to_thread.run_sync(Transcript.load, self._folder, session_id)
        except UnknownSession:
            raise RequestError(-32002, "Unknown session") from None
        # another load of it may have been quicker
        return self._sessions.get(session_id) or self._open(session_id, loaded, path)

    def _open(self, session_id: str, opened: Transcript, cwd: Path) -> Session:
        client = SessionClient(
            session_id, request=self._request, notify=self._notify, reads_files=self._reads_files
        )
        context = ToolContext(cwd, client)
        session = Session(opened, context, client, self._model, self._tools)
        self._sessions[session_id] = session
        commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
        self._later(lambda: client.update(commands))
        return session


def _absolute(cwd: str) -> Path:
    path = Path(cwd)
    if not path.is_absolute():
        raise RequestError(-32602, "Invalid params: cwd is not absolute")
    return path


def _wire(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _mode(value: str | bool) -> Mode:
    match value:
        case "ask" | "auto":
            return value
    raise RequestError(-32602, "Invalid params: unknown mode")


def _settings(session: Session) -> dict[str, Any]:
    modes = [
        SessionMode(id=mode, name=name, description=description)
        for mode, (name, description) in MODES.items()
    ]
    state = SessionModeState(current_mode_id=session.permissions.mode, available_modes=modes)
    return {"modes": state, "config_options": _options(session)}


def _options(session: Session) -> list[ConfigOption]:
    choices = [
        SessionConfigSelectOption(value=mode, name=name, description=description)
        for mode, (name, description) in MODES.items()
    ]
    option = SessionConfigOptionSelect(
        id=MODE_OPTION,
        name="Mode",
        category="mode",
        type="select",
        current_value=session.permissions.mode,
        options=choices,
    )
    return [option]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("acp-stdio-bridge")
    except PackageNotFoundError:  # run from a checkout
        return "0"
