"""Records what a person sees of a command: real terminal, real processes, keys typed one by one."""

from __future__ import annotations

import os
import pty
import sys
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import anyio
from anyio.abc import Process

from tests.pictures.cast import Cast
from tests.pictures.screen import ColourTerminal

ROOT = Path(__file__).parents[2]
#: seconds for anything that is waited for.
_LONGEST = 60.0
#: seconds between two keys, and before what a person thinks about.
_KEY, _THOUGHT = 0.045, 1.0


class Recorder:
    """A person at a terminal; all that is written to it is kept with its time."""

    def __init__(
        self, fd: int, process: Process, size: tuple[int, int], arguments: Sequence[str]
    ) -> None:
        self.process = process
        self._fd = fd
        self._terminal = ColourTerminal(*size)
        self._start = monotonic()
        #: what the shell has shown of the command line
        self._written = [(0.0, f"$ acp-bridge {' '.join(arguments)}\r\n")]
        self._terminal.write(self._written[0][1])

    async def look_on(self) -> None:
        """Keep what is written, until it is cancelled or the terminal is closed."""
        rest = b""
        while True:
            await anyio.wait_readable(self._fd)
            try:
                data = rest + os.read(self._fd, 65536)
            except OSError:  # the last process has left the terminal
                return
            text, rest = _decoded(data)
            self._written.append((monotonic() - self._start, text))
            self._terminal.write(text)

    async def types(self, text: str) -> None:
        """Type a line, key by key, and enter it."""
        for key in [*text, "\r"]:
            await anyio.sleep(_KEY)
            os.write(self._fd, key.encode())

    async def presses(self, key: str) -> None:
        """Press one key after a thought."""
        await anyio.sleep(_THOUGHT)
        os.write(self._fd, key.encode())

    async def sees(self, text: str) -> None:
        """Wait until a text is on the screen."""
        await self._terminal.shows(text, _LONGEST)

    def cast(self, title: str, hidden: Mapping[str, str]) -> Cast:
        """Return the recording; `hidden`: what is shown instead of names of this machine."""
        written = []
        for time, text in self._written:
            for name, shown in hidden.items():
                text = text.replace(name, shown)
            written.append((time, text))
        terminal = self._terminal
        return Cast(terminal.columns, terminal.rows, title, tuple(written))


def _decoded(data: bytes) -> tuple[str, bytes]:
    """Return the text, and the bytes of a character that is not whole yet."""
    for rest in range(4):
        try:
            return data[: len(data) - rest].decode(), data[len(data) - rest :]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


@asynccontextmanager
async def recording(
    arguments: Sequence[str], folder: Path, home: Path, size: tuple[int, int]
) -> AsyncIterator[Recorder]:
    """Run `acp-bridge` with these arguments in a terminal of so many columns and rows."""
    columns, rows = size
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (rows, columns))
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    env |= {"ACP_BRIDGE_HOME": str(home / "sessions"), "TERM": "xterm-256color"}
    env |= {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    try:
        async with await anyio.open_process(
            [sys.executable, "-m", "acp_bridge", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=env,
            start_new_session=True,
        ) as process:
            there = Recorder(ours, process, size, arguments)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(there.look_on)
                    with anyio.fail_after(4 * _LONGEST):
                        yield there
                    tasks.cancel_scope.cancel()
            finally:
                if process.returncode is None:
                    process.kill()
    finally:
        os.close(ours)
        os.close(theirs)
