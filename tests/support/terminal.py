"""A program on a terminal of its own, for tests that type and read."""

import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

#: What moves the cursor, colours, or asks the terminal something.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


class Terminal:
    """What is typed and shown; `limit` is for each wait, in seconds."""

    def __init__(self, descriptor: int, limit: float) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def until(self, text: str) -> str:
        """What is shown up to this text, which is waited for; escape sequences are left out."""
        end = time.monotonic() + self._limit
        while text not in (shown := _ESCAPE.sub("", self._seen)):
            ready, _, _ = select.select([self._descriptor], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text!r} in {shown[-2000:]!r}"
            self._seen += os.read(self._descriptor, 65536).decode(errors="replace")
        found, _, self._seen = shown.partition(text)
        return found + text

    def until_the_end(self) -> None:
        """Read until nobody writes to the terminal any more."""
        end = time.monotonic() + self._limit
        with suppress(OSError):  # how a terminal says so on Linux
            while select.select([self._descriptor], [], [], max(0, end - time.monotonic()))[0]:
                if not os.read(self._descriptor, 65536):
                    return
            raise AssertionError("the program does not end")


@contextmanager
def on_a_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], limit: float = 60
) -> Iterator[Terminal]:
    """Start a program, which is killed at the end, with nothing but this environment."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (40, 120))
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, limit)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
