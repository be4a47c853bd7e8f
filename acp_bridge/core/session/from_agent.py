"""Takes the messages of a session's agent processes (`agents.link.Owner`): the session's state says
which of them are shown, passed on, refused or dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.agents.requests import MOST_OPEN
from acp_bridge.core.journal import SessionJournal
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Phase, Snapshot, State
from acp_bridge.core.protocol import (
    ASIDE,
    ASKS_A_PERSON,
    CALLS,
    CANCEL_REQUEST,
    MESSAGES,
    OF_SUBAGENTS,
    SUBAGENT_UPDATE,
    Json,
    without_said,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.to_client import ToClient
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.feature import Features
from acp_bridge.core.session.process.work import Work
from acp_bridge.core.session.requests.to_agent import ToAgent
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.transcript.pacing import Pacing
from acp_bridge.core.session.transcript.subagents import Subagents
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import agent_trouble
from acp_bridge.core.updates.children import names_session
from acp_bridge.core.updates.odd_updates import is_plain, mended
from acp_bridge.core.updates.updates import Leak, Updates
from acp_bridge.core.wire.peer import Call
from acp_bridge.core.wire.runs import Run


class FromAgent:
    """Takes updates, requests and the end of a session's processes."""

    #: the last process that had too many open requests.
    _flooding: Link | None = None

    def __init__(
        self,
        core: Core,
        journal: SessionJournal,
        updates: Updates,
        transcript: TranscriptOut,
        to_client: ToClient,
        pacing: Pacing,
        user_settings: UserSettings,
        to_agent: ToAgent,
        subagents: Subagents,
        work: Work,
        features: Features,
        disturb: Callable[[], None] | None,
    ) -> None:
        """`disturb` notes that the agent has said something; None: the session never sleeps."""
        self._core = core
        self._user_settings = user_settings
        self._to_agent = to_agent
        #: what is called once when the agent shows more of the turn that runs, with its epoch.
        self.when_shown: list[Callable[[int], None]] = []
        self._subagents, self._work = subagents, work
        self._features = features
        self._disturb = disturb
        self._journal = journal
        self._updates = updates
        self._transcript = transcript
        self._to_client = to_client
        self._pacing = pacing
        # The phase of a process holds until the next event; a read brings hundreds of updates.
        self._phased: tuple[Link, Snapshot] | None = None
        self._phase = Phase.NOTHING
        self._draining = self._outside = False
        #: what the agent says now belongs to the turn that runs, and is shown.
        self._in_turn = False
        #: the update that was shown last, if more text of its message needs no look.
        self._words: Json | None = None
        #: the messages of this read hold something besides answers; something besides states.
        self._spoke = self._progress = False
        #: by kind, the last state that the agent told while no client could be shown it.
        self._withheld: dict[str, Json] = {}

    # --- Owner ---------------------------------------------------------------------------------

    def on_update(self, link: Link, params: Json) -> None:
        self._spoke = True
        now = self._core.now
        if self._phased is None or self._phased[0] is not link or self._phased[1] is not now:
            self._note_phase(link, now)
        update = params.get("update")
        if self._phase is Phase.NOTHING or not isinstance(update, dict):
            return
        if not isinstance(kind := update.get("sessionUpdate"), str):
            event("agent.noise", agent=link.name, what="an update without a kind")
            return
        if is_plain(update):
            alone = len(params) == 2 and "sessionId" in params and not link.children
            if alone and self._in_turn and kind in MESSAGES:
                self._take_words(link, update)  # as most updates are
            else:
                self._take(link, params, update)
            return
        for each in self._mended(link, params, update):
            self._take(link, {**params, "update": each}, each)

    def on_run(self, link: Link, run: Run) -> None:
        texts = iter(run.texts)
        for text in texts:
            self._words = None
            params = run.with_text(text)["params"]
            errors.contained(self.on_update, link, params, what="an update of the agent failed")
            if self._words and self._phased == (link, self._core.now):
                self._transcript.show_more_words(self._words, texts)

    def _mended(self, link: Link, params: Json, update: Json) -> list[Json]:
        """Return the updates that one means which may be odd: none for one to drop."""
        told = [update] if link.speaks_v2 else mended(update)
        if "_meta" not in params:
            told = [each for each in told if not self._updates.says_nothing(each)]
        if not told:
            event("agent.noise", agent=link.name, what="an update that says nothing")
        return told

    def _take_words(self, link: Link, update: Json) -> None:
        """Do as `_take` does with words in the turn that runs, of which nothing else is known."""
        try:
            shown = self._updates.said(update)
        except Leak:
            self._leaked(link)
            return
        if shown is not None:
            self._progress = True
            self._words = shown if self._updates.spoke else None  # not while all is blank
            self._transcript.show_words(shown)
            if self.when_shown:
                self._act_when_shown(link)

    def _take(self, link: Link, params: Json, update: Json) -> None:
        """Record and show an update in the protocol's form, or drop it."""
        # A cancelled turn whose client doesn't read: what waits stays bounded (P15).
        unread = self._draining and self._pacing.unread
        kind = update["sessionUpdate"]
        of_child = link.children and self._updates.children.of(link.children, params)
        if of_child or kind in OF_SUBAGENTS:
            if not unread or kind == SUBAGENT_UPDATE:  # not what they say
                self._take_of_subagents(link, params)
            return
        is_a_state = kind in ASIDE
        if unread and not is_a_state:
            if self._outside:
                self._work.note_update(update)
            return
        if (shown := self._taken(link, params)) is None:
            return
        if self._outside:
            self._work.note_update(shown)
        self._progress |= not is_a_state
        if is_a_state and (shown := self._note_state(link, shown)) is None:
            return
        told = params.copy()
        told.pop("sessionId", None)
        told["update"] = shown
        if unread and is_a_state:
            self._withheld[shown["sessionUpdate"]] = told
            return
        for each in self._updates.parted(told) if "_meta" in told else (told,):
            self._transcript.show(each, again=self._phase is Phase.REPLAY)
        if self.when_shown and self._phase is Phase.LIVE and not is_a_state:
            self._act_when_shown(link)
        if shown["sessionUpdate"] in CALLS:
            self._to_client.note_card(shown)

    def _act_when_shown(self, link: Link) -> None:
        acts, self.when_shown = self.when_shown, []
        for act in acts:
            act(link.epoch)

    def _note_phase(self, link: Link, now: Snapshot) -> None:
        """Note how the updates of a process are treated in this state."""
        self._phased = link, now
        self._phase, self._draining = now.phase(link.epoch), now.permits.drains
        self._outside = self._is_outside(self._phase)
        self._in_turn = self._phase is Phase.LIVE and not (self._draining or self._outside)

    def _take_of_subagents(self, link: Link, params: Json) -> None:
        """Show an update of a subagent, or about one."""
        try:
            told = self._subagents.take(
                link, without_said(params), self._phase, excused=self._to_agent.busy
            )
        except Leak:
            self._leaked(link)
            return
        self._progress = True
        for each in told:
            if self._outside:
                self._work.note_update(each["update"])
            self._transcript.show(each)
            if "toolCallId" in each["update"]:
                self._to_client.note_card(each["update"])

    def _is_outside(self, phase: Phase) -> bool:
        """Return True if what the agent does in this phase is done outside of a prompt."""
        return phase is Phase.LIVE and self._core.now.running is None

    def _taken(self, link: Link, params: Json) -> Json | None:
        """Return the update in the form that is recorded; None for one to drop, such as a leak."""
        update: Json = params["update"]
        if link.children and names_session(params):
            update = self._subagents.inward(link, update)
        excused = self._phase is Phase.LEAK and self._to_agent.busy
        try:
            return self._updates.incoming(update, self._phase, excused=excused)
        except Leak:
            self._leaked(link)
            return None

    def on_agent_request(self, link: Link, call: Call) -> None:
        self._spoke = self._progress = True
        self._transcript.flush()
        phase = self._core.now.phase(link.epoch)
        early = link.epoch == self._core.now.epoch and self._core.now.permits.asks_early
        if phase is Phase.NOTHING and not early:
            link.peer.fail(call.id, errors.cancelled())
            return
        call, child = self._subagents.request(link, call)
        goes_on = self._to_agent.busy or (child is not None and child.at_work)
        tainted = phase is Phase.LEAK and not goes_on
        try:
            stopped = self._core.now.stopped if phase is not Phase.LEAK else tainted
            refused = self._to_client.forward(link, call, stopped=stopped)
        except Leak:
            link.peer.fail(call.id, errors.cancelled())
            refused = tainted = True
        if call.method in ASKS_A_PERSON:
            self._updates.spoke = True
            if self._is_outside(phase):
                self._work.note()
        if refused and tainted:
            self._leaked(link)
        if link.at_clients.full and self._flooding is not link:
            self._flooding = link
            self._transcript.notice(agent_trouble.too_many_requests(MOST_OPEN))

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        self._spoke = True
        if method == CANCEL_REQUEST:
            link.at_clients.take_back(params["requestId"])
        elif method in ASKS_A_PERSON:
            event("agent.noise", agent=link.name, what="a question without an id")
        elif link.epoch == self._core.now.epoch and self._core.now.permits.notifies:
            if self._updates.children.of(link.children, params):
                event("agent.noise", agent=link.name, what="a notification of a subagent's")
                return
            if isinstance(params, dict) and "sessionId" in params:
                params = {**params, "sessionId": self._journal.info.session_id}
            self._transcript.notify(method, params)

    def on_batch_end(self, link: Link) -> None:
        self._to_client.ask_anew()
        if self._spoke:
            self._spoke = False
            if self._disturb:
                self._disturb()
        if self._progress:
            self._progress = False
            self._features.note_progress()
        self._transcript.end_read()
        if self._outside:
            self._core.settle()  # a call may have ended on which it has worked
        if (activity := link.activity) and link.epoch == self._core.now.epoch:
            self._work.note_activity(activity, link.epoch)

    async def room(self, link: Link) -> None:
        """Return when more of a process may be read: the agent waits for clients that don't read.

        A process is always read while it is drained (C7), and while it does not have the session:
        nothing that it says then waits for a client.
        """
        pacing = self._pacing
        if not self._transcript.full(pacing.lags_from):
            return
        pacing.look()
        while link.epoch == self._core.now.epoch and self._transcript.full(pacing.limit):
            slow = pacing.slow()
            if slow is None or not self._core.now.permits.paced:
                return
            await pacing.wait(slow)

    @property
    def unread(self) -> bool:
        """True while the process is not read, because a client doesn't read."""
        return self._pacing.waits

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        told_to_end = self._core.now.state is State.KILLING
        if not told_to_end and link.epoch == self._updates.epoch:
            self._updates.break_off()
        if link.shared and self._core.now.at_rest:  # the loss is another session's, or nobody's
            self._core.feed(ev.Sleep(link.epoch))
        elif link.initialized:  # else its start has failed, which says more
            self._core.feed(ev.AgentExited(link.epoch, link.why_ended or exit_))

    def on_occupied(self, link: Link) -> None:
        self._core.feed_at_once(ev.Occupied(link.epoch))

    def on_free(self, link: Link) -> None:
        self._core.feed_at_once(ev.Occupied(link.epoch, now=False))

    def on_dead(self, link: Link) -> None:
        self._core.feed(ev.TreeDead(link.epoch))

    # --- the session's state -------------------------------------------------------------------

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Show, after a drain, the states that were kept from clients in it.

        Ends a wait in `room` if the agent need not wait for clients any more.
        """
        if self._withheld and not self._core.now.permits.drains:
            withheld, self._withheld = self._withheld, {}
            for told in withheld.values():
                self._transcript.show(told)
        if self._pacing.waits and not self._core.now.permits.paced:
            self._pacing.hurry()

    def _note_state(self, link: Link, update: Json) -> Json | None:
        """Note a mode, options, a title or another state that the agent tells.

        Returns the update as it is to be shown, or None if no client is to see it.
        """
        chosen, now = self._user_settings, self._core.now
        again = now.permits.updates is Phase.REPLAY and chosen.repeats(update)
        # What a process says while it is given the session is of its defaults (invariant R13).
        announced = now.state is not State.RELOADING
        chosen.note_update(update, announced=announced)
        told_later = not announced and chosen.tells_later(update)
        update = self._features.note_state(link, update, announced=announced)
        return None if again or told_later else update

    def _leaked(self, link: Link) -> None:
        event("agent.unclean", session=self._journal.info.session_id, agent=link.name)
        self._core.feed(ev.Leaked(link.epoch))
