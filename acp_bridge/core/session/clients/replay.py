"""`session/load`, `session/resume` and an attach: the transcript as it was shown, then the answer.

- The transcript is read from the journal in pages, at the client's pace (invariants R1, R6), up to
  where it was when the load was read. What happens in the session from then on comes after it.
- It is read once: a load before the first process also notes what that one may replay late
  (invariant R11). Of a turn that another bridge's death interrupted only the turn itself is read
  before, unless it went on with a card of an older one (invariant C16).
"""

from __future__ import annotations

from functools import partial

from acp_bridge.core import errors
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.history import History
from acp_bridge.core.journal import GONE, WAL_GONE, JournalError, SessionJournal
from acp_bridge.core.journal.history import Extent
from acp_bridge.core.journal.place import Cursor, From, WrongCursor
from acp_bridge.core.machine.states import Standstill
from acp_bridge.core.protocol import (
    ATTACH,
    CONTINUES,
    CURSOR,
    STATE,
    Json,
    own_meta,
    with_own_meta,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.audience import Audience
from acp_bridge.core.session.clients.catching_up import CatchingUp
from acp_bridge.core.session.clients.shown import Shown, cursor_of
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.recovery import Recovery
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.transcript.client_view import ClientView, Quiet
from acp_bridge.core.session.transcript.places import Places
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.late_replay import LateReplay
from acp_bridge.core.updates.open_cards import ReplayedCards
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import RpcError


class Hold:
    """Keeps what happens in a session from one client, from now on until `end`."""

    def __init__(
        self,
        view: ClientView,
        places: Places,
        stands: Json,
        extent: Extent | None = None,
        *,
        replays: bool,
        whole: bool,
    ) -> None:
        """`replays`: the client is shown the transcript meanwhile, from its beginning if `whole`;
        else it is shown nothing old.

        `stands`: the session's state now, where the replay ends. `extent`: the journal's end now,
        to be closed in `end`; None: the replay ends where the journal does when it begins.
        """
        self.view = view
        self.stands = stands
        self.extent = extent
        self.ended = False
        #: for the cursors of what is recorded from now on.
        self.reading = places.begin() if view.takes_cursors else None
        self._places = places
        view.replays += whole
        self._replay = view.begin_replay(whole=replays, ahead=stands if extent else None)

    def begins(self, view: ClientView) -> bool:
        """Begin the replay of this view; False if what waited for it has been sent meanwhile."""
        return self.view is view and view.begins(self._replay)

    def end(self) -> None:
        """Send the client what waited for it; does nothing the second time."""
        self.ended = True
        if self.extent:
            self.extent.close()
        if self.reading:
            self._places.drop(self.reading)
        self.view.end_replay(self._replay)


class LaggingHold(Hold):
    """Keeps what happens from a client that will read it from the journal after its replay."""

    def __init__(
        self,
        view: ClientView,
        places: Places,
        stands: Json,
        extent: Extent,
        catching_up: CatchingUp,
        *,
        whole: bool,
    ) -> None:
        """`stands`, `extent` and `whole`: as for `Hold`, those of now."""
        self.view = view
        self.stands = stands
        self.extent = extent
        self.ended = False
        self.reading = places.begin()
        self.lag = catching_up.begin(view)
        self._places = places
        self._go_on = partial(catching_up.go_on, view, self.lag, extent)
        view.replays += whole

    def end(self) -> None:
        """Let the client read on where its replay ended; does nothing the second time."""
        if not self.ended:
            self.ended = True
            if self.reading:
                self._places.drop(self.reading)
            self._go_on()


class Replay:
    """Shows one session to the clients that load it."""

    def __init__(
        self,
        core: Core,
        journal: SessionJournal,
        transcript: TranscriptOut,
        prompts: Prompts,
        user_settings: UserSettings,
        pauses: Pauses,
        audience: Audience,
        recovery: Recovery,
        updates: Updates,
        *,
        agent_replays: bool,
    ) -> None:
        """`agent_replays`: a process that is given the session will replay it, too."""
        self._core = core
        self._journal = journal
        self._transcript = transcript
        self._prompts = prompts
        self._user_settings = user_settings
        self._pauses = pauses
        self._audience = audience
        self._recovery = recovery
        #: notices for the client that is shown the session next.
        self.said: list[str] = []
        self._updates = updates
        self._agent_replays = agent_replays
        self._pacing = pacing = audience.pacing
        self._catching_up = CatchingUp(core, journal, transcript, audience, self.replay_state)
        pacing.look = self._catching_up.look

    def hold(self, view: ClientView, *, whole: bool) -> Hold:
        """Keep updates from this client until its load has replayed the transcript up to now.

        `whole`: from its beginning. Raises JournalError.
        """
        self._transcript.flush()
        extent = self._journal.extent()
        places, stands = self._transcript.places, self._stands(view)
        return Hold(view, places, stands, extent, replays=True, whole=whole)

    def _stands(self, view: ClientView) -> Json:
        return self._audience.standing.for_load(view)

    async def load(
        self,
        request: ClientRequest,
        history: History,
        *,
        attached: bool = False,
        held: Hold | None = None,
    ) -> None:
        """Show the session to the client, then answer the request.

        `history`: how much of it is shown; with a cursor, what follows that is shown instead.
        `attached`: other clients have it, so the answer says which folder counts. `held`: its hold
        since the request was read. Raises JournalError, or RpcError when the session is closed
        meanwhile, or the client leaves it, or has a cursor of something else.
        """
        if ended := self._ended():
            raise ended
        after = cursor_of(request)
        history = History.FULL if after else history
        replay, whole = history is History.FULL, history is History.FULL and after is None
        has_it = self._transcript.view_of(request.client) is not None
        view = self._transcript.attach(request.client)
        self._audience.note_history(request.client, history)
        if view.lag and not replay:  # it is shown what it lacks before
            await view.lag.over.wait()
        hold = held if held and held.begins(view) else None
        hold = hold or self._new_hold(view, replays=replay, whole=whole)
        view.missed_some &= not replay
        try:
            cursor = await self._show(request, hold, after, history)
            request.answer(self.result(request, hold.stands, attached=attached, cursor=cursor))
            if history is History.NONE:
                self._audience.standing.note_answered(view, hold.stands)
        except WrongCursor as exc:
            if not has_it:
                self._audience.leave(request.client, had=False)
            raise errors.wrong_cursor(str(exc)) from None
        except JournalError as exc:
            raise self._unreadable(exc) from exc
        else:
            hold.end()
            if not self._transcript.seq and request.method != ATTACH:
                view.hush(Quiet.ASIDES)
        finally:
            hold.end()
            if not view.over:  # also if it has failed: the client has the session
                self._audience.welcome(request.client, history)

    def _new_hold(self, view: ClientView, *, replays: bool, whole: bool) -> Hold:
        """Return a hold on what happens from now on, for a client that is shown the session."""
        # What waits for a load that was read meanwhile comes behind this one's answer.
        places, stood = self._transcript.places, None if replays else view.stood
        stands = stood or self._stands(view)
        if replays and view.may_lag and not self._journal.behind:
            extent = self._journal.extent()
            return LaggingHold(view, places, stands, extent, self._catching_up, whole=whole)
        return Hold(view, places, stands, replays=replays, whole=whole)

    async def _show(
        self, request: ClientRequest, hold: Hold, after: Cursor | None, history: History
    ) -> str | None:
        """Show the client what comes before the answer; returns the cursor behind that."""
        view = hold.view
        if history is History.FULL:
            cursor = await self._read(view, hold, after)
            self.replay_state(view)
        else:
            reading = hold.reading
            cursor = await self._transcript.places.read(reading) if reading else None
            self._say_what_goes_on(view, request)
        if history is not History.NONE:
            self._say_what_waits(view, request)
        return cursor

    def _ended(self) -> RpcError | None:
        """Return the error for a load of a session that has ended, None if it has not.

        When the bridge ends it is `cancelled`, as for loads that ran when it began to end.
        """
        if self._core.closing:
            return errors.unknown_session()
        return errors.cancelled() if self._journal.closed else None

    def _unreadable(self, exc: JournalError) -> Exception:
        """Return the error for a load whose session can't be read from the journal."""
        if ended := self._ended():  # while it was read
            return ended
        gone = str(exc) in (GONE, WAL_GONE)
        return errors.agent_trouble(f"the session can't be read: {exc}") if gone else exc

    def _say_what_goes_on(self, view: ClientView, request: ClientRequest) -> None:
        """Show a client that is replayed nothing which subagents there are.

        One that saw the session until another bridge ended (`continues`) is shown in place of that
        how the turn and the subagents that ran there have ended.
        """
        continues = own_meta(request.params).get(CONTINUES)
        for params in [] if continues else self._transcript.children_for(request.client):
            view.replay(params)
        shown = self._transcript.for_replay(request.client, whole=False)
        for params in self._recovery.said if continues else []:
            for each in shown(params):
                view.replay(each)

    def _say_what_waits(self, view: ClientView, request: ClientRequest) -> None:
        named = self._transcript.named
        if self._journal.behind:
            view.replay(named(notices.notice(notices.unrecorded(self._journal.why))))
        for text in self.said:
            view.replay(named(notices.notice(text)))
        self.said = []
        if left := self._prompts.left_over:
            view.replay(named(notices.notice(notices.left_over(self._prompts.numbered(left)))))
        if self._pauses.told is not Standstill.OPEN and (said := self._pauses.said):
            view.replay(named(notices.notice(said)))
        knows = request.method == ATTACH or request.client.abilities.has_stop
        if not knows and (work := self._audience.at_work(request.client)):
            view.replay(named(notices.notice(work)))

    def answer(self, request: ClientRequest, cursor: str | None) -> None:
        """Answer a load of a session that was filled just now, which its client was shown.

        `cursor`: as for `result`. The open questions and the state follow the answer.
        """
        view = self._transcript.view_of(request.client)
        stands = self._stands(view) if view else None
        request.answer(self.result(request, stands, cursor=cursor))
        if view:
            self._audience.welcome(request.client)

    def result(
        self,
        request: ClientRequest,
        stands: Json | None = None,
        *,
        attached: bool = False,
        cursor: str | None = None,
    ) -> Json:
        """Return the result of `session/load` or `resume`, fit for the client that asked.

        `stands`: the state up to which it was shown the session, None: that of now. `cursor`: that
        behind all that it was shown, if it wants to know.
        """
        own: Json = {"agentSessionId": self._journal.info.agent_session_id}
        if cursor:
            own[CURSOR] = cursor
        if attached:
            clients = len(self._transcript.views)
            own["attached"] = {"cwd": self._core.workspace.cwd, "clients": clients}
        if left := self._prompts.left_over:
            own["held"] = [params["prompt"] for params in left.values()]
        if self._pauses.told is not Standstill.OPEN:
            own["pause"] = self._pauses.state
        if request.client.abilities.hears_state:
            own["state"] = stands or self._audience.standing.told_to(request.client)
        return with_own_meta(request.client.abilities.fit(self._user_settings.shown), own)

    def replay_state(self, view: ClientView) -> None:
        """Show the last update of each kind of state."""
        view.drop_waiting_states()
        for kind in STATE:
            if params := self._journal.get(f"state:{kind}"):
                view.replay(params)

    async def _read(self, view: ClientView, hold: Hold, after: Cursor | None) -> str | None:
        """Show the transcript from a cursor up to the hold's extent, or to now; note what is needed
        to recognize a late replay of the agent's.

        Returns the cursor behind it, if the client wants to know. Raises WrongCursor.
        """
        late = LateReplay() if self._agent_replays and not self._core.now.epoch else None
        turn_runs = bool(self._transcript.seq)
        cards = ReplayedCards(self._updates.notes, self._updates.worked_on(turn_runs=turn_runs))
        marks = hold.reading is not None and hold.reading.whole
        divided = From(self._core.id, after) if after or marks else None
        shown = Shown(view, cards, self._transcript.for_replay(view.client), divided, marks=marks)
        async for page in self._journal.replay(up_to=hold.extent):
            for params in page:
                if late:
                    late.note(params)
                shown.show(params)
            # One on a socket is let go at the limit, and what is live is to count for that.
            most = self._pacing.limit
            limit = (most + 1) // 2 if view.client.on_socket else most
            limit = self._pacing.lags_from if view.lag else limit
            self._check_goes_on(view)  # else nobody would hurry the wait
            if view.client.outgoing.pending >= limit:
                event("client.slow", session=self._journal.info.session_id)
                await view.pace(limit)
                self._check_goes_on(view)
        shown.end()
        cursor = str(divided.place.cursor) if divided and marks else None
        if divided and hold.reading:
            if view.lag and marks:
                view.lag.place = divided.place.copy()
            self._transcript.places.done(hold.reading, divided.end())
        if not self._core.now.epoch:  # else turns may run that it does not have
            self._updates.just_read = late
        return self._end_cards(view, cards, cursor)

    def _check_goes_on(self, view: ClientView) -> None:
        """Raise RpcError if the session has ended while it was read, or the client has left it."""
        if self._core.closing:
            raise errors.unknown_session()
        if view.over:
            raise errors.refused(
                "the session went on without this client while it was loaded: load it again"
            )

    def _end_cards(self, view: ClientView, cards: ReplayedCards, cursor: str | None) -> str | None:
        """End the cards that a replay leaves open; returns the cursor behind all that it shows."""
        self._transcript.flush()
        places = self._transcript.places
        for card, params in cards.ends():
            if self._updates.settle(card):  # for all, once
                has_all = cursor is not None and cursor == places.cursor
                self._transcript.show_replayed(view, params, has_all=has_all)
                cursor = places.cursor if has_all else cursor
        return cursor
