"""Asks for a secret at a terminal without showing what is typed.

Invariants
- However the question ends, also by a signal, the terminal's echo is on again afterwards.
- If the program was stopped (Ctrl-Z), it asks anew when it continues: a shell may have turned the
  echo on.
- A line that the terminal may have cut is refused: half of a key is useless.
"""

from __future__ import annotations

import os
import select
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

#: signals that end or stop a program while it waits for a line.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
#: bytes of a line that a terminal delivers; it drops the rest of a longer one silently.
_LONGEST: Final = 4095


class WouldShow(Exception):
    """The echo of this terminal can't be turned off."""


class Cut(Exception):
    """The terminal may have cut the line."""


def ask(prompt: str, terminal: int, screen: TextIO) -> bytes:
    """Print a prompt and return the typed line without its newline; b"" at the end of the input.

    `terminal`: the terminal's descriptor. A signal has its usual effect; if the program continues
    after it, the question is asked again. Raises WouldShow, Cut.
    """
    while True:
        line, number = _asked(prompt, terminal, screen)
        if number is None:
            break
        os.kill(os.getpid(), number)
    if len(line.removesuffix(b"\n")) >= _LONGEST:
        raise Cut
    return line.removesuffix(b"\n")


def _asked(prompt: str, terminal: int, screen: TextIO) -> tuple[bytes, int | None]:
    """Print the prompt once; return the line and None, or b"" and the interrupting signal."""
    with _signals() as came, _without_echo(terminal):
        screen.write(prompt)
        screen.flush()
        found = _line(terminal, came)
        with suppress(OSError):  # a closed terminal
            screen.write("\n")  # the user's own newline was not echoed
            screen.flush()
        return found


def _line(terminal: int, came: int) -> tuple[bytes, int | None]:
    line = b""
    while True:
        ready, _, _ = select.select([terminal, came], [], [])
        if came in ready:
            return b"", os.read(came, 1)[0]
        try:
            part = os.read(terminal, _LONGEST + 1)
        except OSError:  # the terminal was closed
            part = b""
        line += part
        if not part or line.endswith(b"\n"):
            return line, None


@contextmanager
def _without_echo(terminal: int) -> Iterator[None]:
    try:
        before = termios.tcgetattr(terminal)
        without = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(terminal, termios.TCSAFLUSH, without)
    except termios.error:
        raise WouldShow from None
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


@contextmanager
def _signals() -> Iterator[int]:
    """Give a descriptor from which the numbers of arriving signals are read, one byte each.

    No handler raises: an exception at any moment could keep the echo from being restored.
    """
    came, note = os.pipe()
    os.set_blocking(note, False)
    before = {}
    try:
        for each in _SIGNALS:
            if signal.getsignal(each) not in (signal.SIG_IGN, None):
                before[each] = signal.signal(each, lambda number, _: _noted(note, number))
        yield came
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        os.close(came)
        os.close(note)


def _noted(note: int, number: int) -> None:
    os.write(note, bytes([number]))
