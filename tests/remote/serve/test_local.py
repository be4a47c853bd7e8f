"""Who has connected over TCP from this machine: an agent, and what it starts, may not."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from acp_bridge.remote.serve import local
from acp_bridge.sharing.listening.peers import Refused
from tests.core.agents.guard_support import python, read_line, started
from tests.sharing.listening.test_peers import HOW

pytestmark = [pytest.mark.process, pytest.mark.hazard("V6")]

CONNECT = """
import os, socket, sys, time
def connect():
    s = socket.create_connection(ADDRESS)
    print("connected", flush=True)
    return s
"""


@contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if host == "::":
        with socket.create_server((host, 0), family=family, dualstack_ipv6=True) as waiting:
            waiting.settimeout(5)
            yield waiting
        return
    with socket.create_server((host, 0), family=family) as waiting:
        waiting.settimeout(5)
        yield waiting


def look(connection: socket.socket, *, proxied: bool = False) -> None:
    peer, own = connection.getpeername(), connection.getsockname()
    local.check((peer[0], peer[1]), (own[0], own[1]), proxied=proxied)


@contextmanager
def connected(
    listen: str = "127.0.0.1", to: str = "127.0.0.1"
) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A connection of a process of the user's, which stays until the end."""
    with listening(listen) as waiting:
        code = f"ADDRESS = {(to, waiting.getsockname()[1])!r}\n{CONNECT}\nkept = connect()\n"
        command = [sys.executable, "-c", f"{code}sys.stdin.read()"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            connection, _ = waiting.accept()
            with connection:
                yield connection, process


@pytest.mark.hazard("N1.11", "V6.1")
@pytest.mark.parametrize("how", HOW)
async def test_what_an_agent_starts_may_not_come_in_however_it_was_started(how: str) -> None:
    with listening() as waiting:
        code = f"ADDRESS = {waiting.getsockname()!r}\n{CONNECT}\n{HOW[how]}"
        async with started(python(code)) as (agent, _):
            assert await read_line(agent) == "connected"
            connection, _ = waiting.accept()
            with connection:
                for proxied in (False, True):
                    with pytest.raises(Refused, match="agents"):
                        look(connection, proxied=proxied)


@pytest.mark.parametrize(
    ("listen", "to"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")]
)
def test_another_program_of_the_user_may(listen: str, to: str) -> None:
    with connected(listen, to) as (connection, _):
        look(connection)


@pytest.mark.hazard("V6.6")
def test_a_process_that_has_ended_may_not() -> None:
    with connected() as (connection, process):
        process.kill()
        process.wait()
        with pytest.raises(Refused, match=r"can't be seen .*--allow-local"):
            look(connection)


def test_behind_a_proxy_one_that_has_closed_its_end_is_not_taken_for_another_user_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system says root of an end that nobody has any more; what was sent can still be read."""
    with connected() as (connection, process):
        process.kill()
        process.wait()
        monkeypatch.setattr(os, "getuid", lambda: 54321)
        with pytest.raises(Refused, match="can't be seen"):
            look(connection, proxied=True)


def test_another_user_s_may_not_unless_a_proxy_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (connection, _):
        monkeypatch.setattr(os, "getuid", lambda: 54321)
        with pytest.raises(Refused, match="only the user"):
            look(connection)
        look(connection, proxied=True)


@pytest.mark.hazard("V6.6")
def test_a_process_that_nobody_here_can_see_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (connection, process):
        whole = os.listdir

        def listdir(path: str) -> list[str]:  # as if it were in another namespace
            return [name for name in whole(path) if name != str(process.pid)]

        monkeypatch.setattr(os, "listdir", listdir)
        with pytest.raises(Refused, match="can't be seen"):
            look(connection)


def test_a_private_process_may_not_since_it_may_be_an_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connected() as (connection, process):
        whole = os.listdir

        def listdir(path: str) -> list[str]:  # for root no process is private
            if path == f"/proc/{process.pid}/fd":
                raise PermissionError
            return whole(path)

        monkeypatch.setattr(os, "listdir", listdir)
        with pytest.raises(Refused, match="can't be seen"):
            look(connection)


def test_a_connection_from_another_machine_is_the_token_s_matter() -> None:
    local.check(("192.0.2.1", 40000), ("192.0.2.2", 8765), proxied=False)


def test_this_machine_s_other_addresses_are_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, own = ("192.0.2.1", 40000), ("192.0.2.1", 8765)
    with pytest.raises(Refused, match="can't be seen"):  # nobody has that connection
        local.check(peer, own, proxied=False)
    monkeypatch.setattr(local, "_other_end", lambda *_: (54321, 1))  # the system knows it
    with pytest.raises(Refused, match="only the user"):
        local.check(peer, ("192.0.2.2", 8765), proxied=False)


def test_where_the_system_does_not_tell_nobody_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LINUX", False)
    with pytest.raises(Refused, match="--allow-local"):
        local.check(("127.0.0.1", 1), ("127.0.0.1", 2), proxied=False)
