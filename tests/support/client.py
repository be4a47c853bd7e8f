"""A client that speaks raw JSON lines to an agent or bridge and records every one of them.

It leaves nothing to a library: what a test judges are the bytes. Sends are synchronous, so two of
them in a row are written in that order with nothing between; every wait is bounded.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import anyio

from tests.support import processes
from tests.support.line_client import LineClient
from tests.support.recording import Message, RpcError

#: What an editor that can do everything says of itself.
FULL_CAPABILITIES: Message = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}},
}
#: for what starts a process: on a machine that has to read Python from a slow disk first
_START_SECONDS = 20.0


class RecordingClient(LineClient):
    """`async with RecordingClient(read_fd, write_fd) as client`, or `RecordingClient.start(...)`.

    Owns both file descriptors. After `new_session` or `load_session` that session is the one
    meant where no id is given.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        super().__init__(read_fd, write_fd)
        self.session_id = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr = b""
        self._stderr_ended = anyio.Event()

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
        process = _open(command, env or {}, cwd)
        write_fd, read_fd, stderr_fd = map(_taken, (process.stdin, process.stdout, process.stderr))
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

    def send_prompt(self, text: str, session_id: str | None = None, **extra: Any) -> Any:
        """Returns the id; `extra` are further params, e.g. `_meta={...}`."""
        block = {"type": "text", "text": text}
        params = {"sessionId": session_id or self.session_id, "prompt": [block], **extra}
        return self.send_request("session/prompt", params)

    def cancel(self, session_id: str | None = None) -> None:
        self.notify("session/cancel", {"sessionId": session_id or self.session_id})

    async def request(self, method: str, params: Any, within: float = 5) -> Any:
        """The result; raises RpcError."""
        return _result(await self.answer_to(self.send_request(method, params), within))

    # The usual requests

    async def initialize(
        self, capabilities: Message | None = None, within: float = _START_SECONDS
    ) -> Any:
        """With every capability unless others are given."""
        given = FULL_CAPABILITIES if capabilities is None else capabilities
        params = {"protocolVersion": 1, "clientCapabilities": given}
        return await self.request("initialize", params, within)

    async def new_session(self, cwd: Path | str, **extra: Any) -> str:
        params = {"cwd": str(cwd), "mcpServers": [], **extra}
        result = await self.request("session/new", params, _START_SECONDS)
        self.session_id = result["sessionId"]
        return self.session_id

    async def load_session(self, session_id: str, cwd: Path | str, **extra: Any) -> Any:
        params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": [], **extra}
        result = await self.request("session/load", params, _START_SECONDS)
        self.session_id = session_id
        return result

    async def prompt(
        self, text: str, session_id: str | None = None, within: float = 5, **extra: Any
    ) -> Any:
        """The result, as in `{"stopReason": "end_turn"}`; raises RpcError."""
        return _result(await self.answer_to(self.send_prompt(text, session_id, **extra), within))

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

    def _started(self) -> "subprocess.Popen[bytes]":
        assert self.process is not None, "this client talks to no process"
        return self.process

    def situation(self) -> str:
        code = self.process.poll() if self.process else None
        stderr = self.stderr[-2000:].decode(errors="replace")
        return f"exit code {code}, stderr: {stderr}\n{super().situation()}"

    async def _read_stderr(self, fd: int) -> None:
        os.set_blocking(fd, False)
        while True:
            await anyio.wait_readable(fd)
            if not (data := os.read(fd, 65536)):
                return self._stderr_ended.set()
            self.stderr += data


def _result(response: Message) -> Any:
    if error := response.get("error"):
        raise RpcError(error["code"], error["message"], error.get("data"))
    return response["result"]


def _taken(file: IO[bytes] | None) -> int:
    """The descriptor, owned by the caller from now on."""
    assert file is not None
    with file:
        return os.dup(file.fileno())


def _open(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
        cwd=cwd,
        start_new_session=True,
    )
