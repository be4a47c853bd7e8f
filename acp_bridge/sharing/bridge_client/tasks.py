"""Tasks that run beside a block and end with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def beside() -> AsyncGenerator[TaskGroup, None]:
    """Give a task group that is cancelled at the end of the block.

    An exception of the block comes out as it is, which a task group alone would wrap.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as exc:
            failure = exc
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
