"""Waiting for what nothing tells: a state of another task, a file, a process."""

from collections.abc import Callable
from itertools import count
from typing import TypeVar

import anyio
import anyio.lowlevel
from anyio import sleep  # tests put something else in the place of `anyio.sleep`

T = TypeVar("T")

#: looks after which the processor is left to threads and other processes between two of them.
_EAGER = 20
#: seconds between two looks; this much longer each time, up to the longest.
_PAUSE, _LONGEST = 0.001, 0.01


async def until(look: Callable[[], T], within: float = 30) -> T:
    """Return what `look` returns as soon as it is true; raises TimeoutError after so many seconds.

    Other tasks run between two looks.
    """
    with anyio.fail_after(within):
        for number in count():
            if found := look():
                return found
            if number < _EAGER:
                await anyio.lowlevel.checkpoint()
            else:
                await sleep(min((number - _EAGER + 1) * _PAUSE, _LONGEST))
    raise AssertionError("unreachable")
