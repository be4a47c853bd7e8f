"""A client that speaks raw JSON lines to an agent or bridge and records every one of them.

It leaves nothing to a library: what a test judges are the bytes. Sends are synchronous, so two of
them in a row are written in that order with nothing between; every wait is bounded. It is the one
client of all tests and crash rounds; only the benchmarks have another, which records nothing, and
the demo, which is part of what is installed.
"""

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from tests.support import processes
from tests.support.client_side import ClientSide, NoAnswer
from tests.support.pipe import Pipe
from tests.support.recording import Message, Record, Recording, RpcError, is_answer
from tests.support.tasks import end_tasks

T = TypeVar("T")

#: What an editor that can do everything says of itself.
FULL_CAPABILITIES: Message = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}},
}
#: for what starts a process: on a machine that has to read Python from a slow disk first
_START_SECONDS = 20.0
#: an agent's process is started for these
_STARTS = ("initialize", "session/new", "session/load", "session/resume", "session/fork")


class RecordingClient:
    """`async with RecordingClient(read_fd, write_fd) as client`, or `RecordingClient.start(...)`.

    Owns both file descriptors; `async with` runs the tasks that read and write. After `new_session`
    or `load_session` that session is the one meant where no id is given.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.pipe = Pipe(read_fd, write_fd)
        self.recording = Recording()
        self.side = ClientSide()
        self.session_id = ""
        self.process: processes.Process | None = None
        #: what the process, or a bridge in this one, has logged.
        self.stderr = b""
        self.closed = anyio.Event()  #: the agent's output has ended
        self._stderr_ended = anyio.Event()
        self._ids = itertools.count()
        self._news = anyio.Event()
        self._tasks: TaskGroup

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        exit_within: float = 3,
    ) -> AsyncGenerator[Self]:
        """Starts the command in its own session, its environment added to the test's.

        On leaving, stdin is closed and the process given `exit_within` seconds, then killed;
        killed at once if the body raised. Its descendants are not looked after.
        """
        process, (write_fd, read_fd, stderr_fd) = processes.start_piped(command, env or {}, cwd)
        client = cls(read_fd, write_fd)
        client.process = process
        try:
            async with client:
                client._tasks.start_soon(client._read_stderr, stderr_fd)
                yield client
                client.close_stdin()
                with anyio.move_on_after(exit_within):
                    await client.wait(within=exit_within + 1)
        finally:
            os.close(stderr_fd)
            process.kill()
            process.wait()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._read)
        self._tasks.start_soon(self.pipe.send_late)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return await end_tasks(self._tasks, exc)
        finally:
            self.pipe.close()

    # Sending

    def send(self, message: Any) -> None:
        """Any JSON value on a line, as it is."""
        self.send_raw(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def send_raw(self, raw: bytes) -> None:
        self._record("out", raw)
        self.pipe.write(raw)

    def send_request(self, method: str, params: Any, request_id: int | str | None = None) -> Any:
        """Returns the id, to be given to `answer_to`; ids count from 0 unless given."""
        request_id = next(self._ids) if request_id is None else request_id
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, request_id: Any, result: Any) -> None:
        """For a request that the handler left unanswered."""
        self.send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def answer_error(self, request_id: Any, error: RpcError) -> None:
        body = {"code": error.code, "message": error.message}
        self.send({"jsonrpc": "2.0", "id": request_id, "error": body})

    def send_together(self, *messages: Message) -> None:
        """In one write, which is one read: nothing of the other side comes between them."""
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages]
        for line in lines:
            self._record("out", line)
        self.pipe.write(b"".join(lines))

    def message(self, method: str, request_id: Any = None, **params: Any) -> Message:
        """For `send_together`: about the session; a notification if it has no id."""
        about = {"method": method, "params": {"sessionId": self.session_id, **params}}
        return about if request_id is None else {"id": request_id, **about}

    def prompt_message(self, text: str, request_id: Any, **extra: Any) -> Message:
        """For `send_together`."""
        prompt = [{"type": "text", "text": text}]
        return self.message("session/prompt", request_id, prompt=prompt, **extra)

    def send_prompt(self, text: str, session_id: str | None = None, **extra: Any) -> Any:
        """Returns the id; `extra` are further params, e.g. `_meta={...}`."""
        block = {"type": "text", "text": text}
        params = {"sessionId": session_id or self.session_id, "prompt": [block], **extra}
        return self.send_request("session/prompt", params)

    def cancel(self, session_id: str | None = None) -> None:
        self.notify("session/cancel", {"sessionId": session_id or self.session_id})

    def close_stdin(self) -> None:
        self.pipe.close_writing()

    # The usual requests

    async def request(self, method: str, params: Any, within: float | None = None) -> Any:
        """The result, within 5 s or what it may take to start a process; raises RpcError."""
        if within is None:
            within = _START_SECONDS if method in _STARTS else 5
        return _result(await self.answer_to(self.send_request(method, params), within))

    async def initialize(
        self, capabilities: Message | None = None, within: float = _START_SECONDS
    ) -> Any:
        """With every capability unless others are given."""
        given = FULL_CAPABILITIES if capabilities is None else capabilities
        params = {"protocolVersion": 1, "clientCapabilities": given}
        return await self.request("initialize", params, within)

    async def new_session(
        self, cwd: Path | str, within: float = _START_SECONDS, /, **extra: Any
    ) -> str:
        """The id; `extra` are further params, or others: `mcpServers=[...]`."""
        params = {"cwd": str(cwd), "mcpServers": [], **extra}
        result = await self.request("session/new", params, within)
        self.session_id = result["sessionId"]
        return self.session_id

    async def load_session(
        self, session_id: str, cwd: Path | str, within: float = _START_SECONDS, /, **extra: Any
    ) -> Any:
        """The result, when the whole replay is recorded."""
        params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": [], **extra}
        result = await self.request("session/load", params, within)
        self.session_id = session_id
        return result

    async def prompt(
        self, text: str, session_id: str | None = None, within: float = 5, **extra: Any
    ) -> Any:
        """The result, as in `{"stopReason": "end_turn"}`; raises RpcError."""
        return _result(await self.answer_to(self.send_prompt(text, session_id, **extra), within))

    # Waiting

    async def until(
        self, wanted: Callable[[Message], object], since: int = 0, within: float = 5
    ) -> Message:
        """The first message from the agent, from record `since` on, for which it is true.

        Raises TimeoutError; ConnectionError if the agent's output ends without it.
        """
        position = since

        def find() -> Message | None:
            nonlocal position
            new, position = self.recording.incoming(position), len(self.recording)
            return next(filter(wanted, new), None)

        found = await self.until_recorded(find, within)
        assert found is not None
        return found

    async def until_recorded(self, look: Callable[[], T], within: float = 5) -> T:
        """Calls `look`, now and after each read, until it returns something true."""
        try:
            with anyio.fail_after(within):
                while True:
                    ended, news = self.closed.is_set(), self._news
                    if found := look():
                        return found
                    if ended:
                        raise ConnectionError(f"the agent's output ended; {self.situation()}")
                    await news.wait()
        except TimeoutError:
            raise TimeoutError(f"not seen in {within} s; {self.situation()}") from None

    async def answer_to(self, request_id: Any, within: float = 5) -> Message:
        """The whole response, with `result` or `error`."""
        return await self.until(partial(is_answer, request_id), within=within)

    async def until_text(self, text: str, since: int = 0, within: float = 5) -> None:
        """Until the text streamed since then, joined, contains this one."""
        await self.until_recorded(lambda: text in self.text(since=since), within)

    async def until_request(self, method: str, count: int = 1, within: float = 5) -> Message:
        """The agent's `count`th request or notification with this method."""
        requests = self.recording.requests
        return (await self.until_recorded(lambda: requests(method)[count - 1 :], within))[0]

    async def logged(self, text: str, count: int = 1, within: float = 5) -> None:
        """Until the log has this text so many times."""
        await self.until_recorded(lambda: self.stderr.count(text.encode()) >= count, within)

    def situation(self) -> str:
        """For the message of a failed wait: how the process is, and the last lines."""
        code = self.process.poll() if self.process else None
        stderr = self.stderr[-2000:].decode(errors="replace")
        lines = "\n".join(f"  {r.direction} {r.raw[:300]!r}" for r in self.recording[-8:])
        return f"exit code {code}, stderr: {stderr}\n{lines}"

    # Looking

    def mark(self) -> int:
        """Now, as a `since`."""
        return len(self.recording)

    def updates(self, session_id: str | None = None, since: int = 0) -> list[Message]:
        return self.recording.updates(session_id, since)

    def texts(self, session_id: str | None = None, since: int = 0) -> list[str]:
        return self.recording.texts(session_id, since)

    def text(self, session_id: str | None = None, since: int = 0) -> str:
        return "".join(self.recording.texts(session_id, since))

    # The process

    def kill(self) -> None:
        """SIGKILL to this process alone."""
        self._started().kill()

    def terminate(self, signal_number: int = signal.SIGTERM) -> None:
        self._started().send_signal(signal_number)

    def is_running(self) -> bool:
        return self._started().poll() is None

    async def wait(self, within: float = 5) -> int:
        """The exit code; negative for a signal."""
        process = self._started()
        if process.poll() is None:
            await processes.gone(process.pid, within)
        return process.wait()

    async def stderr_ended(self, within: float = 5) -> None:
        """Until nobody can write to the process's stderr any more."""
        with anyio.fail_after(within):
            await self._stderr_ended.wait()

    def _started(self) -> processes.Process:
        assert self.process is not None, "this client talks to no process"
        return self.process

    # The tasks

    async def _read(self) -> None:
        parts: list[bytes] = []
        while data := await self.pipe.read():
            *lines, rest = data.split(b"\n")
            for line in lines:
                self._receive(b"".join([*parts, line, b"\n"]))
                parts = []
            parts.append(rest)
            self._tell()
        if rest := b"".join(parts):
            self._record("in", rest)
        self.closed.set()
        self._tell()

    def _receive(self, raw: bytes) -> None:
        message = self._record("in", raw)
        if message is None or "method" not in message or "id" not in message:
            return
        # The agent that asked may be dead by now.
        with contextlib.suppress(NoAnswer, BrokenPipeError):
            try:
                result = self.side.answer(message["method"], message.get("params") or {})
            except RpcError as error:
                self.answer_error(message["id"], error)
            else:
                self.answer(message["id"], result)

    def _record(self, direction: Literal["in", "out"], raw: bytes) -> Message | None:
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            value = None
        message = value if isinstance(value, dict) else None
        self.recording.append(Record(direction, time.monotonic(), message, raw))
        return message

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def add_log(self, data: bytes) -> None:
        """More of what the other side logs, whoever reads it."""
        self.stderr += data
        self._tell()

    async def _read_stderr(self, fd: int) -> None:
        os.set_blocking(fd, False)
        while True:
            await anyio.wait_readable(fd)
            if not (data := os.read(fd, 65536)):
                return self._stderr_ended.set()
            self.add_log(data)


def _result(response: Message) -> Any:
    if error := response.get("error"):
        raise RpcError(error["code"], error["message"], error.get("data"))
    return response["result"]
