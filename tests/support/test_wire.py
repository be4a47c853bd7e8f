"""The wire of tests: what it does to a connection, and what it never does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from acp_bridge.sharing.bridge_client.tasks import beside
from tests.support.wire import Wire, wire

LONG = bytes(range(256)) * 400
GONE = (anyio.EndOfStream, anyio.BrokenResourceError)


@asynccontextmanager
async def laid() -> AsyncIterator[tuple[Wire, SocketStream]]:
    """A wire to a server that says `LONG` back to whatever it is told, and a connection on it."""

    async def take(stream: ByteStream) -> None:
        async with stream:
            with suppress(*GONE):
                while await stream.receive():
                    await stream.send(LONG)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        dial = partial(anyio.connect_tcp, "127.0.0.1", listener.extra(SocketAttribute.local_port))
        async with beside() as tasks, wire(dial) as it:
            tasks.start_soon(listener.serve, take)
            async with await anyio.connect_tcp("127.0.0.1", it.port) as client:
                with anyio.fail_after(5):
                    yield it, client


async def read(client: SocketStream, count: int) -> bytes:
    found = b""
    with suppress(*GONE):
        while len(found) < count:
            found += await client.receive()
    return found


async def test_what_comes_in_pieces_is_the_whole_in_its_order() -> None:
    async with laid() as (it, client):
        it.pieces = Random(1)
        await client.send(b"x")
        assert await read(client, len(LONG)) == LONG


async def test_a_wire_that_breaks_after_some_bytes_carries_these_and_no_more() -> None:
    async with laid() as (it, client):
        it.breaks_after = 1000
        await client.send(b"x")
        assert LONG[:1000].startswith(await read(client, len(LONG)))
        assert it.cuts == 1
        it.down = True
        async with await anyio.connect_tcp("127.0.0.1", it.port) as another:
            with pytest.raises(GONE):
                await another.receive()


async def test_what_is_held_up_comes_when_it_flows_again() -> None:
    async with laid() as (it, client):
        it.hold()
        await client.send(b"x")
        with anyio.move_on_after(0) as waited:
            await client.receive()
        assert waited.cancelled_caught
        it.mend()
        assert await read(client, len(LONG)) == LONG
