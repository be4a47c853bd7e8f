"""Asks for a secret at a terminal that doesn't show what is typed.

Invariants
- However the question ends, by a signal too, the terminal shows again what is typed after it.
- What is stopped (Ctrl-Z) asks anew when it goes on, since a shell may have turned the echo on.
- A line that the terminal may have cut is refused: half of a key is none.
"""

from __future__ import annotations

import os
import select
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

#: those that end or stop a program that waits for a line.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
#: bytes of a line that a terminal hands over; the rest of a longer one is lost without a word.
_LONGEST: Final = 4095


class WouldShow(Exception):
    """The echo can't be turned off."""


class Cut(Exception):
    """The line may be longer than what has arrived of it."""


def ask(prompt: str, terminal: int, screen: TextIO) -> bytes:
    """Return the line that is typed, without its end; empty at the end of the input.

    `terminal` is its descriptor, `screen` takes the prompt. A signal does what it does otherwise;
    where the program goes on after it, it is asked again. Raises WouldShow, Cut.
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
    """Return a line, or the signal that came before it had ended."""
    with _signals() as came, _without_echo(terminal):
        screen.write(prompt)
        screen.flush()
        found = _line(terminal, came)
        with suppress(OSError):  # a terminal that was closed shows nothing
            screen.write("\n")  # that of the user isn't shown
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
        except OSError:  # it was closed
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
        with suppress(termios.error):  # it was closed
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


@contextmanager
def _signals() -> Iterator[int]:
    """Give a descriptor on which the numbers of signals arrive, as one byte each.

    No handler raises: an exception at any moment could keep the echo from being turned on again.
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
