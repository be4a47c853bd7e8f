"""Follows what a session's agent does beside its prompts: its work outside of them, of which the
machine is told, and what it lists as running in the background, which is no such work.

Some agents work on after the end of a turn, and version 1 of ACP has no word for that: it is seen
in what they say.

- The agent works from a message, a thought or a new tool call on, until it is silent and neither a
  card of that work nor a question to a person is open. What else it tells does not count, nor do
  the cards that a turn has left open.
- An agent of version 2 says itself that it works, and when that is over; it alone lists anything.
- After a Stop only what it begins anew counts, and silence is soon taken for its end: what comes
  after that is a leak (invariant C6).
- A kill that a Stop leads to is said, with the programs that end with the agent (invariant C25).
- Clients are told the whole list whenever it changes, with the ids that they know. A tool call is
  in it only while its card is open: it was shown before, and what has ended is not listed. A piece
  of it can be cancelled.
- The list ends with the process, behind the ends of its cards, and the session says what was in it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents import guard
from acp_bridge.core.agents.descendants import programs_since
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.machine import effects as ef
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    CANCEL_ITEM,
    ITEM_IDS,
    SESSION_CANCEL,
    SUBAGENT_UPDATE,
    TERMINAL,
    TOOL_CALL,
    Json,
    as_object,
    without_own_meta,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.children import placed
from acp_bridge.core.updates.open_cards import closing_update
from acp_bridge.core.updates.updates import Updates

if TYPE_CHECKING:
    from acp_bridge.core.agents.activity import Activity

#: the part of `drain_timeout` for which an agent that was told to stop is silent if it has heeded
#: it; the end of silence is seen well before that of the drain.
_PART: Final = 4


class Background:
    """Knows what runs in the background of one session."""

    def __init__(
        self, core: Core, updates: Updates, transcript: TranscriptOut, patience: float
    ) -> None:
        """No process has listed anything; `patience`: seconds for an agent to take a cancel."""
        self._core = core
        self._updates = updates
        self._transcript = transcript
        self._patience = patience
        #: the list as clients are told it; None if no process has ever told one.
        self.listed: tuple[Json, ...] | None = None
        #: the title of each listed piece of work, also of those that no client can be shown.
        self.titles: list[str] = []
        #: the epoch of the process whose list it is.
        self._epoch = 0
        #: a notice has said what ends with that process.
        self._said = False
        #: the client-side ids of the tool calls that run in the background.
        self.cards: frozenset[str] = frozenset()

    def is_listed(self, card_id: str) -> bool:
        """Return True for the client-side id of a tool call that runs in the background."""
        return any(each.get(ITEM_IDS[TOOL_CALL]) == card_id for each in self.listed or ())

    def note(self, activity: Activity, epoch: int) -> None:
        """Note what the session's process, of this epoch, lists as running in the background."""
        if activity.background is None:
            return
        told = [
            self._told(each.kind, each.id, can_cancel=each.can_cancel)
            for each in activity.background
        ]
        before = self.listed, self.titles, self._epoch
        self.titles = [each.title for each in activity.background]
        self.listed, self._epoch = tuple([each for each in told if each]), epoch
        calls = [call for each in activity.background for call in each.calls]
        self._updates.note_begun(calls)
        self.cards = frozenset(map(self._updates.client_card_id, calls))
        if (self.listed, self.titles, self._epoch) != before:
            self._said = False
            self._core.settle()

    def _told(self, kind: str, agent_id: str, *, can_cancel: bool) -> Json:
        """Return a listed piece of work as clients are told it; empty for a tool call without an
        open card.

        Of an unknown kind the kind alone is told: its ids are the agent's.
        """
        if kind == TOOL_CALL:
            card = self._updates.open_card_id(agent_id)
            told: Json = {"type": kind, ITEM_IDS[kind]: card} if card else {}
        elif kind == TERMINAL:
            told = {"type": kind, ITEM_IDS[kind]: agent_id}
        else:
            return {"type": kind if kind.startswith("_") else f"_{kind}"}
        return {**told, "cancel": True} if told and can_cancel else told

    def spared(self, *, spares: bool) -> frozenset[str]:
        """Return the client-side ids of the tool calls that go on after a Stop.

        `spares`: the Stop lets them go on, as that of a client of version 2 does.
        """
        return self.cards if spares else frozenset()

    def stop(self) -> None:
        """Tell an agent that does nothing else to end what it has in the background."""
        link = self._core.link
        if link and self.titles:
            link.peer.notify(SESSION_CANCEL, {"sessionId": link.agent_session_id})

    # --- its end -------------------------------------------------------------------------------

    def take_titles(self) -> list[str]:
        """Return the titles of what is listed; the caller says that it ends with the process."""
        self._said = True
        return self.titles

    def end(self, epoch: int) -> None:
        """Forget the list of a process that is dead, and say what ended with it."""
        if epoch != self._epoch or self.listed is None:
            return
        if self.titles and not self._said and not self._core.now.ending:
            self._transcript.notice(notices.ended_in_background(self.titles))
        self.listed, self.titles, self.cards = (), [], frozenset()

    # --- a client's word -----------------------------------------------------------------------

    async def cancel(self, request: ClientRequest, params: Json) -> Json:
        """Return the agent's answer to `_acp_bridge/cancel_item`; raises RpcError."""
        member, agent_id = self._item(params)
        link = self._core.link
        if link is None or link.activity is None or agent_id is None:
            raise errors.invalid("nothing that runs under this id can be cancelled", member)
        asked = {"sessionId": link.agent_session_id, member: agent_id}
        with anyio.move_on_after(self._patience):
            answer = as_object(await link.ask_for(request, CANCEL_ITEM, asked))
            return without_own_meta(answer)
        raise errors.silent(CANCEL_ITEM, self._patience)

    def _item(self, params: Json) -> tuple[str, str | None]:
        """Return the member of `params` that names the work to cancel, and the agent's id of that.

        The id is None for an unknown tool call. Raises RpcError.
        """
        named = [member for member in ITEM_IDS.values() if member in params]
        if len(named) != 1 or not isinstance(given := params[named[0]], str):
            raise errors.invalid(f"one text is needed: {' or '.join(ITEM_IDS.values())}")
        of_call = named[0] == ITEM_IDS[TOOL_CALL]
        return named[0], self._updates.agent_card_id(given) if of_call else given


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
        #: the Stop of its work that the process was told, until that is over.
        self.stopping: ef.StopWork | None = None
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
        """Follow when turns run, which are no such work, and watch for the end of work."""
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
        if (stop := self.stopping) and now.state is not State.DRAINING:
            self.stopping = None
            self._close_cards(stop)
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
        """True while a subagent works, or a call of the work is open that was neither denied nor
        only asked about."""
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
        return link.at_clients.asks_in_session or self._goes_on

    # --- its end by a Stop ---------------------------------------------------------------------

    def stop(self, how: ef.StopWork) -> None:
        """End the open cards of the work, which the agent was just told to stop."""
        self.stopping, self._heard = how, anyio.current_time()
        self._close_cards(how)

    def stops_in(self, epoch: int) -> bool:
        """Return True while this process is to end its work, which it was told to stop."""
        return self.stopping is not None and self.stopping.epoch == epoch

    def _close_cards(self, stop: ef.StopWork) -> None:
        """Show the cards of the work that are open as failed, but for what the Stop spares
        (invariant C16).

        Subagents that were told to stop are shown as ended.
        """
        for card in sorted(self._open - self._background.spared(spares=stop.spares)):
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
