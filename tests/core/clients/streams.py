"""The two streams of a client, in memory: what it sends, and the way to it."""

from collections import deque

import anyio

from tests.core.session.memory import Outgoing


class Bytes:
    """The bytes that a client sends, one piece a read."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | OSError] = deque()
        self._news = anyio.Event()
        self.closed = False

    def give(self, *pieces: bytes | OSError) -> None:
        self._pieces.extend(pieces)
        self._news.set()

    async def read(self) -> bytes:
        while not self._pieces:
            self._news = anyio.Event()
            await self._news.wait()
        piece = self._pieces.popleft()
        if isinstance(piece, OSError):
            raise piece
        return piece

    def close(self) -> None:
        self.closed = True


class Way(Outgoing):
    """A way to a client that may break."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = anyio.Event()
        self.ended: list[object] = []

    async def run(self) -> None:
        await self.broken.wait()

    async def flush(self, seconds: float) -> bool:
        self.ended.append(seconds)
        return True

    def close(self) -> None:
        self.ended.append("closed")
