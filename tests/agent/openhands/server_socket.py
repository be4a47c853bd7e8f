"""The server's end of one WebSocket of the agent-server on the loopback."""

from __future__ import annotations

import json

import anyio
from anyio.abc import SocketStream
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from agent.openhands.events import Json


class ServerSocket:
    """`deaf`: nothing more is told, without a cut."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._protocol = ServerProtocol()
        self._texts: list[str] = []
        self.deaf = False
        self._sending = anyio.Lock()

    async def open(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        (request,) = self._protocol.events_received()
        assert isinstance(request, Request)
        self._protocol.send_response(self._protocol.accept(request))
        await self._flush()

    async def receive(self) -> str:
        while not self._texts:
            self._protocol.receive_data(await self._stream.receive())
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame) and frame.opcode is Opcode.TEXT:
                    self._texts.append(bytes(frame.data).decode())
            await self._flush()
            if self._protocol.close_expected():
                raise anyio.EndOfStream
        return self._texts.pop(0)

    async def send(self, value: Json) -> None:
        if self.deaf:
            return
        self._protocol.send_text(json.dumps(value).encode())
        await self._flush()

    async def close(self, code: int, reason: str) -> None:
        self._protocol.send_close(Close(code, reason).code, reason)
        await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            for data in self._protocol.data_to_send():
                try:
                    await self._stream.send(data)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
