"""Who may be at the other end of a socket: judged by who called connect(), or listen()."""

import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from acp_bridge.core.agents import guard, origin
from acp_bridge.sharing.listening import peers
from acp_bridge.sharing.listening.peers import NoBridge, Refused, check, connect
from tests.core.agents.guard_support import python, read_line, started

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


@pytest.mark.hazard("V6.1")
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
                check(connection)


def test_another_program_of_the_user_may_connect(short: Path) -> None:
    with connected(short) as (connection, _):
        check(connection)


@pytest.mark.hazard("V6.6")
@pytest.mark.parametrize("kernel", ["new", "old"])
@pytest.mark.parametrize("collected", [True, False])
def test_a_process_that_has_ended_may_not_even_if_its_connection_lives_on(
    short: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, collected: bool
) -> None:
    if kernel == "old":
        monkeypatch.setattr(peers, "_SO_PEERPIDFD", 9999)  # no such option
    with connected(short) as (connection, process):
        check(connection)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if collected else os.WNOWAIT))
        with pytest.raises(Refused, match="ended"):
            check(connection)


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
            check(connection)


@pytest.mark.hazard("V6.1")
def test_another_user_may_not(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(short) as (connection, process):
        monkeypatch.setattr(peers, "_credentials", lambda _: (process.pid, os.getuid() + 1))
        with pytest.raises(Refused, match="only the user"):
            check(connection)


@pytest.mark.hazard("V6.6")
def test_a_process_of_which_no_pid_is_told_may_not(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(short) as (connection, _):
        monkeypatch.setattr(struct, "unpack", lambda *_: (0, os.getuid(), 0))
        with pytest.raises(Refused, match="can't be seen"):
            check(connection)


@pytest.mark.hazard("V6.6")
@pytest.mark.parametrize("linux", [True, False])
def test_a_process_that_can_not_be_looked_at_may_not(
    short: Path, monkeypatch: pytest.MonkeyPatch, linux: bool
) -> None:
    def hidden(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(origin, "LINUX", linux)
    monkeypatch.setattr(resource, "prlimit", hidden)
    monkeypatch.setattr(subprocess, "run", hidden)
    with connected(short) as (connection, _), pytest.raises(Refused, match="can't be seen"):
        check(connection)


@pytest.mark.parametrize("linux", [True, False])
def test_the_words_of_a_guard_in_an_argument_make_no_agent(
    short: Path, monkeypatch: pytest.MonkeyPatch, linux: bool
) -> None:
    """An editor that has a folder open which is called like a module of ours, or its source."""
    monkeypatch.setattr(origin, "LINUX", linux)
    words = ["agent.fork_parent", "acp_bridge", guard.COMMAND_LINE[-2]]
    with connected(short, *words) as (connection, _):
        check(connection)


@pytest.mark.hazard("V6")
@pytest.mark.parametrize(
    ("linux", "how"),
    [(False, "itself"), (False, "child"), (True, "itself"), (True, "child"), (True, "double fork")],
)
async def test_where_there_is_no_mark_the_ancestors_tell(
    short: Path, monkeypatch: pytest.MonkeyPatch, linux: bool, how: str
) -> None:
    """As on macOS, with the same `ps`; and as below the guard of an acp-bridge without a mark."""
    monkeypatch.setattr(origin, "LINUX", linux)
    monkeypatch.setattr(resource, "prlimit", lambda *_: (resource.RLIM_INFINITY,) * 2)
    with listener(short) as (waiting, path):
        async with started(python(f"PATH = {path!r}\n{CONNECT}\n{HOW[how]}")) as (agent, _):
            assert await read_line(agent) == "connected"
            connection, _ = waiting.accept()
            with connection, pytest.raises(Refused, match="agents"):
                check(connection)


def test_where_proc_shows_only_one_s_own_processes_what_is_above_them_is_not_asked_for(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hides(path: object, mode: str) -> IO[bytes]:
        if path == f"/proc/{os.getppid()}/stat":
            raise FileNotFoundError
        return open(str(path), mode)

    def of_another(pid: int, signal: int) -> None:
        raise PermissionError

    with connected(short) as (connection, _):
        monkeypatch.setattr(origin, "open", hides, raising=False)
        monkeypatch.setattr(os.path, "exists", lambda path: path != f"/proc/{os.getppid()}/stat")
        monkeypatch.setattr(os, "kill", of_another)
        check(connection)


#: Listens, says so on its stdout, and stays.
LISTEN = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(PATH)
s.listen(8)
print("listening", flush=True)
time.sleep(100)
"""


@pytest.mark.hazard("V6.2", "V6.12")
async def test_a_client_takes_no_process_of_an_agent_for_a_bridge(short: Path) -> None:
    path = str(short / "s")
    async with started(python(f"PATH = {path!r}\n{LISTEN}")) as (agent, _):
        assert await read_line(agent) == "listening"
        with pytest.raises(NoBridge, match="no acp-bridge of yours"):
            await connect(path)


@pytest.mark.parametrize("path", ["/nowhere/s", "a\0b"])
async def test_who_can_not_be_reached_is_an_error_of_the_system(path: str) -> None:
    with pytest.raises(OSError, match=r"No such file|Invalid argument"):
        await connect(path)


async def test_a_client_connects_to_what_the_user_has_started(short: Path) -> None:
    with listener(short) as (_, path), await connect(path) as connection:
        assert not connection.getblocking()
