"""Follows the sessions of a bridge, and notifies the user of what `news.py` decides.

One task sends one notification after the other, each way of sending in bounded time. A way that
fails is logged once, until it works again, and does not hold up the other ways.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path, PurePath

import anyio

from acp_bridge.core.machine.states import State
from acp_bridge.core.runtime.log import event, logger
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.settings import NOTIFY_FILE
from acp_bridge.features.notify import desktop, ntfy
from acp_bridge.features.notify.config import BadNotify, Notify
from acp_bridge.features.notify.errors import NotTold
from acp_bridge.features.notify.news import Notes, Stand, Times
from acp_bridge.features.notify.read import read

#: tells the user a text, in bounded time; raises NotTold.
Way = Callable[[str], Awaitable[None]]


def made_for(home: Path) -> Notifier | None:
    """Return a notifier as `notify.toml` says; None if that says nothing, or can't be used.

    What is wrong with the file is logged.
    """
    try:
        chosen = read(home)
    except BadNotify as bad:
        logger.warning("%s can't be used, nobody is notified: %s", home / NOTIFY_FILE, bad)
        return None
    ways = ways_of(chosen) if chosen else []
    return Notifier(ways, words=bool(chosen and chosen.words)) if ways else None


def ways_of(chosen: Notify) -> list[tuple[str, Way]]:
    """Return the ways in which a bridge tells the user, with their names.

    A way that can't work is left out, and `acp-bridge doctor` tells the user of it: bridges start
    too often for a warning, which `chat` would show. The commands that have a terminal ring its
    bell.
    """
    found: list[tuple[str, Way]] = [("ntfy", partial(ntfy.post, at)) for at in chosen.addresses]
    if chosen.desktop and desktop.is_there(os.environ):
        found.append(("desktop", desktop.show))
    elif chosen.desktop:
        logger.info("nothing is shown on the desktop: there is no %s", desktop.program())
    return found


class Notifier:
    """Notes the states of a bridge's sessions, and notifies the user in each of `ways`."""

    def __init__(
        self, ways: list[tuple[str, Way]], *, words: bool, times: Times | None = None
    ) -> None:
        """`words`: notifications quote what agents ask. Nothing is told before `run`."""
        self._ways = ways
        self._words = words
        self._notes = Notes(times or Times())
        self._changed = anyio.Event()
        #: the places in `ways` of those that failed the last time.
        self._failing: set[int] = set()

    # --- what happens in sessions --------------------------------------------------------------

    def follow(self, core: Core, after: SessionState, *, held: bool) -> None:
        """Note the state of a session; `held`: the bridge holds its queue, not the user."""
        now, asked, stand = after.turns, after.around.asked, None
        if not now.ending:
            stand = Stand(
                _name(core),
                asked.oldest if asked else "",
                asked.count if asked else 0,
                now.running,
                now.unanswered,
                now.state is State.DRAINING,
                held,
            )
        self._notes.note(core.id, stand, anyio.current_time())
        self._changed.set()

    def note_death(self, core: Core) -> None:
        """Note that the agent of a session has died."""
        self._notes.note_death(core.id, _name(core), anyio.current_time())
        self._changed.set()

    # --- what the user is told -----------------------------------------------------------------

    async def run(self) -> None:
        """Send the notifications as they become due, until cancelled. Raises nothing else."""
        while True:
            self._changed, due = anyio.Event(), self._notes.due
            with anyio.CancelScope(deadline=float("inf") if due is None else due):
                await self._changed.wait()
            if told := self._notes.take(anyio.current_time()):
                await self._tell(told.text(words=self._words))

    async def _tell(self, text: str) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(len(self._ways)):
                tasks.start_soon(self._tell_by, number, text)

    async def _tell_by(self, number: int, text: str) -> None:
        name, way = self._ways[number]
        try:
            await way(text)
        except NotTold as failed:
            self._note_failure(number, str(failed))
        except Exception as exc:  # whose text may name the address
            self._note_failure(number, type(exc).__name__)
        else:
            self._failing.discard(number)
            event("notified", way=name)

    def _note_failure(self, number: int, why: str) -> None:
        if number not in self._failing:
            self._failing.add(number)
            logger.warning("the user was not notified by %s: %s", self._ways[number][0], why)


def _name(core: Core) -> str:
    cwd = core.workspace.cwd
    return PurePath(cwd).name or cwd
