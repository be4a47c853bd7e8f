"""Writes what goes over the wires of a bridge into its trace.

- Nothing is sent before it is in the file, with all that was read before it. So a kill loses
  nothing that somebody has got.
- The first line of a round of the event loop is written and sent at once; those after it are joined
  in the next round.
- Without a trace nothing of this is imported, and the streams are not wrapped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import anyio

from acp_bridge.core.wire.jsonrpc import Heard, Malformed, Message
from acp_bridge.core.wire.streams import Incoming, Outgoing, Streams
from acp_bridge.trace.events import Direction, both_ways
from acp_bridge.trace.file import TraceFile


class Trace:
    """The trace of one bridge; a task must run `run`."""

    def __init__(self, file: TraceFile) -> None:
        """Own the file from now on; `close` closes it."""
        self._file = file
        self._began = time.monotonic()
        self._clients = self._agents = 0
        #: the time of this round of the event loop; None before its first line.
        self._seconds: float | None = None
        self._waiting: list[bytes] = []
        #: the outgoing streams whose lines are sent once the file has them.
        self._holding: list[_TracedOutgoing] = []
        #: nothing was written in this round: the next line to send is written at once.
        self._direct = True
        self._wake = anyio.Event()

    def of_client(self, incoming: Incoming, outgoing: Outgoing) -> Streams:
        """Return the streams of a new client, wrapped so that what they carry is traced."""
        self._clients += 1
        coming, going = both_ways(_numbered("Client", self._clients))
        return _TracedIncoming(self, coming, incoming), _TracedOutgoing(self, going, outgoing)

    def of_agent(self, outgoing: Outgoing) -> tuple[Heard, Outgoing]:
        """Return a callback for the lines of a new agent process, and `outgoing`, now traced.

        The caller gives the callback the lines with their parsed messages: an agent says much,
        and its lines are not parsed a second time here.
        """
        self._agents += 1
        coming, going = both_ways(_numbered("Agent", self._agents))
        return partial(self.heard, coming), _TracedOutgoing(self, going, outgoing)

    def came(self, direction: Direction, data: bytes) -> None:
        """Note bytes that a stream has read; call this before they are handled."""
        self._waiting += direction.feed(data, self._seconds or self._begin_round())

    def heard(
        self,
        direction: Direction,
        lines: list[bytes],
        messages: Sequence[Message | Malformed] | None,
    ) -> None:
        """Note lines that were read; call this before they are handled (`wire.jsonrpc.Heard`)."""
        seconds = self._seconds or self._begin_round()
        self._waiting += direction.events(lines, seconds, messages)

    def goes(self, way: _TracedOutgoing, direction: Direction, lines: bytes) -> None:
        """Note whole lines that `way` holds, and let it send them when they are in the file."""
        seconds = self._seconds or self._begin_round()
        self._waiting += direction.events(lines.split(b"\n"), seconds)
        self._holding.append(way)
        if self._direct:
            self._direct = False
            self.write()

    def _begin_round(self) -> float:
        self._wake.set()
        self._seconds = time.monotonic() - self._began
        return self._seconds

    def write(self) -> None:
        """Write the waiting events into the file, then send the lines that were held until then."""
        if self._waiting:
            self._file.write(b"".join(self._waiting))
            self._waiting.clear()
        if self._holding:
            holding, self._holding = dict.fromkeys(self._holding), []
            for way in holding:
                way.let_go()

    async def run(self) -> None:
        """Write the waiting events at the end of each round of the event loop, until cancelled."""
        while True:
            await self._wake.wait()
            self.end_round()

    def end_round(self) -> None:
        """Write the waiting events; the next line to send, of another round, is written at once."""
        self.write()
        self._seconds, self._direct, self._wake = None, True, anyio.Event()

    def close(self) -> None:
        """Write the waiting events, and close the file."""
        self.write()
        self._file.close()


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}({number})"


class _TracedIncoming:
    """An incoming stream whose bytes are noted in the trace as they are read."""

    def __init__(self, trace: Trace, direction: Direction, of: Incoming) -> None:
        self._trace, self._direction, self._of = trace, direction, of

    async def read(self) -> bytes:
        data = await self._of.read()
        if data:
            self._trace.came(self._direction, data)
        return data

    def close(self) -> None:
        self._of.close()


class _TracedOutgoing:
    """An outgoing stream that holds its lines until the file of the trace has them."""

    def __init__(self, trace: Trace, direction: Direction, to: Outgoing) -> None:
        self._trace, self._direction, self._to = trace, direction, to
        self._held = bytearray()

    @property
    def pending(self) -> int:
        return self._to.pending + len(self._held)

    @property
    def taken(self) -> int:
        return self._to.taken

    def write(self, data: bytes) -> None:
        self._held += data
        self._trace.goes(self, self._direction, data)

    def let_go(self) -> None:
        if self._held:
            held, self._held = bytes(self._held), bytearray()
            self._to.write(held)

    async def run(self) -> None:
        await self._to.run()

    async def drain_below(self, limit: int) -> None:
        self._trace.write()
        await self._to.drain_below(limit)

    async def flush(self, seconds: float) -> bool:
        self._trace.write()
        return await self._to.flush(seconds)

    def close(self) -> None:
        self._trace.write()
        self._to.close()
