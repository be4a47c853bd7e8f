"""A WebSocket as the streams of a connection: each text message is read as one line, and back.

It uses the sans-IO protocol of the library `websockets` over a stream of bytes, TCP or TLS.

Invariants
- A line that was given to `write` goes out whole, in order, or the connection ends.
- Waiting lines are sent together, in writes of up to `_PIECE` bytes.
- Nothing is read while `_FLOOD` bytes or more wait for the other end, answers to pings included.
- What has come is parsed in short steps, and each waits for its turn among all clients.
- A connection ends when nothing comes from the other end for `DEAD` seconds, though each end asks
  for a sign of life every `PING` seconds; also when a message is longer than a line may be.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from acp_bridge.core.wire.jsonrpc import DEFAULT_LIMIT
from acp_bridge.core.wire.socket_stream import CHUNK, has_left
from acp_bridge.core.wire.streams import Allowance
from acp_bridge.sharing.bridge_client.tasks import beside

#: the path of the WebSocket for ACP clients.
PATH: Final = "/acp"
#: seconds between two pings.
PING: Final = 15.0
#: seconds without a byte after which the other end counts as gone.
DEAD: Final = 40.0
#: seconds at the end for the other end to take the last frames.
_GOODBYE: Final = 0.5
#: the most bytes of a message that a server takes.
LONGEST: Final = 1 << 24
#: a step of parsing ends after so many frames; the parser is given so many bytes at once. Frames of
#: a few bytes take most: a step takes about a millisecond.
_FRAMES: Final = 32
_BITE: Final = 1 << 8
#: so many frames in `CHUNK` bytes that end no message are no client's last words: they are not
#: parsed to their end if nobody is there any more.
_BARREN: Final = 500
#: bytes that are written at once. Over a slow line `taken` is to grow several times a second.
_PIECE: Final = 1 << 15
#: bytes that may wait for the other end while it is read as ever.
_FLOOD: Final = 1 << 16
#: The library would write headers, and so tokens, into a log that is set to debug.
_SILENT: Final = logging.Logger("websocket", logging.CRITICAL + 1)
#: What a stream raises when the other end is gone.
_GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ssl.SSLError)


#: Waits for a connection's turn, and calls the function, which takes one short step.
Step: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


async def at_once(work: Callable[[], None]) -> None:
    """Take a step for which no turn is needed: there is no other connection."""
    await anyio.lowlevel.checkpoint()
    work()


class NotOpened(Exception):
    """The other end did not open a WebSocket; `status`: the HTTP status of its answer, if any."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class WebSocket:
    """An open WebSocket, `Incoming` and `Outgoing` in one; `opened` makes and runs it."""

    def __init__(self, stream: ByteStream, protocol: Protocol, ping: float, dead: float) -> None:
        self._stream = stream
        self._protocol = protocol
        self._ping, self._dead = ping, dead
        #: what has come and was not parsed yet.
        self._unparsed = memoryview(b"")
        #: frames in the chunk that is parsed, since its last whole message.
        self._barren = 0
        #: the lines that were not read yet, and the text of an unfinished message, if there is one.
        self._lines = bytearray()
        self._partial: bytearray | None = None
        self._spoke = False
        self._buffer = bytearray()
        #: bytes that the stream was given and has not taken.
        self._on_the_way = 0
        self._wake, self._progress, self._ended = anyio.Event(), anyio.Event(), anyio.Event()
        self._reading: anyio.CancelScope | None = None
        #: shields `pump` from cancellation, so that the last frames are still sent, until `stop`.
        self._pumping = anyio.CancelScope(shield=True)
        self._alive = anyio.current_time()
        #: whole messages count: two ends that both send a long one must not wait for each other.
        self._allowance = Allowance(self, _FLOOD)
        self.taken = 0
        #: takes a step of parsing.
        self.step: Step = at_once
        #: called whenever bytes were parsed, if it is not None.
        self.on_bytes: Callable[[], None] | None = None
        #: why the connection has ended, for a log; None if it was closed properly.
        self.failure: str | None = None
        self._receive(b"")  # what came together with the handshake

    @property
    def pending(self) -> int:
        """The number of bytes that the other end has not taken yet."""
        return len(self._buffer) + self._on_the_way

    @property
    def unfinished(self) -> int:
        """The number of bytes of a message that has come in part."""
        return len(self._partial or b"") + len(self._protocol.reader.buffer)

    @property
    def has_said(self) -> bool:
        """True if a message has come, whole or in part."""
        return self._spoke

    @property
    def close_code(self) -> int | None:
        """The code with which the other end has closed the connection; None if it has not."""
        return self._protocol.close_rcvd.code if self._protocol.close_rcvd else None

    @property
    def close_reason(self) -> str:
        """The reason that the other end gave when it closed the connection; "" if none."""
        return self._protocol.close_rcvd.reason if self._protocol.close_rcvd else ""

    # --- incoming

    async def read(self) -> bytes:
        """Wait for lines, and return all whole ones; b"" at the end. Cancelling loses nothing.

        Only one task may read.
        """
        await anyio.lowlevel.checkpoint()
        while not self._lines or (self._unparsed and self.pending < _FLOOD):
            if self._ended.is_set():
                break
            await self._allowance.room()
            if not self._unparsed:
                await self._read_some()
            await self.step(self._parse_some)
        lines = bytes(self._lines)
        self._lines.clear()
        return lines

    async def _read_some(self) -> None:
        data: bytes | None = None
        self._alive = anyio.current_time()
        try:
            with anyio.CancelScope() as self._reading:
                data = await self._stream.receive(CHUNK)
        except anyio.EndOfStream:
            self._protocol.receive_eof()
            self._end("the connection was cut" if self.close_code is None else None)
        except _GONE as exc:
            self._end(f"the connection was cut: {exc.__cause__ or exc}")
        finally:
            self._reading = None
        if data is not None:
            self._alive = anyio.current_time()
            self._unparsed, self._barren = memoryview(data), 0

    def _parse_some(self) -> None:
        """Parse what has come, up to `_FRAMES` frames of it and those in the same bite."""
        frames = 0
        while self._unparsed and frames < _FRAMES and not self._ended.is_set():
            bite, self._unparsed = self._unparsed[:_BITE], self._unparsed[_BITE:]
            frames += self._receive(bytes(bite))
        if not self._unparsed and self._barren > _BARREN and self._has_left():
            self._end("the connection was cut")
        if self._ended.is_set():
            self._unparsed = memoryview(b"")

    def _has_left(self) -> bool:
        raw = self._stream.extra(SocketAttribute.raw_socket, None)
        return raw is not None and has_left(raw)

    def _receive(self, data: bytes) -> int:
        """Parse bytes, and return how many frames have ended in them."""
        self._protocol.receive_data(data)
        events = self._protocol.events_received()
        self._barren += len(events)
        for event in events:
            if isinstance(event, Frame):
                self._take(event)
        self._collect()
        if self._protocol.state is not State.OPEN:
            cause = self._protocol.parser_exc
            self._end(str(cause) if cause else None)
        elif self.on_bytes:
            self.on_bytes()
        return len(events)

    def _take(self, frame: Frame) -> None:
        self._allowance.count(frame.opcode is Opcode.PING)
        if frame.opcode is Opcode.TEXT:
            self._spoke = True
            self._partial = bytearray()
        elif frame.opcode is not Opcode.CONT:
            return
        if self._partial is None:  # a binary message goes on
            return
        self._partial += frame.data
        if frame.fin:
            self._lines += self._partial.replace(b"\n", b" ") + b"\n"
            self._partial, self._barren = None, 0
            # A client asked for what it is sent.
            self._allowance.count(self._protocol.side is Side.SERVER)

    # --- outgoing

    def write(self, data: bytes) -> None:
        """Send whole lines now or as soon as there is room; dropped if the other end is gone."""
        if self._ended.is_set():
            return
        for line in data.split(b"\n"):
            if line:
                self._protocol.send_text(line)
        self._collect()

    def _collect(self) -> None:
        """Move the bytes that the protocol wants to send into the buffer, and wake `pump`."""
        for data in self._protocol.data_to_send():
            self._buffer += data
        self._wake.set()

    async def run(self) -> None:
        """Wait until the connection has ended; the writing is done by `pump`."""
        await self._ended.wait()

    async def drain_below(self, limit: int) -> None:
        """Wait until fewer than `limit` bytes are pending, or the connection has ended."""
        while self.pending >= limit and not self._ended.is_set():
            await self._progress.wait()

    async def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until all is written; returns whether it is."""
        with anyio.move_on_after(seconds):
            await self.drain_below(1)
        return not self.pending and not self._ended.is_set()

    # --- its end

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Close the connection: a waiting `read` returns b"", and `opened` sends pending bytes."""
        if self._protocol.state is State.OPEN and self.failure is None:
            self._protocol.send_close(code, reason)
            self._collect()
        self._end(None)

    def _end(self, failure: str | None) -> None:
        if self._ended.is_set():
            return
        self.failure = failure
        self._ended.set()
        self._report_progress()
        if self._reading:
            self._reading.cancel()

    def _report_progress(self) -> None:
        self._progress.set()
        self._progress = anyio.Event()

    # --- for `opened`

    @property
    def cut(self) -> bool:
        """True if the other end is gone without a close frame."""
        return self.failure is not None and self._protocol.parser_exc is None

    def stop(self) -> None:
        """End `pump`: nothing more is written."""
        self._pumping.cancel()

    def let_go(self) -> None:
        """Drop the closed stream, and all bytes: the collector may find this object much later."""
        self._protocol.reader.discard()
        self._unparsed, self._partial = memoryview(b""), None
        self._lines, self._buffer = bytearray(), bytearray()
        del self._stream

    async def pump(self) -> None:
        """Write pending bytes to the stream, until `stop` or the other end is gone."""
        with self._pumping, suppress(*_GONE):
            while True:
                while not self._buffer:
                    self._wake = anyio.Event()
                    await self._wake.wait()
                await self._write_some()
        self._buffer.clear()
        self._on_the_way = 0
        self._end("the connection was cut")
        self._report_progress()

    async def _write_some(self) -> None:
        piece = bytes(self._buffer[:_PIECE])
        del self._buffer[: len(piece)]
        self._on_the_way = len(piece)
        await self._stream.send(piece)
        self._on_the_way = 0
        self.taken += len(piece)
        if self._reading is None:  # nobody reads: that bytes are taken is a sign of life
            self._alive = anyio.current_time()
        self._report_progress()

    async def keep_alive(self) -> None:
        """Send pings; end the connection when nothing has come from the other end for too long."""
        while not self._ended.is_set():
            dead_in = self._alive + self._dead - anyio.current_time()
            if dead_in <= 0:
                self._buffer.clear()
                self._end(f"nothing came for {self._dead:g} s")
                return
            with anyio.move_on_after(min(self._ping, dead_in)) as waited:
                await self._ended.wait()
            if waited.cancelled_caught and self._protocol.state is State.OPEN:
                self._protocol.send_ping(b"")
                self._collect()

    async def say_goodbye(self) -> None:
        """Close the connection: write pending frames, and read until the other end closes, too."""
        self.close()
        while self.pending:
            await self._progress.wait()
        if self._protocol.close_rcvd is not None and self._protocol.side is Side.SERVER:
            return  # all is said, and a client waits for the end of the stream
        with suppress(*_GONE, anyio.EndOfStream):
            if isinstance(self._stream, anyio.abc.SocketStream):
                await self._stream.send_eof()
            while True:  # closed while bytes are unread, a connection is reset, and frames lost
                await self._stream.receive()


@asynccontextmanager
async def opened(
    stream: ByteStream, protocol: Protocol, *, ping: float = PING, dead: float = DEAD
) -> AsyncGenerator[WebSocket, None]:
    """Yield the WebSocket over a stream, after its handshake; closes the stream at the end.

    `ping`: seconds between two pings; `dead`: seconds of silence after which it ends.
    """
    try:
        socket = WebSocket(stream, protocol, ping, dead)
        try:
            async with beside() as tasks:
                tasks.start_soon(socket.pump)
                tasks.start_soon(socket.keep_alive)
                try:
                    yield socket
                finally:
                    with anyio.move_on_after(0 if socket.cut else _GOODBYE, shield=True):
                        await socket.say_goodbye()
                    socket.stop()
        finally:
            socket.let_go()
    finally:
        await anyio.aclose_forcefully(stream)


def server_protocol() -> ServerProtocol:
    """Return a new protocol for a server's end, before its handshake, without compression."""
    return ServerProtocol(max_size=DEFAULT_LIMIT, logger=_SILENT)


async def dial(stream: ByteStream, url: str, token: str) -> ClientProtocol:
    """Do the client's handshake of a WebSocket over a stream; returns the protocol for `opened`.

    `url`: `ws://` or `wss://`; `token` goes into the request's header. The caller bounds the time,
    and closes the stream if this raises NotOpened.
    """
    protocol = ClientProtocol(parse_uri(url), max_size=DEFAULT_LIMIT, logger=_SILENT)
    request = protocol.connect()
    request.headers["Authorization"] = f"Bearer {token}"
    protocol.send_request(request)
    try:
        await stream.send(b"".join(protocol.data_to_send()))
        while not protocol.events and protocol.handshake_exc is None:
            try:
                protocol.receive_data(await stream.receive())
            except anyio.EndOfStream:
                protocol.receive_eof()
    except _GONE as exc:
        raise NotOpened(f"the connection was cut: {exc.__cause__ or exc}") from exc
    failure = protocol.handshake_exc
    if isinstance(failure, InvalidStatus):
        raise NotOpened(_told(failure.response), failure.response.status_code) from failure
    if failure is not None or protocol.state is not State.OPEN:
        raise NotOpened(f"no WebSocket is spoken there: {failure}") from failure
    del protocol.events[0]  # the answer; frames behind it are for the WebSocket
    return protocol


def _told(response: Response) -> str:
    """Return the text of a server's refusal, or the phrase of its status."""
    text = bytes(response.body).decode(errors="replace").strip()
    return text or response.reason_phrase
