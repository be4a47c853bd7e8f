"""The client as the loop and the tools see it, for one session.

Invariants
- Updates keep their order. While a transcript is replayed, a running turn's wait behind it.
- What the client answers is checked here; whatever is wrong with it is a ClientError, so that
  neither its text nor a library's reaches the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import anyio

from agent.history import Update

#: sends one request and returns its result; raises what it likes
SendRequest = Callable[[str, dict[str, Any]], Awaitable[Any]]
#: sends one notification, waiting only while the client takes nothing
SendNotification = Callable[[str, dict[str, Any]], Coroutine[Any, Any, None]]


class ClientError(Exception):
    """The client refused a request, or answered what makes no sense, or is gone."""


class Client(Protocol):
    """What it offers is in the flags; the rest raises ClientError when it fails."""

    #: `fs/read_text_file`
    reads_files: bool
    #: `fs/write_text_file`
    writes_files: bool
    #: `terminal/*`
    has_terminals: bool

    async def update(self, update: Update) -> None: ...

    async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        """The id of the option that the user chose; None if the prompt was cancelled instead.

        Raises ClientError.
        """
        ...

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str: ...

    async def write_file(self, path: str, content: str) -> None: ...

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        """The terminal's id. `limit`: bytes of output to keep."""
        ...

    async def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        """`{"output": str, "truncated": bool, "exitStatus"?: {...}}`"""
        ...

    async def wait_for_terminal(self, terminal_id: str) -> dict[str, Any]:
        """`{"exitCode": int | None, "signal": str | None}` once the command has ended."""
        ...

    async def kill_terminal(self, terminal_id: str) -> None: ...

    async def release_terminal(self, terminal_id: str) -> None: ...


class SessionClient:
    """The real one, over a connection."""

    def __init__(
        self,
        session_id: str,
        *,
        request: SendRequest,
        notify: SendNotification,
        reads_files: bool,
    ) -> None:
        self.reads_files = reads_files
        self._session_id = session_id
        self._request = request
        self._notify = notify
        self._held: deque[Update] | None = None
        self._replays = anyio.Lock()

    async def update(self, update: Update) -> None:
        if self._held is None:
            await self._send(update)
        else:
            self._held.append(update)

    async def replay(self, transcript: Callable[[], Iterable[Update]]) -> None:
        """Send what `transcript` gives at this moment; whatever is said from then on follows it.

        See HAZARDS R1, R4.
        """
        async with self._replays:
            self._held = held = deque[Update]()
            try:
                for update in transcript():
                    await self._send(update)
                while held:
                    await self._send(held.popleft())
            finally:
                self._held = None

    async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        params = {"toolCall": tool_call, "options": options}
        match await self._call("session/request_permission", params):
            case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
                return option
            case {"outcome": {"outcome": "cancelled"}}:
                return None
        raise ClientError("a permission request was answered without an outcome")

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        params = {"path": path, "line": line, "limit": limit}
        given = {name: value for name, value in params.items() if value is not None}
        match await self._call("fs/read_text_file", given):
            case {"content": str(content)}:
                return content
        raise ClientError("a file was read without content")

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        try:
            return await self._request(method, {"sessionId": self._session_id, **params})
        except Exception as error:
            raise ClientError(f"{method} failed") from error

    async def _send(self, update: Update) -> None:
        params = {"sessionId": self._session_id, "update": update}
        await self._notify("session/update", params)
