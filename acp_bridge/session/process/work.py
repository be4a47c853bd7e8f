"""Follows what a session's agent does outside of prompts, and tells the machine.

Some agents work on after the end of a turn, and ACP has no word for that: it is seen in what they
say.

- The agent works from a message, a thought or a new tool call on, until it is silent and neither a
  card of that work nor a question to a person is open. What else it tells does not count, nor do
  the cards that a turn has left open.
- An agent of version 2 says itself that it works, and when that is over; what it lists as running
  in the background is no such work.
- After a Stop only what it begins anew counts, and silence is soon taken for its end: what comes
  after that is a leak (invariant C6).
- A kill that a Stop leads to is said, with the programs that end with the agent (invariant C25).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from acp_bridge.agents import guard
from acp_bridge.agents.descendants import programs_since
from acp_bridge.agents.link import Link
from acp_bridge.machine import events as ev
from acp_bridge.machine.states import State
from acp_bridge.protocol import AGENT_MESSAGE, AGENT_THOUGHT, SUBAGENT_UPDATE, Json
from acp_bridge.runtime import waits
from acp_bridge.runtime.threads import NoThread, in_thread
from acp_bridge.session.core import Core, SessionState
from acp_bridge.session.process.background import Background
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.settings import Settings
from acp_bridge.updates import notices
from acp_bridge.updates.children import placed
from acp_bridge.updates.open_cards import closing_update
from acp_bridge.updates.updates import Updates

if TYPE_CHECKING:
    from acp_bridge.versions.activity import Activity

#: the part of `drain_timeout` for which an agent that was told to stop is silent if it has heeded
#: it; the end of silence is seen well before that of the drain.
_PART: Final = 4


class Work:
    """Follows the work of one session's agent outside of prompts."""

    def __init__(
        self,
        core: Core,
        updates: Updates,
        transcript: TranscriptOut,
        background: Background,
        settings: Settings,
    ) -> None:
        """The agent does nothing, and has just been given the session."""
        self._core = core
        self._background = background
        self._updates = updates
        self._transcript = transcript
        self._silence = settings.work_silence
        self._silence_at_stop = min(self._silence, settings.drain_timeout / _PART)
        #: when the agent last said or began something, and how many cards it had made by then.
        self._heard = 0.0
        self._made = 0
        #: the client-side ids of open cards: at the beginning of a turn those of work, at its end
        #: those that turns have left open.
        self._of_work: frozenset[str] = frozenset()
        self._of_turns: frozenset[str] = frozenset()
        self._watched: anyio.CancelScope | None = None
        #: the agent says that it works.
        self._runs = False
        #: the epoch of the process that was told to stop its work, until that is over; or 0.
        self.stopping = 0
        #: when the process was given the session, by `guard.now`.
        self._given = guard.now()

    # --- what the agent does -------------------------------------------------------------------

    def note_update(self, update: Json) -> None:
        """Note an update that the agent has sent while no prompt ran."""
        made, self._made = self._made, self._updates.made
        kind = update["sessionUpdate"]
        begins = kind == SUBAGENT_UPDATE and self._updates.children.at_work
        if kind in (AGENT_MESSAGE, AGENT_THOUGHT) or begins or self._made > made:
            self.note()

    def note(self) -> None:
        """Note that the agent does something outside of a prompt now."""
        self._heard, now = anyio.current_time(), self._core.now
        if now.state is State.IDLE:
            self._core.feed(ev.WorkSeen(now.epoch))

    def note_activity(self, activity: Activity, epoch: int) -> None:
        """Note what the agent says that it does outside of a prompt and in the background."""
        self._background.note(activity, epoch)
        ran, self._runs = self._runs, activity.runs
        if self._runs:
            self.note()
        elif ran and self._core.now.works and not self._holds:
            self._core.feed(ev.WorkOver(self._core.now.epoch))

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Follow the turns, which are no work, and watch for the end of work."""
        was, now = before.turns, after.turns
        self._runs &= now.running is None and now.state is not State.KILLING
        if was.state is State.RELOADING:
            self._given = guard.now()
        if was.running is None and now.running is not None:
            self._of_work = self._open
        elif was.running is not None and now.running is None:
            self._of_turns = self._updates.open_cards - self._of_work
            self._made = self._updates.made
            if self._goes_on:
                self.note()
        elif self._runs and was.state is State.RELOADING:
            self.note()
        if was.state is now.state:
            return
        if self._watched:
            self._watched.cancel()
            self._watched = None
        if self.stopping and now.state is not State.DRAINING:
            self.stopping = 0
            self.close_cards()
        if now.works:
            self._watched = anyio.CancelScope()
            self._core.spawn(self._watch, self._watched, now.epoch)

    async def _watch(self, scope: anyio.CancelScope, epoch: int) -> None:
        """Tell the machine when the work is over."""
        silence = self._silence_at_stop if self.stopping else self._silence
        left = silence
        with scope:
            while left > 0:
                await anyio.sleep(left)
                left = silence if self._holds else self._heard + silence - anyio.current_time()
        if not scope.cancel_called:  # it may have been cancelled just as the silence was over
            self._core.feed(ev.WorkOver(epoch))

    @property
    def _open(self) -> frozenset[str]:
        """The client-side ids of the cards of work that are open."""
        return self._updates.open_cards - self._of_turns

    @property
    def _goes_on(self) -> bool:
        """True while a child works, or a call of the work is open that was not denied, nor only
        asked about."""
        listed = self._background.is_listed
        works = (card for card in self._open - self._updates.notes.keys() if not listed(card))
        return bool(self._updates.children.at_work) or any(works)

    @property
    def _holds(self) -> bool:
        """True while the agent says that it works; before a Stop also while a card of the work is
        open, or a person is asked."""
        link = self._core.link
        if self._runs:
            return True
        if self.stopping or link is None:
            return False
        asks = any(each.asks_a_person and each.names_session for each in link.at_clients.questions)
        return asks or self._goes_on

    # --- its end by a Stop ---------------------------------------------------------------------

    def stop(self, epoch: int) -> None:
        """End the open cards of the work, which the agent was just told to stop."""
        self.stopping, self._heard = epoch, anyio.current_time()
        self.close_cards()

    def close_cards(self) -> None:
        """Show the cards of the work that are open as failed (invariant C16).

        Children that were told to stop get their end.
        """
        for card in sorted(self._open - self._background.spared):
            if self._updates.settle(card):
                self._transcript.show(placed(closing_update(card)))
        for params in self._updates.end_stopped():
            self._transcript.show(params)

    async def say_killed(self, link: Link) -> None:
        """Say that the agent is about to be killed, unless it has ended, and what ends with it."""
        if link.gone:
            return
        found: list[str] = []
        with anyio.move_on_after(waits.LAST_LOOK), suppress(NoThread):
            found = await in_thread(programs_since, link.pid, self._given, abandon_on_cancel=True)
        background = self._background.take_titles()
        self._transcript.notice(notices.killed_at_work([*found, *background]))
        self._transcript.flush()
