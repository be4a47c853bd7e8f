"""Whom a wrong token counts against: on this machine the process that has sent it, and no other."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from acp_bridge.remote.page.client import Login, Visit, come_in
from acp_bridge.remote.serve import door, local
from acp_bridge.remote.serve.door import FAILURES
from acp_bridge.remote.serve.server import Proof
from acp_bridge.remote.serve.websocket import WebSocket
from tests.remote.serve.site import ANYBODY, Site, said, site

pytestmark = [pytest.mark.process, pytest.mark.hazard("N1")]

LOCAL = Proof(local=True, proxied=False)
PROXIED = Proof(local=True, proxied=True)

#: Asks with each token that it reads, from an address of this machine's, and prints the statuses.
GUESSER = r"""
import os, socket, sys
port, forks, more = int(sys.argv[1]), sys.argv[2] == "forks", sys.argv[3:]

def ask(token):
    with socket.create_connection(("127.0.0.1", port), source_address=SOURCE) as talk:
        lines = ["GET /acp HTTP/1.1", f"Host: 127.0.0.1:{port}", *more, "Upgrade: websocket",
                 "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", f"Authorization: Bearer {token}"]
        talk.sendall("\r\n".join([*lines, "", ""]).encode())
        os.write(1, talk.recv(4096)[9:12] + b"\n")

SOURCE = ("127.0.0.1", 0)
for line in sys.stdin:
    token, _, source = line.strip().partition(" ")
    SOURCE = (source or "127.0.0.1", 0)
    if not forks:
        ask(token)
    elif (pid := os.fork()):
        os.waitpid(pid, 0)
    else:
        ask(token)
        os._exit(0)
"""


class Guesser:
    """A process that asks with tokens, one after the other."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = process.pid

    async def asks(self, token: str, source: str = "") -> int:
        await self._process.stdin.send(f"{token} {source}\n".encode())
        return int((await self._process.stdout.receive()).strip())


@asynccontextmanager
async def guesser(it: Site, *more: str, forks: bool = False) -> AsyncIterator[Guesser]:
    command = [sys.executable, "-c", GUESSER, str(it.port), "forks" if forks else "one", *more]
    async with await anyio.open_process(command, stderr=None) as process:
        try:
            yield Guesser(process)
        finally:
            process.kill()


async def locked_out(one: Guesser, token: str = "acpb_wrong") -> None:
    """Have a process send wrong tokens until it is told that they are too many."""
    assert [await one.asks(token) for _ in range(FAILURES)] == [401] * FAILURES
    assert await one.asks(token) == 429


@pytest.mark.parametrize("proof", [ANYBODY, LOCAL], ids=["--allow-local", "looked at"])
async def test_a_process_that_has_sent_wrong_tokens_locks_out_itself_alone(
    home: Path, proof: Proof
) -> None:
    async with site(home, proof) as it, guesser(it) as one, guesser(it) as other:
        await locked_out(one)
        assert await one.asks(it.secret) == 429
        assert await one.asks(it.secret, "127.0.0.9") == 429  # nor from another address
        assert await other.asks(it.secret) == 101
        assert await other.asks("acpb_wrong") == 401
        async with it.connect() as client:
            assert await said(client, "{}") == "{}"


@pytest.mark.parametrize("proof", [ANYBODY, LOCAL], ids=["--allow-local", "looked at"])
async def test_a_new_process_for_each_wrong_token_locks_out_nobody(
    home: Path, proof: Proof
) -> None:
    async with site(home, proof) as it, guesser(it, forks=True) as many:
        for _ in range(3 * FAILURES):
            assert await many.asks("acpb_wrong") in (401, 429)
        async with it.connect() as client:
            assert await said(client, "{}") == "{}"


async def test_a_process_that_hides_locks_out_no_other_that_is_not_seen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent can make itself private; the user's tunnel of ssh is so, too."""
    monkeypatch.setattr(local, "_has", lambda *_: False)
    async with site(home, ANYBODY) as it, guesser(it) as one, guesser(it) as other:
        await locked_out(one)
        assert await other.asks("acpb_wrong") == 429
        assert await other.asks(it.secret) == 101


async def test_without_time_to_look_a_wrong_token_is_refused_and_a_right_one_is_not(
    home: Path,
) -> None:
    async with site(home, LOCAL) as it, guesser(it) as one:
        it.server._door.looks.took(100)
        for _ in range(FAILURES + 1):
            assert await one.asks("acpb_wrong") == 429
        assert await one.asks(it.secret) == 101
        assert not it.server._door.has_failures_here


async def test_an_agent_that_forges_the_header_of_the_proxy_locks_out_no_address(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = "X-Forwarded-For: 192.0.2.77"
    monkeypatch.setattr(door, "_MOST_SAVED", 1000.0)  # on a busy machine each look takes longer
    async with site(home, PROXIED) as it, guesser(it, phone) as agent, guesser(it, phone) as proxy:
        monkeypatch.setattr(local, "is_from_agent", lambda pid: pid == agent.pid)
        await locked_out(agent)
        assert await proxy.asks(it.secret) == 101
        await locked_out(proxy)  # what the proxy itself tells counts against that address
        assert await proxy.asks(it.secret) == 429


async def test_who_forges_the_header_and_is_gone_before_the_look_locks_out_no_address(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = "X-Forwarded-For: 192.0.2.77"
    async with site(home, PROXIED) as it, guesser(it, phone) as one, guesser(it, phone) as proxy:
        with monkeypatch.context() as patched:
            patched.setattr(local, "_other_end", lambda *_: (0, 0))  # as the system says it
            await locked_out(one)
        assert await proxy.asks(it.secret) == 101


@pytest.mark.parametrize("told", [(), ("X-Forwarded-For: 127.0.0.1",)], ids=["none", "its own"])
async def test_who_comes_through_the_proxy_from_this_machine_locks_out_nobody(
    home: Path, told: tuple[str, ...]
) -> None:
    async with site(home, PROXIED) as it, guesser(it, *told) as proxy:
        await locked_out(proxy)
        assert await proxy.asks(it.secret) == 101


def test_an_address_of_this_machine_is_known_and_another_one_is_not() -> None:
    for own in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert local.is_own(own)
    for other in ("192.0.2.1", "2001:db8::1", "", "x", "unknown"):
        assert not local.is_own(other)


class NoLogins:
    """No login and no code is right."""

    async def enter(self, secret: str) -> Login | None:
        return None

    async def exchange(self, code: str) -> str | None:
        return None

    async def leave(self, secret: str) -> None:
        raise AssertionError


async def no_login(socket: WebSocket) -> Visit | None:
    return await come_in(socket, socket, NoLogins())


def page(it: Site) -> Any:
    """A page's WebSocket, before it has said anything."""
    own = Origin(f"http://127.0.0.1:{it.port}")
    return connect(f"ws://127.0.0.1:{it.port}/page", origin=own, proxy=None)


async def logged_out(it: Site) -> bool:
    """Whether a page is told that its login does not count."""
    async with page(it) as opened:
        await opened.send(json.dumps({"login": "acpb_wrong"}))
        answer = json.loads(await opened.recv())
        await opened.wait_closed()
        return answer["login"] is None


@pytest.mark.parametrize("proof", [ANYBODY, LOCAL], ids=["--allow-local", "looked at"])
async def test_wrong_logins_of_a_page_lock_out_the_process_that_sends_them_alone(
    home: Path, proof: Proof
) -> None:
    async with site(home, proof) as it, guesser(it) as other:
        it.server._come_in = no_login
        for _ in range(FAILURES):
            assert await logged_out(it)
        with pytest.raises(InvalidStatus) as refused:
            await logged_out(it)
        assert refused.value.response.status_code == 429
        assert await other.asks(it.secret) == 101


async def test_a_page_that_leaves_without_a_word_has_sent_no_wrong_login(home: Path) -> None:
    async with site(home) as it:
        it.server._come_in = no_login
        for _ in range(FAILURES + 1):
            async with page(it):
                pass
        assert await logged_out(it)
