"""A person at a terminal on which a command of ours runs."""

import os
import pty
import re
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from tests.support import processes
from tests.terminal.shared.terminal_model import TerminalModel

#: for what starts several interpreters
_SECONDS = 30.0
#: the begin of a sequence at the end of what was read
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*)?$")


class Person:
    """Sits at a terminal on which a command runs."""

    def __init__(self, fd: int, process: processes.Watched) -> None:
        self._fd, self.process = fd, process
        self._terminal = TerminalModel(80, 24)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    async def answers(self, key: str) -> None:
        """Answer the permission on the screen: mark with a key, and press Enter until it counts."""
        self.type(key)
        await self.sees("Enter answers: ")
        with anyio.fail_after(_SECONDS):
            while True:
                self.type("\r")
                with anyio.move_on_after(0.2):
                    return await self._terminal.hides("Enter answers: ")

    async def sees(self, text: str) -> None:
        await self._terminal.shows(text, _SECONDS)

    async def hears(self, bells: int) -> None:
        """Wait until the bell has rung so often."""
        await self._terminal.until(lambda: self._terminal.bells == bells, _SECONDS)

    async def until(self, look: Callable[[], object]) -> None:
        """Wait until what is on the terminal makes `look` true."""
        await self._terminal.until(look, _SECONDS)

    @property
    def screen(self) -> str:
        """What is on the terminal now."""
        return self._terminal.screen

    @property
    def seen(self) -> str:
        """All that was written to the terminal, what has scrolled off included."""
        return self._terminal.everything

    async def look_on(self) -> None:
        """Read what is written to the terminal, until cancelled."""
        decoder, unfinished = getincrementaldecoder("utf-8")(errors="replace"), ""
        while True:
            await anyio.wait_readable(self._fd)
            text = unfinished + decoder.decode(os.read(self._fd, 65536))
            whole = _UNFINISHED.sub("", text)
            unfinished = text[len(whole) :]
            self._terminal.write(whole)

    def modes(self) -> list[object]:
        """How the terminal is set: raw, or as a shell needs it."""
        return termios.tcgetattr(self._fd)[:4]


@asynccontextmanager
async def person(
    arguments: Sequence[str], folder: Path, env: dict[str, str], before: Sequence[str] = ()
) -> AsyncIterator[Person]:
    """Runs `acp-bridge ARGUMENTS`, behind the words `before` if there are any."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    command = [*before, sys.executable, "-m", "acp_bridge", *arguments]
    settings = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    try:
        with anyio.fail_after(4 * _SECONDS):
            given = {**os.environ, **env, **settings}
            process = processes.start(command, given, folder, (theirs, theirs, theirs))
            there = Person(ours, processes.Watched(process))
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(there.look_on)
                    yield there
                    tasks.cancel_scope.cancel()
            finally:
                process.kill()
                process.wait()
    finally:
        os.close(ours)
        os.close(theirs)
