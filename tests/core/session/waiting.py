"""Forcing an order between tasks in memory, without a clock."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from tests.support.waiting import until as until


async def quiet() -> None:
    """Let every task go on until it waits for something that only the test gives it."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


class Beside:
    """A piece of work that runs beside the test; it must have ended when the block is left."""

    def __init__(self) -> None:
        self.ended = False
        self._scope = anyio.CancelScope()

    def cancel(self) -> None:
        """Cancel its task."""
        self._scope.cancel()

    async def run(self, work: Callable[..., Awaitable[object]], *args: object) -> None:
        with self._scope:
            await work(*args)
        self.ended = True


@asynccontextmanager
async def beside(work: Callable[..., Awaitable[object]], *args: object) -> AsyncIterator[Beside]:
    """Run `work` in a task of its own; the block starts when it waits for something."""
    task = Beside()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task.run, work, *args)
            await quiet()
            yield task
