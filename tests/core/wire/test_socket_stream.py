"""A socket as a stream of bytes: it reads what somebody waits for, and closes as sockets do."""

import socket
from collections.abc import Iterator

import anyio
import pytest

from acp_bridge.core.wire import socket_stream
from acp_bridge.core.wire.socket_stream import SocketBytes, accept, connect

#: more than the system keeps for both ends of a connection.
MUCH = 64 << 20


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


async def both(listener: socket.socket) -> tuple[SocketBytes, SocketBytes]:
    """The two ends of a connection: who has connected, and who has accepted."""
    mine = await connect("127.0.0.1", listener.getsockname()[1])
    return mine, await accept(listener)


async def taken_until_full(stream: SocketBytes) -> int:
    """How many bytes the system takes of one that sends without end, until it takes no more."""
    raw = stream._raw_socket
    sent = 0
    while sent < MUCH:
        try:
            sent += raw.send(bytes(1 << 16))
        except BlockingIOError:
            with anyio.move_on_after(0.2) as waited:
                await anyio.wait_writable(raw)
            if waited.cancelled_caught:
                break
    return sent


@pytest.mark.parametrize("reads", [0, 1, 3])
async def test_nothing_is_read_that_nobody_has_asked_for(
    listener: socket.socket, reads: int
) -> None:
    with anyio.fail_after(20):
        mine, theirs = await both(listener)
        async with mine, theirs:
            await mine.send(b"x" * 100_000)
            for _ in range(reads):
                assert len(await theirs.receive(1000)) == 1000
            assert await taken_until_full(mine) < MUCH


async def test_a_receive_that_is_cancelled_has_taken_nothing(listener: socket.socket) -> None:
    with anyio.fail_after(5):
        mine, theirs = await both(listener)
        async with mine, theirs:
            for number in range(50):
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(mine.send, b"%02d" % number)
                        scope.cancel()
                        await theirs.receive()
            await mine.send(b"end")
            found = b""
            while not found.endswith(b"end"):
                found += await theirs.receive()
            whole = [int(found[at : at + 2]) for at in range(0, len(found) - 3, 2)]
            assert whole == sorted(set(whole))


async def test_what_two_tasks_send_is_not_mixed(listener: socket.socket) -> None:
    size = 4 << 20
    with anyio.fail_after(5):
        mine, theirs = await both(listener)
        async with mine, theirs, anyio.create_task_group() as tasks:
            tasks.start_soon(mine.send, b"a" * size)
            tasks.start_soon(mine.send, b"b" * size)
            found = bytearray()
            while len(found) < 2 * size:
                found += await theirs.receive()
            assert found == b"a" * size + b"b" * size


async def test_a_send_that_waits_for_room_can_be_cancelled_and_the_next_goes_on(
    listener: socket.socket,
) -> None:
    with anyio.fail_after(5):
        mine, theirs = await both(listener)
        async with mine, theirs:
            with anyio.move_on_after(0.05) as waited:
                await mine.send(bytes(MUCH))
            assert waited.cancelled_caught
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(mine.send, b"end")
                while not (await theirs.receive()).endswith(b"end"):
                    pass


async def test_the_end_and_a_cut_and_an_own_close_are_told_apart(listener: socket.socket) -> None:
    with anyio.fail_after(5):
        mine, theirs = await both(listener)
        await mine.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await theirs.receive()
        await theirs.send(b"still")
        assert await mine.receive() == b"still"
        await theirs.send(b"unread")
        await anyio.wait_readable(mine._raw_socket)
        await mine.aclose()  # with bytes unread: the other end is reset
        with pytest.raises(anyio.BrokenResourceError):
            await theirs.send(bytes(MUCH))
        async with anyio.create_task_group() as tasks:
            other, waiting = await both(listener)

            async def wait() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await waiting.receive()

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await waiting.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await waiting.send(b"x")
        await other.aclose()
        await theirs.aclose()


async def test_small_writes_go_out_at_once(listener: socket.socket) -> None:
    with anyio.fail_after(5):
        mine, theirs = await both(listener)
        async with mine, theirs:
            for each in (mine, theirs):
                delays = each._raw_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert delays, "TCP_NODELAY"


async def test_the_next_address_of_a_host_is_tried_when_one_refuses(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listener.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refusing = closed.getsockname()[1]
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", each))
        for each in (refusing, port)
    ]

    async def getaddrinfo(*_: object, **__: object) -> list[object]:
        return list(found)

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)
    with anyio.fail_after(5):
        async with await connect("host", 1) as mine, await accept(listener):
            assert mine._raw_socket.getpeername() == ("127.0.0.1", port)
        del found[1]
        with pytest.raises(ConnectionRefusedError):
            await connect("host", 1)


async def test_one_address_that_does_not_answer_does_not_hold_up_the_next(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, closed = socket_stream._connected, list[str]()

    async def connected(family: int, address: str) -> socket.socket:
        if address != "dead":
            return await whole(family, address)
        try:
            await anyio.sleep_forever()
        finally:
            closed.append(address)
        raise AssertionError

    async def getaddrinfo(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, 1, 0, "", "dead"), (2, 1, 0, "", listener.getsockname())]

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket_stream, "_connected", connected)
    monkeypatch.setattr(socket_stream, "_NEXT", 0.001)
    with anyio.fail_after(5):
        async with await connect("host", 1):
            assert closed == ["dead"]
