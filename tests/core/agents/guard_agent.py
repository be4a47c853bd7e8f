"""Stand-ins for agents, one a function: `python -I -S guard_agent.py NAME`.

Each says one line on stdout when all its processes are there, and goes on until it is killed,
unless it says otherwise.
"""

import os
import signal
import sys
import time


def say(line: str = "ready") -> None:
    os.write(1, line.encode() + b"\n")


def wait_for_ever() -> None:
    while True:
        signal.pause()


def deaf() -> None:
    """Ignores the end of its stdin and every signal that it can."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    say()
    wait_for_ever()


def child() -> None:
    """Has a child in its own group."""
    if os.fork():
        say()
    wait_for_ever()


def daemon() -> None:
    """Has a grandchild whose parent is gone, in a session of its own, with none of the pipes."""
    _daemon()
    say()
    wait_for_ever()


def daemon_then_exit() -> None:
    """As `daemon`, but waits for the end of its stdin and ends with code 3."""
    _daemon()
    say()
    sys.stdin.read()
    sys.exit(3)


def crowd() -> None:
    """Has 2 groups of 5 children with 3 children each, and 5 daemons."""
    readable, writable = os.pipe()
    for number in range(10):
        if os.fork() == 0:
            os.setpgid(0, 0 if number % 2 else os.getppid())
            for _ in range(3):
                if os.fork() == 0:
                    break
            os.write(writable, b".")
            wait_for_ever()
    for _ in range(5):
        _daemon()
    for _ in range(40):
        os.read(readable, 1)
    say()
    wait_for_ever()


def relay() -> None:
    """Has a descendant that forks, ends, and so on: no pid lives for more than a moment.

    It ends by itself, since nobody could catch it if the test died.
    """
    end = time.monotonic() + 30
    if os.fork() == 0:
        while time.monotonic() < end and os.fork() == 0:
            os.setsid()
        os._exit(0)
    say()
    wait_for_ever()


def short_lived_orphan() -> None:
    """Has a grandchild that lost its parent and ends when a line comes; says its pid."""
    go_readable, go_writable = os.pipe()
    pid_readable, pid_writable = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(go_writable)
            os.write(pid_writable, str(os.getpid()).encode())
            os.read(go_readable, 1)
        os._exit(0)
    os.wait()
    say(os.read(pid_readable, 16).decode())
    sys.stdin.readline()
    os.close(go_writable)
    wait_for_ever()


def tidies_up() -> None:
    """Ignores the end of its stdin; at SIGTERM it says so, and ends with code 3."""

    def tidy(number: int, frame: object) -> None:
        say("tidy")
        sys.exit(3)

    signal.signal(signal.SIGTERM, tidy)
    say()
    wait_for_ever()


def ends_with_its_stdin() -> None:
    """Says when SIGTERM comes, and ends with code 3 when its stdin does."""
    signal.signal(signal.SIGTERM, lambda *_: say("SIGTERM"))
    say()
    sys.stdin.read()
    sys.exit(3)


def closes_stdout() -> None:
    say()
    os.close(1)
    wait_for_ever()


def terminates_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def exits_3() -> None:
    sys.exit(3)


def _daemon() -> None:
    readable, writable = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open("/dev/null", os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.write(writable, b".")
        wait_for_ever()
    os.wait()
    os.read(readable, 1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
