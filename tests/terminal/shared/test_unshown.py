"""A secret that is asked for at a terminal: it is never shown, and the echo always comes back."""

import errno
import io
import os
import signal
import termios
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from acp_bridge.terminal.shared import unshown


class Ended(Exception):
    """What a signal does in these tests."""


class Terminal:
    """A pseudo terminal; `ask` runs a step each time that the question stands there."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()

    def ask(self, *steps: Callable[[], object]) -> bytes:
        left = list(steps)

        class Screen(io.StringIO):
            def write(self, text: str) -> int:
                if text == "key: ":
                    thread = threading.Thread(target=left.pop(0))
                    thread.start()
                    threads.append(thread)
                return len(text)

        threads: list[threading.Thread] = []
        try:
            return unshown.ask("key: ", self.slave, Screen())
        finally:
            for thread in threads:
                thread.join()

    def types(self, text: bytes) -> Callable[[], object]:
        return lambda: os.write(self.master, text)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.slave)[3] & termios.ECHO)

    def shown(self) -> bytes:
        os.set_blocking(self.master, False)
        try:
            return os.read(self.master, 10_000)
        except BlockingIOError:
            return b""


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    try:
        yield terminal
    finally:
        os.close(terminal.master)
        os.close(terminal.slave)


def sends(number: signal.Signals) -> Callable[[], object]:
    main = threading.main_thread().ident
    assert main is not None
    return lambda: signal.pthread_kill(main, number)


def test_what_is_typed_is_returned_and_not_shown(terminal: Terminal) -> None:
    assert terminal.ask(terminal.types(b"sk-wronk\x7fg\n")) == b"sk-wrong"
    assert b"sk-" not in terminal.shown()
    assert terminal.echoes()


def test_the_end_of_the_input_is_no_key(terminal: Terminal) -> None:
    assert terminal.ask(terminal.types(b"\x04")) == b""
    assert terminal.echoes()


def test_a_terminal_that_is_closed_meanwhile_gives_no_key() -> None:
    master, slave = os.openpty()

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            if text == "key: ":
                os.close(master)
                return len(text)
            raise OSError(errno.EIO, "it is closed")

    try:
        assert unshown.ask("key: ", slave, Screen()) == b""
    finally:
        os.close(slave)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_echo_is_back_when_a_signal_does_what_it_does(
    terminal: Terminal, number: signal.Signals
) -> None:
    echo = []

    def handler(number: int, frame: FrameType | None) -> None:
        echo.append(terminal.echoes())
        raise Ended

    before = signal.signal(number, handler)
    try:
        with pytest.raises(Ended):
            terminal.ask(sends(number))
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert echo == [True]


def test_it_asks_again_when_it_goes_on_after_a_stop(terminal: Terminal) -> None:
    echo = []
    before = signal.signal(signal.SIGTSTP, lambda number, frame: echo.append(terminal.echoes()))
    try:
        key = terminal.ask(sends(signal.SIGTSTP), terminal.types(b"sk-second\n"))
    finally:
        signal.signal(signal.SIGTSTP, before)
    assert (key, echo) == (b"sk-second", [True])
    assert b"sk-" not in terminal.shown()


def test_a_signal_that_is_ignored_stays_so(terminal: Terminal) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        terminal.ask(terminal.types(b"x\n"))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_line_that_the_terminal_may_have_cut_is_refused(terminal: Terminal) -> None:
    with pytest.raises(unshown.Cut):
        terminal.ask(terminal.types(b"k" * 4095 + b"\n"))
    assert terminal.ask(terminal.types(b"k" * 4094 + b"\n")) == b"k" * 4094


def test_what_is_no_terminal_is_not_asked() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(unshown.WouldShow):
            unshown.ask("key: ", reader, io.StringIO())
    finally:
        os.close(reader)
        os.close(writer)
