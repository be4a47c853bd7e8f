"""Says that an agent is starting, if that takes long."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

from acp_bridge.core.runtime import waits
from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.cli.harmless import one_line


def starting(agent: str) -> str:
    """Return the line that says that an agent is starting, by its name; "": the agent."""
    return f"{one_line(os.path.basename(agent)) or 'the agent'} is starting"


@asynccontextmanager
async def told_if_slow(tell: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Call `tell` once if the block takes longer than `waits.SLOW_START`."""

    async def later() -> None:
        await anyio.sleep(waits.SLOW_START)
        tell()

    async with beside() as tasks:
        tasks.start_soon(later)
        yield
