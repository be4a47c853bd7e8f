"""The client as one session sees it: updates to it, and requests whose answers are checked.

Invariants
- Updates keep their order. While a transcript is replayed, those of a running turn wait behind it.
- Whatever is wrong with a client's answer becomes a ClientError here. It has the client's own words
  if the client refused, and no text of a library's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import anyio
from acp import RequestError

from acp_bridge.core.protocol import ErrorCode, with_own_meta
from agent.client import ClientError, Marked, NotOffered, Update

#: sends a request and returns its result; may raise anything
SendRequest = Callable[[str, dict[str, Any]], Awaitable[Any]]
#: sends a notification; waits only while the client reads nothing
SendNotification = Callable[[str, dict[str, Any]], Coroutine[Any, Any, None]]

#: keeps a command in a terminal from waiting for a key press in its pager
_NO_PAGER = {"PAGER": "cat", "GIT_PAGER": "cat"}
_NOTHING: Mapping[str, str] = MappingProxyType({})
#: characters of a client's reason; cut between words, so that no half of a secret is left
_REASON = 400


class SessionClient:
    """The client of one session; the flags are what it announced in `initialize`.

    `terminal_environment`: variables that every terminal gets besides the client's environment.
    """

    def __init__(
        self,
        session_id: str,
        *,
        request: SendRequest,
        notify: SendNotification,
        reads_files: bool = False,
        writes_files: bool = False,
        has_terminals: bool = False,
        terminal_environment: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.reads_files = reads_files
        self.writes_files = writes_files
        self.has_terminals = has_terminals
        variables = {**_NO_PAGER, **terminal_environment}
        self._environment = [{"name": n, "value": v} for n, v in variables.items()]
        self._session_id = session_id
        self._request = request
        self._notify = notify
        self._delayed: deque[Update] | None = None
        self._replays = anyio.Lock()

    async def update(self, update: Update) -> None:
        if self._delayed is None:
            await self._send(update)
        else:
            self._delayed.append(update)

    async def replay(self, transcript: Callable[[], Iterable[Update]]) -> None:
        """Sends the updates that `transcript` returns when it is called; later updates follow them.

        Invariants R1 and R4 rely on this order.
        """
        async with self._replays:
            self._delayed = delayed = deque[Update]()
            try:
                for update in transcript():
                    await self._send(update)
                while delayed:
                    await self._send(delayed.popleft())
            finally:
                self._delayed = None

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

    async def write_file(self, path: str, content: str) -> None:
        await self._call("fs/write_text_file", {"path": path, "content": content})

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        params = {
            "command": command,
            "args": list(args),
            "cwd": cwd,
            "env": self._environment,
            "outputByteLimit": limit,
        }
        match await self._call("terminal/create", params):
            case {"terminalId": str(terminal_id)} if terminal_id:
                return terminal_id
        raise ClientError("a terminal was made without an id")

    async def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        match await self._call("terminal/output", {"terminalId": terminal_id}):
            case {"output": str(output), "truncated": bool(truncated), **more}:
                told: dict[str, Any] = {"output": output, "truncated": truncated}
                if (status := more.get("exitStatus")) is not None:
                    told["exitStatus"] = _exit_status(status)
                return told
        raise ClientError("a terminal's output was told without output")

    async def wait_for_terminal(self, terminal_id: str) -> dict[str, Any]:
        params = {"terminalId": terminal_id}
        return _exit_status(await self._call("terminal/wait_for_exit", params))

    async def kill_terminal(self, terminal_id: str) -> None:
        await self._call("terminal/kill", {"terminalId": terminal_id})

    async def release_terminal(self, terminal_id: str) -> None:
        await self._call("terminal/release", {"terminalId": terminal_id})

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        try:
            return await self._request(method, {"sessionId": self._session_id, **params})
        except RequestError as error:
            kind = NotOffered if error.code == ErrorCode.METHOD_NOT_FOUND else ClientError
            raise kind(f"{method} failed", _reason(error)) from error
        except Exception as error:
            raise ClientError(f"{method} failed") from error

    async def _send(self, update: Update) -> None:
        params: dict[str, Any] = {"sessionId": self._session_id, "update": update}
        if isinstance(update, Marked):
            params = with_own_meta(params, update.marks)
        await self._notify("session/update", params)


def _reason(error: RequestError) -> str:
    """Returns the message of a client's error and its details, cut to `_REASON` characters."""
    match error.data:
        case {"details": str(details)} | str(details):
            pass
        case _:
            details = ""
    said = str(error)
    words = f"{said} ({details})" if details and details not in said else said
    kept: list[str] = []
    room = _REASON
    for word in words.split(maxsplit=_REASON)[:_REASON]:
        room -= len(word) + 1
        if room < 0:
            return " ".join([*kept, "…"])
        kept.append(word)
    return " ".join(kept)


def _exit_status(told: Any) -> dict[str, Any]:
    match told:
        case dict():
            code, signal = told.get("exitCode"), told.get("signal")
            # by type: isinstance would accept a bool as an exit code
            if (code is None or type(code) is int) and (signal is None or type(signal) is str):
                return {"exitCode": code, "signal": signal}
    raise ClientError("a terminal's exit status makes no sense")
