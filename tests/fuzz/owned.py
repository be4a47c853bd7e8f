"""Contexts that end in any order: each is entered and left by a task of its own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

T = TypeVar("T")


class Owned(Generic[T]):
    """A context that was entered with `open`, until `close`."""

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        """Nothing is entered yet."""
        self._context = context
        self._over, self._left = anyio.Event(), anyio.Event()
        self._failure: Exception | None = None
        self.value: T

    @classmethod
    async def open(cls, tasks: TaskGroup, context: AbstractAsyncContextManager[T]) -> Owned[T]:
        """Enter the context. Raises what that raises."""
        owned = cls(context)
        entered = await tasks.start(owned._run)
        if isinstance(entered, Exception):
            raise entered
        owned.value = entered
        return owned

    async def close(self) -> None:
        """Leave the context. Raises what that raises."""
        self._over.set()
        await self._left.wait()
        if self._failure:
            raise self._failure

    async def _run(self, *, task_status: TaskStatus[T | Exception]) -> None:
        entered = False
        try:
            async with self._context as value:
                entered = True
                task_status.started(value)
                await self._over.wait()
        except Exception as exc:
            self._failure = exc
            if not entered:
                task_status.started(exc)
        finally:
            self._left.set()
