"""Waits for an agent-server that can't be reached yet, for a bounded time, and tells the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from agent.openhands.events import Status
from agent.openhands.live_feed import LiveFeed
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.server import Server
from agent.openhands.turn_words import NOT_SENT, STARTING

#: seconds between messages to a user whose prompt waits for the server
_SIGN_OF_LIFE: Final = 10.0
#: how many such messages there are before the prompt is answered with an error
_SIGNS: Final = 6
#: seconds between attempts to read the log
_READ_AGAIN: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)

#: seconds in which a server must start, and between two checks
_START: Final = 45.0
_LOOK_AGAIN: Final = 0.5

Say = Callable[[str], Awaitable[None]]


async def wait_until_ready(
    server: Server, tell: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Waits until a server that is starting answers; `tell` tells the user.

    Raises ServerProblem after `_START` seconds.
    """
    problem = ServerProblem(Kind.UNSURE, "The agent-server does not answer.")
    next_word = anyio.current_time()
    with anyio.move_on_after(_START):
        while True:
            try:
                return await server.ready()
            except ServerProblem as failed:
                if failed.kind not in (Kind.UNREACHED, Kind.UNSURE):
                    raise
                problem = failed
            if tell is not None and anyio.current_time() >= next_word:
                await tell()
                next_word += _SIGN_OF_LIFE
            await anyio.sleep(_LOOK_AGAIN)
    raise problem


async def read_log(live: LiveFeed, say: Say, *, replay: bool) -> Status | None:
    """Reads the log and returns the conversation's status, after a few attempts if necessary.

    `say` tells the user of each wait. `replay`: the log is shown too. Raises ServerProblem.
    """
    for pause in _READ_AGAIN:
        try:
            return await live.sync(replay=replay, silent=not replay)
        except ServerProblem as problem:
            if problem.kind not in (Kind.UNREACHED, Kind.UNSURE):
                raise
            await say(STARTING)
            await anyio.sleep(pause)
    return await live.sync(replay=replay, silent=not replay)


async def wait_until_live(live: LiveFeed, say: Say) -> None:
    """Waits until the feed is live. Raises ServerProblem if it isn't in time, or has ended."""
    for _ in range(_SIGNS):
        with anyio.move_on_after(_SIGN_OF_LIFE):
            return await live.wait_live()
        await say(STARTING)
    raise ServerProblem(Kind.UNREACHED, NOT_SENT)
