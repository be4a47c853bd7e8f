"""Worker threads for what may block, on a system that may have no room for one more."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.lowlevel import current_token

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
    """Run the function in a worker thread, and return what it returns. Raises NoThread."""
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
        raise _no_room() from error


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Run the function, which may hang, in a daemon thread; return its result. Raises NoThread.

    When the wait is cancelled the thread is abandoned. Unlike one of anyio's, it does not keep the
    process from ending.
    """
    token, done, outcome = current_token(), anyio.Event(), Future[T]()

    def work() -> None:
        try:
            outcome.set_result(function())
        except Exception as failed:
            outcome.set_exception(failed)
        with suppress(Exception):  # the event loop may have ended
            anyio.from_thread.run_sync(done.set, token=token)

    try:
        Thread(target=work, name="daemon", daemon=True).start()
    except RuntimeError as error:
        raise _no_room() from error
    await done.wait()
    return outcome.result()


def _no_room() -> NoThread:
    return NoThread("the system has no room for one more thread (ulimit -u)")


async def done_in_any_case(function: Callable[[*Args], T], *args: *Args) -> T:
    """Do as `in_thread` does; if there is no thread, call the function in this one, which blocks.

    It is for functions that end processes, which nobody else would do.
    """
    try:
        return await in_thread(function, *args)
    except NoThread:
        return function(*args)
