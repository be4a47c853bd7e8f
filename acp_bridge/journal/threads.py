"""Worker threads of the journal alone.

They have a limiter of their own: anyio's default one is shared, and a few dozen threads that wait
for processes to end would keep a prompt from being accepted.
"""

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from acp_bridge.journal.errors import JournalError
from acp_bridge.runtime import threads

THREADS: Final = 8

_limiter: RunVar[CapacityLimiter] = RunVar("_limiter")
T = TypeVar("T")
Args = TypeVarTuple("Args")


async def in_thread(function: Callable[[*Args], T], *args: *Args) -> T:
    """Run this in a worker thread and wait for its end, also when cancelled meanwhile.

    Raises JournalError if the system has no room for a thread.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(THREADS)
        _limiter.set(limiter)
    try:
        return await threads.in_thread(function, *args, limiter=limiter)
    except threads.NoThread as error:
        raise JournalError(str(error)) from error
