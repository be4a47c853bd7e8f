"""Worker threads for what may block, on a system that may have no room for one more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

T = TypeVar("T")
Args = TypeVarTuple("Args")


class NoThread(OSError):
    """The system lets this process start no further thread."""


async def in_thread(
    function: Callable[[*Args], T],
    *args: *Args,
    abandon_on_cancel: bool = False,
    limiter: anyio.CapacityLimiter | None = None,
) -> T:
    """Return what the function returns in a worker thread. Raises NoThread."""
    began = False

    def work(*args: *Args) -> T:
        nonlocal began
        began = True
        return function(*args)

    try:
        return await anyio.to_thread.run_sync(
            work, *args, abandon_on_cancel=abandon_on_cancel, limiter=limiter
        )
    except RuntimeError as error:
        if began:
            raise
        raise NoThread("the system has no room for one more thread (ulimit -u)") from error


async def done_in_any_case(function: Callable[[*Args], T], *args: *Args) -> T:
    """Do as `in_thread` does; without a thread, call the function here, though it may block.

    It is for what ends processes: nobody else would.
    """
    try:
        return await in_thread(function, *args)
    except NoThread:
        return function(*args)
