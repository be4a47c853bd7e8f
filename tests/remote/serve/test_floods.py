"""Clients that send without end, over real connections: what is read of them, and in what steps."""

import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from acp_bridge.core.clients.rights import May
from acp_bridge.core.clients.socket_share import Sharer, SocketShare
from acp_bridge.remote.serve import server, websocket
from tests.remote.serve.certificate import certificate
from tests.remote.serve.site import Site, said, site
from tests.remote.serve.test_websocket import told
from tests.support.waiting import until

pytestmark = pytest.mark.hazard("N1")

#: more than the system keeps for both ends of a connection, and what it keeps at the most.
MUCH, KEPT = 48 << 20, 24 << 20
BIG_PING = Frame(Opcode.PING, b"x" * 125).serialize(mask=True)
FLOODS: dict[str, bytes] = {
    "messages": Frame(Opcode.TEXT, told(1).encode()).serialize(mask=True),
    "pings": BIG_PING,
}


@asynccontextmanager
async def came_in(it: Site, more: dict[str, Any]) -> AsyncIterator[ClientConnection]:
    """A client that reads nothing, once it has come in."""
    async with it.connect(**more) as client:
        client.transport.pause_reading()
        yield client


async def sent_until_stopped(client: ClientConnection, frames: bytes) -> int:
    """How many bytes a client can send that never reads, until nothing more is taken of it."""
    blob, transport, sent = frames * ((1 << 16) // len(frames)), client.transport, 0
    while sent < MUCH:
        transport.write(blob)
        sent += len(blob)
        with anyio.move_on_after(0.3) as waited:
            while transport.get_write_buffer_size() > 1 << 16:
                await anyio.lowlevel.checkpoint()
                await anyio.sleep(0.001)
        if waited.cancelled_caught:
            break
    return sent


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("kind", FLOODS)
async def test_of_a_client_that_sends_and_never_reads_nothing_more_is_read(
    home: Path, tmp_path: Path, kind: str, tls: bool
) -> None:
    if tls and not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    files = certificate(tmp_path, "IP:127.0.0.1") if tls else None
    trusting: dict[str, Any] = {"ssl": ssl.create_default_context(cafile=files[0])} if files else {}
    async with site(home, files=files) as it, came_in(it, trusting) as client:
        assert await sent_until_stopped(client, FLOODS[kind]) < KEPT
        inside = it.server._connections[0].socket
        assert inside is not None
        assert inside.pending < 1 << 20
        async with it.connect(**trusting) as other:
            assert await said(other, "{}") == "{}"
        client.transport.abort()


async def check_steps(home: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each turn of a client that has sent `data` is a step of some frames."""
    steps, frames = list[int](), 0
    whole = websocket.WebSocket._take

    def take(self: websocket.WebSocket, frame: Frame) -> None:
        nonlocal frames
        frames += 1
        whole(self, frame)

    class Share(SocketShare):
        async def step(self, work: Callable[[], None], sharer: Sharer | None = None) -> None:
            def counted() -> None:
                before = frames
                work()
                steps.append(frames - before)

            await super().step(counted, sharer)

    monkeypatch.setattr(websocket.WebSocket, "_take", take)
    async with site(home) as it:
        it.server._share = Share()
        async with it.connect() as client:
            client.transport.write(data)
            await client.send("{}")
            with anyio.fail_after(10):
                while await client.recv() != "{}":
                    pass
    assert sum(steps) >= 3000
    assert max(steps) <= 160


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.PING, b""),
        Frame(Opcode.BINARY, b"1"),
        Frame(Opcode.PONG, b""),
    ],
    ids=["pings", "binary frames", "pongs"],
)
async def test_small_frames_are_parsed_in_short_steps_and_each_waits_for_its_turn(
    home: Path, frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_steps(home, frame.serialize(mask=True) * 3000, monkeypatch)


@pytest.mark.parametrize("data", [b"", b"1"], ids=["empty", "one byte"])
async def test_fragments_are_parsed_in_short_steps(
    home: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [Frame(Opcode.TEXT, b"x", fin=False), *[Frame(Opcode.CONT, data, fin=False)] * 3000]
    frames.append(Frame(Opcode.CONT, b"y"))
    whole = b"".join(frame.serialize(mask=True) for frame in frames)
    await check_steps(home, whole, monkeypatch)


async def test_half_messages_of_all_logins_are_bounded_together(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login that has sent most of them loses its longest."""
    monkeypatch.setattr(server, "MOST_UNFINISHED_OF_ALL", 100_000)

    def begin(client: ClientConnection, size: int) -> None:
        client.transport.write(Frame(Opcode.TEXT, b"x" * size, fin=False).serialize(mask=True))

    async with site(home) as it:
        many = [it.token(f"t{number}", May.LOOK) for number in range(2)]
        async with (
            it.connect(many[0]) as one,
            it.connect(many[0]) as two,
            it.connect(many[1]) as other,
        ):
            for client in (one, two, other):
                await said(client, "{}")
            begin(other, 45_000)
            begin(one, 20_000)
            begin(two, 40_000)
            with pytest.raises(ConnectionClosed):
                await two.recv()
            assert two.close_code == 1009
            for client, size in ((one, 20_000), (other, 45_000)):
                client.transport.write(Frame(Opcode.CONT, b"y").serialize(mask=True))
                assert len(str(await client.recv())) == size + 1


async def test_a_message_of_16_mb_is_taken_and_a_longer_one_ends_the_connection(home: Path) -> None:
    async with site(home) as it, it.connect(max_size=None) as client:
        assert len(await said(client, "x" * ((16 << 20) - 1000))) == (16 << 20) - 1000
        with pytest.raises(ConnectionClosed):
            await said(client, "x" * (17 << 20))
        assert client.close_code == 1009


@pytest.mark.hazard("N1.3")
async def test_there_are_64_connections_whatever_their_tokens(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST", 4)
    async with site(home) as it:
        tokens = [it.token(f"t{number}") for number in range(5)]
        clients = [await it.connect(token) for token in tokens[:4]]
        assert await it.refused(tokens[4]) == 429
        for each in clients:
            await each.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has left")
async def test_what_a_client_that_has_left_had_sent_ahead_is_not_parsed_if_it_is_no_message(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that such a client has sent counts all the same."""
    frames, left = 0, anyio.Event()
    whole = websocket.WebSocket._take

    def take(self: websocket.WebSocket, frame: Frame) -> None:
        nonlocal frames
        frames += frame.opcode is Opcode.CONT
        whole(self, frame)

    class Share(SocketShare):
        async def step(self, work: Callable[[], None], sharer: Sharer | None = None) -> None:
            await left.wait()
            await super().step(work, sharer)

    monkeypatch.setattr(websocket.WebSocket, "_take", take)
    begins = Frame(Opcode.TEXT, b"{", fin=False).serialize(mask=True)
    empty = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True)
    async with site(home) as it:
        it.server._share = Share()
        for data in (begins + empty * 10_000, Frame(Opcode.TEXT, b"{}").serialize(mask=True)):
            left = anyio.Event()
            async with it.connect() as client:
                await until(lambda: it.server.count("laptop") == 1)
                client.transport.write(data)
                await until(lambda: not client.transport.get_write_buffer_size())
                client.transport.abort()
            left.set()
            with anyio.fail_after(5):
                await until(lambda: it.server.count("laptop") == 0)
        assert 500 < frames < 5_000
        assert it.heard == [b"{}\n"]
