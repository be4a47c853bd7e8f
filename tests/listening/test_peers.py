"""Who may connect: judged by the process that called connect(), and by what started it."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acp_bridge.agents import ancestors
from acp_bridge.listening import peers
from acp_bridge.listening.peers import Refused, check
from acp_bridge.listening.run_files import LiveBridge
from tests.agents.guard_support import python, read_line, started

pytestmark = pytest.mark.process

#: Connects, says so on its stdout, and stays.
CONNECT = """
import os, socket, sys, time
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(PATH)
    print("connected", flush=True)
    return s
"""
HOW = {
    "itself": "kept = connect(); time.sleep(100)",
    "child": "if os.fork() == 0: kept = connect(); time.sleep(100)\ntime.sleep(100)",
    "double fork": """
if os.fork() == 0:
    os.setsid()
    above = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == above:
        time.sleep(0.001)
    kept = connect()
time.sleep(100)
""",
}


@contextmanager
def listener(folder: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX) as waiting:
        path = str(folder / "s")
        waiting.bind(path)
        waiting.listen(8)
        waiting.settimeout(5)
        yield waiting, path


@contextmanager
def connected(folder: Path, *words: str) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A connection of a process that is started with these words behind its code."""
    with listener(folder) as (waiting, path):
        code = f"PATH = {path!r}\n{CONNECT}\nkept = connect(); sys.stdin.read()"
        command = [sys.executable, "-c", code, *words]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            connection, _ = waiting.accept()
            with connection:
                yield connection, process


def bridge(pid: int, host: str | None = None) -> LiveBridge:
    return LiveBridge(pid, host or socket.gethostname(), "/s", 1, "codex", "9")


def none() -> list[LiveBridge]:
    return []


@pytest.mark.hazard("V6")
@pytest.mark.parametrize("how", HOW)
async def test_what_an_agent_starts_may_not_connect_however_it_was_started(
    short: Path, how: str
) -> None:
    with listener(short) as (waiting, path):
        code = f"PATH = {path!r}\n{CONNECT}\n{HOW[how]}"
        async with started(python(code)) as (agent, _):
            assert await read_line(agent) == "connected"
            connection, _ = waiting.accept()
            with connection, pytest.raises(Refused, match="agents"):
                check(connection, none)


def test_another_program_of_the_user_may_connect(short: Path) -> None:
    with connected(short) as (connection, _):
        check(connection, none)


@pytest.mark.hazard("V6")
@pytest.mark.parametrize("kernel", ["new", "old"])
@pytest.mark.parametrize("collected", [True, False])
def test_a_process_that_has_ended_may_not_even_if_its_connection_lives_on(
    short: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, collected: bool
) -> None:
    if kernel == "old":
        monkeypatch.setattr(peers, "_SO_PEERPIDFD", 9999)  # no such option
    with connected(short) as (connection, process):
        check(connection, none)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if collected else os.WNOWAIT))
        with pytest.raises(Refused, match="ended"):
            check(connection, none)


@pytest.mark.hazard("V6")
def test_a_pid_that_is_another_process_s_by_now_does_not_help(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(short) as (connection, process):
        process.kill()
        process.wait()
        # as if this process, which may connect, had got the pid of the one that has ended
        monkeypatch.setattr(peers, "_credentials", lambda _: (os.getpid(), os.getuid()))
        with pytest.raises(Refused, match="ended"):
            check(connection, none)


@pytest.mark.hazard("V6")
def test_another_user_may_not(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(short) as (connection, process):
        monkeypatch.setattr(peers, "_credentials", lambda _: (process.pid, os.getuid() + 1))
        with pytest.raises(Refused, match="only the user"):
            check(connection, none)


@pytest.mark.hazard("V6")
def test_a_process_of_which_no_pid_is_told_may_not(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(short) as (connection, _):
        monkeypatch.setattr(struct, "unpack", lambda *_: (0, os.getuid(), 0))
        with pytest.raises(Refused, match="can't be seen"):
            check(connection, none)


@pytest.mark.hazard("V6")
def test_an_ancestor_that_is_hidden_may_be_a_guard(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(pid: int) -> bool:
        raise PermissionError

    with connected(short) as (connection, _):
        monkeypatch.setattr(peers, "is_guard", hidden)
        with pytest.raises(Refused, match="can't be seen"):
            check(connection, none)


#: Starts a process that connects, as a bridge has one below it whose guard was killed.
ABOVE = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


@pytest.mark.hazard("V6")
@pytest.mark.parametrize(
    ("named", "host", "allowed"),
    [("acp-bridge", None, False), ("acp-bridge", "elsewhere", True), ("zsh", None, True)],
)
def test_what_has_lost_its_guard_is_below_a_bridge_and_may_not(
    short: Path, named: str, host: str | None, allowed: bool
) -> None:
    with listener(short) as (waiting, path):
        code = f"PATH = {path!r}\n{CONNECT}\nkept = connect(); sys.stdin.read()"
        command = [sys.executable, "-c", ABOVE, code, named]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as above:
            connection, _ = waiting.accept()
            with connection:
                if allowed:
                    check(connection, lambda: [bridge(above.pid, host)])
                else:
                    with pytest.raises(Refused, match="agents"):
                        check(connection, lambda: [bridge(above.pid, host)])


@pytest.mark.hazard("V6")
@pytest.mark.parametrize("is_bridge", [True, False])
def test_a_bridge_that_is_the_first_process_of_a_container_is_above_what_lost_its_guard(
    monkeypatch: pytest.MonkeyPatch, is_bridge: bool
) -> None:
    monkeypatch.setattr(ancestors, "_parent", {7: 5, 5: 1, 1: 0}.__getitem__)
    if is_bridge:
        monkeypatch.setattr(os, "getpid", lambda: 1)
    assert ancestors.is_below(7, lambda above: above == 1) is is_bridge


def test_a_bridge_itself_may_connect_to_another_one(short: Path) -> None:
    with connected(short, "acp-bridge") as (connection, process):
        check(connection, lambda: [bridge(process.pid)])
