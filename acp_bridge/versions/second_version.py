"""The streams of a client that speaks version 2: what passes is translated.

A client says in its first message which version it speaks. Nothing of this is imported for one that
speaks version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import uuid4

from acp_bridge.core.wire.held import Laned
from acp_bridge.core.wire.jsonrpc import Message, encode, read_object
from acp_bridge.versions.client_end import ClientEnd


class TranslatedOutgoing:
    """The stream to a client of version 2: takes lines of version 1, and sends them translated."""

    def __init__(self, to: Laned) -> None:
        """`to`: the stream to the client, which is owned here from now on."""
        self._to = to
        self._lines: list[bytes] = []
        self._end = ClientEnd(lambda message: self._lines.append(encode(message)), uuid4().hex[:8])

    def reader(self) -> Callable[[Message], Iterable[Message]]:
        """Return a function that turns a message of the client into messages for the bridge."""

        def read(message: Message) -> list[Message]:
            found = self._end.from_client(message)
            self._flush()
            return found

        return read

    def write(self, data: bytes, lane: str | None = None) -> None:
        """Translate these lines of version 1, and send them on their lane."""
        for line in data.split(b"\n"):
            if (
                line
                and (message := read_object(line)) is not None
                and self._end.from_bridge(message)
            ):
                self._lines.append(line + b"\n")
        self._flush(lane)

    def _flush(self, lane: str | None = None) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._to.write(b"".join(lines), lane)

    # --- as the client's own streams have it ---------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of bytes that the system has not taken yet."""
        return self._to.pending

    @property
    def taken(self) -> int:
        """The number of bytes that the system has taken since the start."""
        return self._to.taken

    async def run(self) -> None:
        """Write what is pending, until cancelled or until the other end is gone."""
        await self._to.run()

    async def drain_below(self, limit: int) -> None:
        """Wait until fewer than `limit` bytes are pending, or the other end is gone."""
        await self._to.drain_below(limit)

    async def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until all is written; returns whether it is."""
        return await self._to.flush(seconds)

    def close(self) -> None:
        """Close the stream; what is pending is dropped."""
        self._to.close()
