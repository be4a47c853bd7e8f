"""Worker threads of the journal alone.

They have a limiter of their own: anyio's default one is shared, and a few dozen threads that wait
for processes to end would keep a prompt from being accepted.
"""

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

THREADS: Final = 8

_limiter: RunVar[CapacityLimiter] = RunVar("_limiter")
T = TypeVar("T")
Args = TypeVarTuple("Args")


async def in_thread(function: Callable[[*Args], T], *args: *Args) -> T:
    """Run this in a worker thread and wait for its end, also when cancelled meanwhile."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(THREADS)
        _limiter.set(limiter)
    return await to_thread.run_sync(function, *args, limiter=limiter)
