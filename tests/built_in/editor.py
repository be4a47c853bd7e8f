"""What an editor does for its agent: files on the disk, and terminals that run real commands."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import anyio
from anyio.abc import TaskGroup

from tests.support.client import RecordingClient
from tests.support.client_side import NoAnswer
from tests.support.processes import gone
from tests.support.recording import Message, RpcError
from tests.support.tasks import end_tasks

ABILITIES: Message = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


@dataclass
class Terminal:
    process: "subprocess.Popen[bytes]"
    output: IO[bytes]
    released: bool = False

    def status(self) -> Message:
        code = self.process.wait()
        return {"exitCode": code if code >= 0 else None, "signal": None if code >= 0 else str(code)}

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class Editor:
    """`async with Editor(client)`: answers the client's requests about files and terminals."""

    client: RecordingClient
    read: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    terminals: dict[str, Terminal] = field(default_factory=dict)
    _tasks: TaskGroup = field(init=False)

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        handlers: dict[str, Callable[[Message], Message]] = {
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }
        self.client.side.handlers.update(handlers)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        for terminal in self.terminals.values():
            terminal.kill()
            terminal.output.close()
        return await end_tasks(self._tasks, exc)

    def _read(self, params: Message) -> Message:
        self.read.append(params["path"])
        try:
            return {"content": Path(params["path"]).read_text()}
        except FileNotFoundError:
            raise RpcError(-32002, "no such file") from None

    def _write(self, params: Message) -> Message:
        self.written.append(params["path"])
        Path(params["path"]).write_text(params["content"])
        return {}

    def _create(self, params: Message) -> Message:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - read until the end of the test
        process = subprocess.Popen(
            [params["command"], *params["args"]],
            cwd=params["cwd"],
            env={**os.environ, **{each["name"]: each["value"] for each in params["env"]}},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        name = f"terminal-{len(self.terminals) + 1}"
        self.terminals[name] = Terminal(process, output)
        return {"terminalId": name}

    def _output(self, params: Message) -> Message:
        terminal = self._open(params)
        size = os.fstat(terminal.output.fileno()).st_size
        output = os.pread(terminal.output.fileno(), size, 0).decode()
        told = {"output": output, "truncated": False}
        if terminal.process.poll() is None:
            return told
        return {**told, "exitStatus": terminal.status()}

    def _wait(self, params: Message) -> Message:
        # the request that is being answered is the last line read
        message = self.client.recording[-1].message
        assert message is not None
        self._tasks.start_soon(self._answer_at_the_end, message["id"], self._open(params))
        raise NoAnswer

    async def _answer_at_the_end(self, request: Any, terminal: Terminal) -> None:
        await gone(terminal.process.pid, within=20)
        self.client.answer(request, terminal.status())

    def _kill(self, params: Message) -> Message:
        self._open(params).kill()
        return {}

    def _release(self, params: Message) -> Message:
        terminal = self._open(params)
        terminal.kill()
        terminal.released = True
        return {}

    def _open(self, params: Message) -> Terminal:
        terminal = self.terminals[params["terminalId"]]
        assert not terminal.released
        return terminal
