"""A screen in memory."""

import json
from typing import Any

import anyio

from acp_bridge.terminal.cli.harmless import harmless


class MemoryScreen:
    """Keeps what a command writes; `free` is set while stdout takes more."""

    def __init__(self) -> None:
        self.out = b""
        self.told: list[str] = []
        self.free = anyio.Event()
        self.free.set()

    def write(self, data: bytes) -> None:
        self.out += data

    def tell(self, line: str) -> None:
        assert harmless(line) == line
        assert "\n" not in line
        self.told.append(line)

    def has_told(self, text: str) -> bool:
        return text in "\n".join(self.told)

    async def room(self) -> None:
        await self.free.wait()

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[Any]:
        """What was written as JSON, one value a line."""
        return [json.loads(line) for line in self.out.splitlines()]
