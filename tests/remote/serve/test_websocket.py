"""A WebSocket against the library's own client and server: lines in, lines out, and each end."""

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Request

from acp_bridge.core.wire.jsonrpc import Decoder
from acp_bridge.core.wire.socket_stream import SocketBytes
from acp_bridge.remote.serve import websocket
from acp_bridge.remote.serve.websocket import NotOpened, WebSocket, dial, opened, server_protocol
from acp_bridge.sharing.bridge_client.tasks import beside
from tests.support.waiting import until

LIMIT = 4096
REQUEST = (
    b"GET /acp HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "DEFAULT_LIMIT", LIMIT)


async def accepted(stream: ByteStream, **times: float) -> Any:
    """Answer the request on a stream; returns what gives the WebSocket."""
    protocol = server_protocol()
    while not (events := protocol.events_received()):
        protocol.receive_data(await stream.receive())
    (request,) = events
    assert isinstance(request, Request)
    protocol.send_response(protocol.accept(request))
    await stream.send(b"".join(protocol.data_to_send()))
    return opened(stream, protocol, **times)


@asynccontextmanager
async def our_server(
    use: Callable[[WebSocket], Any], **times: float
) -> AsyncGenerator[tuple[str, anyio.Event], None]:
    """Serve each connection with `use`; gives the URL, and what is set when one has ended."""
    ended = anyio.Event()

    async def take(stream: SocketStream) -> None:
        async with await accepted(stream, **times) as ours:
            await use(ours)
        ended.set()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, beside() as tasks:
        tasks.start_soon(listener.serve, take)
        port = listener.extra(SocketAttribute.local_port)
        with anyio.fail_after(5):
            yield f"ws://127.0.0.1:{port}/acp", ended


@asynccontextmanager
async def their_server(
    handler: Callable[[ServerConnection], Any], **options: Any
) -> AsyncGenerator[str, None]:
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with anyio.fail_after(5):
            yield f"ws://127.0.0.1:{port}/acp"


@asynccontextmanager
async def dialled(url: str, **times: float) -> AsyncIterator[WebSocket]:
    port = int(url.rpartition(":")[2].partition("/")[0])
    stream = await anyio.connect_tcp("127.0.0.1", port)
    try:
        protocol = await dial(stream, url, "acpb_secret")
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise
    async with opened(stream, protocol, **times) as ours:
        yield ours


async def echo(ours: WebSocket) -> None:
    """Send each line back until the end."""
    while data := await ours.read():
        ours.write(data)
        await ours.drain_below(1)


async def lines(ours: WebSocket, count: int) -> list[Any]:
    decoder, found = Decoder(), list[Any]()
    while len(found) < count:
        data = await ours.read()
        assert data.endswith(b"\n")
        found += decoder.feed(data)
    return found


def told(number: int) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": "m", "params": {"n": number}})


async def test_the_library_s_client_gets_back_what_it_sends_in_order() -> None:
    async with our_server(echo) as (url, ended), connect(url) as client:
        for number in range(100):
            await client.send(told(number))
        assert [await client.recv() for _ in range(100)] == [told(n) for n in range(100)]
        await client.close()
        await ended.wait()


async def test_the_library_s_server_gets_the_token_and_whole_lines_as_text_frames() -> None:
    seen = list[Any]()

    async def handler(server: ServerConnection) -> None:
        assert server.request is not None
        seen.append((server.request.path, server.request.headers["Authorization"]))
        async for message in server:
            await server.send(message)

    async with their_server(handler) as url, dialled(url) as ours:
        ours.write(f"{told(1)}\n{told(2)}\n".encode())
        assert [each["params"]["n"] for each in await lines(ours, 2)] == [1, 2]
    assert seen == [("/acp", "Bearer acpb_secret")]


async def test_a_message_in_fragments_is_one_line_and_line_breaks_in_it_are_spaces() -> None:
    async with our_server(echo) as (url, _), connect(url) as client:
        await client.send(['{"jsonrpc":"2.0",\n', '"method":', '\n"m"}'])
        assert await client.recv() == '{"jsonrpc":"2.0", "method": "m"}'


async def test_a_ping_between_two_fragments_is_no_part_of_the_message() -> None:
    async with our_server(echo) as (url, _), connect(url) as client:
        frames = [
            Frame(Opcode.TEXT, b'{"a":', fin=False),
            Frame(Opcode.PING, b"never"),
            Frame(Opcode.CONT, b"1}"),
        ]
        client.transport.write(b"".join(frame.serialize(mask=True) for frame in frames))
        assert await client.recv() == '{"a":1}'


async def test_binary_messages_are_ignored_in_fragments_too() -> None:
    async with our_server(echo) as (url, _), connect(url) as client:
        await client.send(b"\x00\x01")
        await client.send([b'{"a":', b"1}"])
        await client.send(told(3))
        assert await client.recv() == told(3)


@pytest.mark.parametrize("fragments", [1, 2])
async def test_a_message_over_the_limit_ends_the_connection(fragments: int) -> None:
    async with our_server(echo) as (url, ended), connect(url) as client:
        whole = "x" * (LIMIT + 2)
        cut = len(whole) // fragments
        await client.send([whole[:cut], whole[cut:]] if fragments > 1 else whole)
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1009
        await ended.wait()


async def test_a_message_of_just_the_limit_is_taken() -> None:
    async with our_server(echo) as (url, _), connect(url) as client:
        await client.send("x" * LIMIT)
        assert await client.recv() == "x" * LIMIT


async def test_what_a_client_that_stops_reading_does_not_take_is_pending() -> None:
    seen = list[int]()

    async def flood(ours: WebSocket) -> None:
        line = told(1).encode() + b"\n"
        while ours.pending < 1 << 20:
            ours.write(line * 1000)
            await anyio.lowlevel.checkpoint()
            with anyio.move_on_after(0.02):  # until the system takes no more
                await ours.drain_below(1 << 20)
        seen.append(ours.pending)
        assert not await ours.flush(0)
        assert ours.taken > 0
        ours.close()
        assert not await ours.flush(5)

    async with our_server(flood) as (url, ended):
        with socket.socket() as raw:
            port = int(url.rpartition(":")[2].partition("/")[0])
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.setblocking(False)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(BlockingIOError):
                raw.connect(("127.0.0.1", port))
            await anyio.wait_writable(raw)
            raw.send(REQUEST)
            await ended.wait()
    assert seen[0] >= 1 << 20


async def test_a_client_that_answers_no_ping_is_gone_after_the_time_for_it() -> None:
    why = list[Any]()

    async def listen(ours: WebSocket) -> None:
        async with beside() as tasks:
            tasks.start_soon(ours.run)
            assert await ours.read() == b""
        why.append(ours.failure)

    async with our_server(listen, ping=0.01, dead=0.05) as (url, ended):
        port = int(url.rpartition(":")[2].partition("/")[0])
        async with await anyio.connect_tcp("127.0.0.1", port) as raw:
            await raw.send(REQUEST)
            await ended.wait()
    assert why == ["nothing came for 0.05 s"]


async def test_a_client_that_answers_pings_and_says_nothing_else_stays() -> None:
    pings = 0
    enough = anyio.Event()
    server = our_server(echo, ping=0.01, dead=1)
    async with server as (url, _), connect(url, ping_interval=None) as client:
        take = client.protocol.recv_frame

        def count(frame: Frame) -> None:
            nonlocal pings
            take(frame)
            pings += frame.opcode is Opcode.PING
            if pings == 120:  # they take longer than it may be silent
                enough.set()

        client.protocol.recv_frame = count  # type: ignore[method-assign]
        await enough.wait()
        await client.send(told(1))
        assert await client.recv() == told(1)


async def test_pings_of_the_other_end_are_answered() -> None:
    async with our_server(echo) as (url, _), connect(url) as client:
        latency = await (await client.ping())
        assert latency >= 0


async def test_a_hundred_messages_in_one_write_arrive_in_one_read_and_go_out_in_one() -> None:
    reads = list[int]()
    sent = list[int]()

    async def listen(ours: WebSocket) -> None:
        whole = ours._stream.send

        async def send(data: bytes) -> None:
            sent.append(len(data))
            await whole(data)

        ours._stream.send = send  # type: ignore
        data = await ours.read()
        reads.append(data.count(b"\n"))
        for line in data.splitlines(keepends=True):
            ours.write(line)
        await ours.flush(5)
        await ours.read()

    async with our_server(listen) as (url, ended), dialled(url) as ours:
        ours.write(b"".join(f"{told(n)}\n".encode() for n in range(100)))
        assert [each["params"]["n"] for each in await lines(ours, 100)] == list(range(100))
        ours.close()
        await ended.wait()
    assert reads == [100]
    assert len(sent) <= 3  # the messages, and the frame that closes


async def test_a_client_that_closes_is_the_end_of_reading_and_its_code_is_known() -> None:
    seen = list[Any]()

    async def listen(ours: WebSocket) -> None:
        assert (await ours.read()).decode() == f"{told(1)}\n"
        assert await ours.read() == b""
        seen.append((ours.close_code, ours.close_reason, ours.failure))
        ours.write(b"{}\n")  # dropped
        await ours.run()

    async with our_server(listen) as (url, ended), connect(url) as client:
        await client.send(told(1))
        await client.close(4001, "another page")
        await ended.wait()
    assert seen == [(4001, "another page", None)]


async def test_what_was_written_before_close_arrives_and_then_the_code() -> None:
    async def part(ours: WebSocket) -> None:
        ours.write(b"".join(f"{told(n)}\n".encode() for n in range(1000)))
        ours.close(1008, "the token was revoked")
        assert await ours.read() == b""

    async with our_server(part) as (url, _), connect(url) as client:
        assert [await client.recv() for _ in range(1000)] == [told(n) for n in range(1000)]
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert (client.close_code, client.close_reason) == (1008, "the token was revoked")


async def test_a_connection_that_is_cancelled_says_so_to_the_other_end() -> None:
    heard = list[Any]()

    async def listen(server: ServerConnection) -> None:
        try:
            while True:
                heard.append(await server.recv())
        except ConnectionClosed:
            heard.append(server.close_code)

    async with their_server(listen) as url:
        with anyio.CancelScope() as scope:
            async with dialled(url) as ours:
                ours.write(b"{}\n")
                scope.cancel()
                await ours.read()
    assert heard == ["{}", 1000]


async def test_a_line_that_is_cut_is_the_end_and_the_reason_is_kept() -> None:
    seen = list[Any]()

    async def listen(ours: WebSocket) -> None:
        assert await ours.read() == b""
        seen.append((ours.close_code, ours.failure))

    async with our_server(listen) as (url, ended), connect(url) as client:
        client.transport.abort()
        await ended.wait()
    ((code, failure),) = seen
    assert code is None
    assert failure.startswith("the connection was cut")


async def test_a_server_that_refuses_is_told_with_its_status_and_its_sentence() -> None:
    async def never(server: ServerConnection) -> None:
        raise AssertionError

    def refuse(server: ServerConnection, request: Request) -> Any:
        return server.respond(401, "no such token\n")

    async with their_server(never, process_request=refuse) as url:
        with pytest.raises(NotOpened, match=r"^no such token$") as refused:
            async with dialled(url):
                pass
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"hello\r\n"]
)
async def test_what_speaks_no_websocket_is_refused(answer: bytes) -> None:
    async def take(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(answer)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, beside() as tasks:
        tasks.start_soon(listener.serve, take)
        port = listener.extra(SocketAttribute.local_port)
        with anyio.fail_after(5), pytest.raises(NotOpened):
            async with dialled(f"ws://127.0.0.1:{port}/acp"):
                pass


async def test_frames_that_come_with_the_handshake_are_not_lost() -> None:
    async def take(stream: SocketStream) -> None:
        protocol = server_protocol()
        protocol.receive_data(await stream.receive())
        (request,) = protocol.events_received()
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        protocol.send_text(told(1).encode())
        async with stream:
            await stream.send(b"".join(protocol.data_to_send()))
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, beside() as tasks:
        tasks.start_soon(listener.serve, take)
        port = listener.extra(SocketAttribute.local_port)
        with anyio.fail_after(5):
            async with dialled(f"ws://127.0.0.1:{port}/acp") as ours:
                assert (await lines(ours, 1))[0]["params"] == {"n": 1}


async def test_a_connection_that_has_ended_keeps_nothing_of_half_a_message() -> None:
    here, there = socket.socketpair()
    half = Frame(Opcode.TEXT, b" " * LIMIT, fin=False).serialize(mask=True)
    there.sendall(REQUEST)
    with there, anyio.fail_after(5):
        async with await accepted(SocketBytes(here)) as ours:
            there.sendall(half)
            there.shutdown(socket.SHUT_WR)
            assert await ours.read() == b""
            assert ours.unfinished == LIMIT
        assert not ours.unfinished


LONG = b"x" * (4 << 20) + b"\n"


async def test_a_stop_is_read_at_once_while_much_waits_for_a_client_that_reads_slowly() -> None:
    heard = list[bytes]()

    async def streaming(ours: WebSocket) -> None:
        ours.write(LONG)
        heard.append(await ours.read())
        assert ours.pending >= 1 << 20
        ours.close()

    async with our_server(streaming) as (url, ended), connect(url, proxy=None) as client:
        client.transport.pause_reading()
        await client.send("stop")
        await until(lambda: heard)
        client.transport.resume_reading()
        await ended.wait()
    assert heard == [b"stop\n"]


async def test_two_ends_that_both_send_something_long_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "DEFAULT_LIMIT", 1 << 24)
    got = dict[str, int]()

    async def exchange(ours: WebSocket, name: str) -> None:
        for _ in range(3):
            ours.write(LONG)
        size = 0
        while size < 3 * len(LONG):
            size += len(await ours.read())
        got[name] = size
        await ours.drain_below(1)

    async with our_server(lambda ours: exchange(ours, "server")) as (url, ended):
        async with dialled(url) as client:
            await exchange(client, "client")
        await ended.wait()
    assert got == {"server": 3 * len(LONG), "client": 3 * len(LONG)}
