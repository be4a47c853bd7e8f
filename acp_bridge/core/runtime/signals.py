"""The signals that ask the bridge to end (invariant P2), from its first line to its last.

Invariants
- At no moment do the signals have the system's default, which would end the process halfway: they
  end it at once and well while nothing has begun, are read by the bridge while it serves, and are
  ignored after that.
- A command that a signal ends has the exit code INTERRUPTED, unless it has handlers of its own.
- This module is loaded before anything else, so it imports nothing that the interpreter has not
  loaded.
"""

import _signal  # type: ignore[import-not-found]
import os

#: the exit code of a command that a signal has ended (docs/commands.md).
INTERRUPTED = 130
ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)


def leave_at_once(code: int = 0) -> None:
    """Let the signals end the process with `code`: there is no agent, and nothing was accepted."""
    for number in ENDING:
        _signal.signal(number, lambda *_: os._exit(code))


def ignore() -> None:
    """Ignore the signals from now on, since the process is ending.

    They are blocked during the change: for a signal that came just before it, Python would write
    to stderr that the handler was gone.
    """
    _signal.pthread_sigmask(_signal.SIG_BLOCK, ENDING)
    for number in ENDING:
        _signal.signal(number, _signal.SIG_IGN)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, ENDING)


def interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, in a process that will be no bridge."""
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


class Received:
    """`with Received() as fd`: each of the signals can be read from `fd` as one byte, its number.

    The handlers that were in force before come back at the end.
    """

    def __init__(self) -> None:
        """Prepare; the handlers are installed by `with`."""
        self._readable = self._writable = -1
        self._before: list[tuple[int, object]] = []
        self._handler = self._note  # one object, to be known again

    def _note(self, number: int, frame: object) -> None:
        """Write the signal's number into the pipe, between any two steps of the main thread."""
        if self._writable >= 0:
            try:  # noqa: SIM105 - contextlib is not loaded
                os.write(self._writable, bytes([number]))
            except BlockingIOError:
                pass  # thousands have not been read yet

    def __enter__(self) -> int:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        self._before = [(number, _signal.signal(number, self._handler)) for number in ENDING]
        return self._readable

    def __exit__(self, *_: object) -> None:
        for number, before in self._before:
            if _signal.getsignal(number) is self._handler:
                _signal.signal(number, before)
        writable, self._writable = self._writable, -1
        os.close(writable)
        os.close(self._readable)
