"""Raw JSON lines to and from an agent, every one recorded, and bounded waits on the record."""

import contextlib
import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from tests.support.client_side import ClientSide, NoAnswer
from tests.support.pipe import Pipe
from tests.support.recording import Message, Record, Recording, RpcError, is_answer
from tests.support.tasks import end_tasks

T = TypeVar("T")


class LineClient:
    """Owns both file descriptors; `async with` runs the tasks that read and write."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.pipe = Pipe(read_fd, write_fd)
        self.recording = Recording()
        self.side = ClientSide()
        self.closed = anyio.Event()  #: the agent's output has ended
        self._ids = itertools.count()
        self._news = anyio.Event()
        self._tasks: TaskGroup

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

    def close_stdin(self) -> None:
        self.pipe.close_writing()

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

    def situation(self) -> str:
        """For the message of a failed wait: the last lines."""
        return "\n".join(f"  {r.direction} {r.raw[:300]!r}" for r in self.recording[-8:])

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
