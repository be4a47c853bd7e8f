"""Waits for the first of several events, and for a signal to stop."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.cli.exits import Exit

#: signals that ask a command to end.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """A request that the command end: its reason, and its urgency."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        #: set by a second request: end without any further wait.
        self.at_once = anyio.Event()
        #: the exit code for the first request; DONE until there is one.
        self.reason = Exit.DONE
        #: the command ends alone, and leaves its turn to the bridge.
        self.leaves = False

    def ask(self, reason: Exit) -> None:
        """Ask the command to end; the second time, to end at once. `reason`: its exit code."""
        if self.asked.is_set():
            self.at_once.set()
        else:
            self.reason = reason
            self.asked.set()


async def first_of(*events: anyio.Event) -> None:
    """Wait until one of the events is set."""
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)


@asynccontextmanager
async def stopped_by_signals(stop: Stop, *, keeps: bool = False) -> AsyncGenerator[None, None]:
    """Turn SIGINT, SIGTERM and SIGHUP into requests to stop while the block runs.

    `keeps`: the bridge goes on without the command, so SIGHUP, which comes when the terminal has
    gone, leaves the turn running.
    """
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with beside() as tasks:

            async def watch() -> None:
                async for each in signals:
                    stop.leaves |= keeps and each == signal.SIGHUP and not stop.asked.is_set()
                    stop.ask(Exit.INTERRUPTED)

            tasks.start_soon(watch)
            yield
