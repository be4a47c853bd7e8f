"""Waits for the first of several events, and for a signal to stop."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from acp_bridge.bridge_client.tasks import beside
from acp_bridge.cli.exits import Exit

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Somebody wants the command to end: for which reason, and how urgently."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        #: set when it was asked for once more: nothing is waited for any longer.
        self.at_once = anyio.Event()
        #: what the first one asked for; DONE as long as nobody has.
        self.reason = Exit.DONE

    def ask(self, reason: Exit) -> None:
        """Ask for the end, or for the end at once."""
        if self.asked.is_set():
            self.at_once.set()
        else:
            self.reason = reason
            self.asked.set()


async def first_of(*events: anyio.Event) -> None:
    """Return when one of the events is set."""
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)


@asynccontextmanager
async def stopped_by_signals(stop: Stop) -> AsyncGenerator[None, None]:
    """Have SIGINT, SIGTERM and SIGHUP ask for the end during the block."""
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async with beside() as tasks:

            async def watch() -> None:
                async for _ in signals:
                    stop.ask(Exit.INTERRUPTED)

            tasks.start_soon(watch)
            yield
