"""Says when an agent has fallen silent in a turn, and what the bridge sees of it; ends such a turn
if the user has asked for that.

- Progress is what the agent says of its turn (messages, thoughts, tool calls, plans) or asks of the
  client. Usage, titles and other states are none: they may come from an agent that hangs.
- A turn in which a person is asked or a hook decides, that is paused, or whose agent is not read
  because a client doesn't read is not silent. Time in which the machine sleeps does not count.
- Each silence is said once. In the same turn the next one is said only when it is twice as long: an
  agent that is often silent thinks for long.
- A silent turn is cancelled as by a user's Stop, and only if nothing was seen for all of the time
  that can be work: no open tool call, and no process below the agent that computes. What can't be
  seen counts as work.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio

from acp_bridge.core.agents.descendants import Program, cpu_since, programs_below
from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Standstill, State
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.session.core import SessionState
from acp_bridge.core.session.feature import Feature, Parts, Plugin
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates import agent_trouble

#: processes that have used more than this part of a processor compute.
_COMPUTES: Final = 0.01
#: so many looks at them in the time after which a silent turn is cancelled.
_LOOKS: Final = 4


class Silence(Feature):
    """Watches the turns of one session."""

    def __init__(self, session: Parts, settings: Settings) -> None:
        """No turn runs."""
        self._core = session.core
        self._updates = session.updates
        self._transcript = session.transcript
        #: the agent is not read just now, since a client doesn't read.
        self._unread = session.unread
        self._after = settings.silence
        self._after_in_call = settings.silence_in_call
        self._cancel_after = settings.cancel_silent_after
        #: when the agent last did something of its turn.
        self._heard = 0.0
        #: the tool calls that were open before the turn.
        self._before: frozenset[str] = frozenset()
        self._watched: anyio.CancelScope | None = None

    def note_progress(self) -> None:
        """Note that the agent has said or asked something."""
        self._heard = anyio.current_time()

    def concerned(self, before: SessionState, after: SessionState) -> bool:
        """Return True if the turn, the process or the pause is another one."""
        was, now = before.turns, after.turns
        moved = now.state is not was.state or now.running != was.running
        return moved or now.standstill is not was.standstill

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Watch each turn from its beginning to its end, or to its cancel."""
        self.note_progress()
        was, now = before.turns, after.turns
        runs = now.state is State.RUNNING
        if runs and was.state is State.RUNNING and was.running == now.running:
            return  # it was paused, or goes on
        if self._watched:
            self._watched.cancel()
            self._watched = None
        if runs:
            self._before = self._updates.open_cards
            self._watched = anyio.CancelScope()
            self._core.spawn(self._watch, self._watched)

    async def _watch(self, scope: anyio.CancelScope) -> None:
        with scope:
            if not self._cancel_after:  # a second task would make each turn's end dearer
                await self._watch_to_tell()
                return
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_to_tell)
                tasks.start_soon(self._watch_to_cancel)

    # --- what is seen --------------------------------------------------------------------------

    def _since(self, link: Link) -> float:
        """Return when the silence began; the time now if this is none."""
        at_clients, stands = link.at_clients, self._core.now.standstill
        if (
            at_clients.asks_a_person
            or self._unread()
            or stands in (Standstill.PAUSING, Standstill.PAUSED)
        ):
            return anyio.current_time()
        return max(self._heard, at_clients.touched)

    def _in_call(self, link: Link) -> bool:
        """Return True while a tool call of the turn is open, a subagent works, or a client is
        asked something."""
        notes = self._updates.notes
        cards = self._updates.open_cards - self._before
        works = link.at_clients.waits or self._updates.children.at_work
        return bool(works) or any(notes.get(c) != "failed" for c in cards)

    async def _look(self, link: Link) -> dict[int, Program] | None:
        """Return the processes below the agent; None if they can't be seen."""
        found: dict[int, Program] | None = None
        with anyio.move_on_after(waits.LOOK), suppress(NoThread):
            found = await in_thread(programs_below, link.pid, abandon_on_cancel=True)
        return found

    # --- what is said --------------------------------------------------------------------------

    async def _watch_to_tell(self) -> None:
        """Show a notice of each silence that has lasted for long enough."""
        told, times = -1.0, 1
        while link := self._core.link:
            since, after = self._since(link), times * self._after
            if since != told:
                patience = times * self._after_in_call if self._in_call(link) else after
                left = since + patience - anyio.current_time()
                if left > 0:  # a tool call that is open may end meanwhile
                    after = min(after, left)
                elif await self._tell(link, since):
                    told, times = since, 2 * times
            await anyio.sleep(after)

    async def _tell(self, link: Link, since: float) -> bool:
        """Show a notice that the agent is silent since `since`; False if it isn't any more."""
        found = await self._look(link)
        if self._since(link) != since:
            return False
        seconds = anyio.current_time() - since
        event("turn.silent", session=self._core.id, agent=link.name, seconds=round(seconds))
        programs = None if found is None else [(p.name, p.cpu, p.age) for p in found.values()]
        in_call = self._in_call(link)
        self._transcript.notice(agent_trouble.silent(seconds, programs, in_call=in_call))
        self._transcript.flush()
        return True

    # --- what is ended -------------------------------------------------------------------------

    async def _watch_to_cancel(self) -> None:
        """Cancel the turn when it was silent for long enough."""
        pause = min(self._cancel_after / _LOOKS, waits.LOOK_AGAIN)
        seen, worked = None, anyio.current_time()
        looked = worked
        while link := self._core.link:
            found, now = await self._look(link), anyio.current_time()
            if self._in_call(link) or _computed(seen, found, now - looked):
                worked = now
            worked = max(worked, self._since(link))
            if now - worked >= self._cancel_after:
                self._cancel(link)
                return
            seen, looked = found, now
            await anyio.sleep(pause)

    def _cancel(self, link: Link) -> None:
        """Cancel the turn as its user's Stop does; the prompts that wait go on."""
        event("turn.silent_cancelled", session=self._core.id, agent=link.name)
        self._transcript.notice(agent_trouble.cancelled_silent(self._cancel_after))
        self._core.feed(ev.Cancel(frozenset(self._core.now.unanswered[:1])))


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what watches the turns of a session."""
    return [Silence(session, settings)]


PLUGIN: Final = Plugin(made_for)


def _computed(
    before: dict[int, Program] | None, now: dict[int, Program] | None, seconds: float
) -> bool:
    """Return True unless it was seen that the processes have used next to no CPU time."""
    if before is None or now is None:
        return True
    return cpu_since(before, now) > _COMPUTES * seconds
