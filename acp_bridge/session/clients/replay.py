"""`session/load` and `session/resume`: the transcript as it was shown, then the answer.

- The transcript is read from the journal in pages, at the client's pace (invariants R1, R6), up to
  where it was when the load was read. What happens in the session from then on comes after it.
- It is read once: a load before the first process also notes what that one may replay late
  (invariant R11). Of a turn that another bridge's death interrupted only the turn itself is read
  before, unless it went on with a card of an older one (invariant C16).
"""

from __future__ import annotations

from typing import Protocol

from acp_bridge import errors, notices
from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.journal import GONE, WAL_GONE, JournalError, PromptState, SessionJournal
from acp_bridge.journal.records import Moment
from acp_bridge.late_replay import LateReplay
from acp_bridge.log import event
from acp_bridge.open_cards import OpenCards
from acp_bridge.protocol import (
    ATTACH,
    CONTEXT,
    CONTINUES,
    STATE,
    Json,
    is_feedback,
    own_meta,
    with_own_meta,
)
from acp_bridge.session.opening import Workspace
from acp_bridge.session.prompts.pauses import Pauses
from acp_bridge.session.prompts.prompts import Prompts
from acp_bridge.session.requests.user_settings import UserSettings
from acp_bridge.session.transcript.client_view import ClientView, Quiet
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates import for_replay
from acp_bridge.wire.jsonrpc import encode


class ReplayPort(Protocol):
    """What a replay needs of its session."""

    @property
    def closing(self) -> bool:
        """True once the session is being closed: a replay of it ends."""

    @property
    def epoch(self) -> int:
        """The process that has the session, or gets it; 0 while there was none."""

    @property
    def workspace(self) -> Workspace:
        """Where the session works now."""

    def welcome(self, client: Client) -> None:
        """Note that a client has been shown the session."""

    @property
    def agent_replays(self) -> bool:
        """True when a process that is given the session will replay it, too."""


class WorkPort(Protocol):
    """What a replay needs of the session's other clients and their prompts."""

    def at_work(self, client: Client) -> str | None:
        """Return what is said to a client of prompts without an end, if there are any."""


class Hold:
    """What happens in a session waits for one client from now on, until `end`."""

    def __init__(self, view: ClientView, moment: Moment | None = None, *, whole: bool) -> None:
        """`whole`: the transcript is replayed before, up to the moment if one is given.

        The moment is owned here.
        """
        self.view = view
        self.moment = moment
        self.ended = False
        view.replays += whole
        self._replay = view.begin_replay(whole=whole, ahead=moment is not None)

    def begins(self, view: ClientView) -> bool:
        """Return True if what has waited in this view since the load was read waits still."""
        return self.view is view and view.begins(self._replay)

    def end(self) -> None:
        """Let go what waited; does nothing the second time."""
        self.ended = True
        if self.moment:
            self.moment.close()
        self.view.end_replay(self._replay)


class Replay:
    """Shows one session to the clients that load it."""

    def __init__(
        self,
        port: ReplayPort,
        journal: SessionJournal,
        transcript: TranscriptOut,
        prompts: Prompts,
        user_settings: UserSettings,
        pauses: Pauses,
        work: WorkPort,
        limit: int,
    ) -> None:
        """`limit`: bytes that may wait for a client before more is read."""
        self._port = port
        self._journal = journal
        self._transcript = transcript
        self._prompts = prompts
        self._user_settings = user_settings
        self._pauses = pauses
        self._work = work
        self._limit = limit
        #: what was said of a turn that another bridge has left: for each client of that one.
        self._left: list[Json] = []
        #: what was read of the conversation, for the first process that is given the session.
        self._replayed: LateReplay | None = None

    async def recover(self) -> None:
        """Settle what another bridge left: cards are closed, turns interrupted, prompts held.

        Raises JournalError.
        """
        ends: dict[int, bytes] = {}
        for row in self._journal.prompts(PromptState.SENT):
            said = [{"update": update} for update in await self._left_open(row.seq)]
            lost = notices.MISSING if row.outcome else notices.INTERRUPTED
            said.append(notices.notice(lost))
            self._left += said
            ends[row.seq] = b"".join(encode(params) for params in said)
        waited = self._journal.recover(ends)
        # A hook's feedback was to run before all that waited, however long they had.
        for row in sorted(waited, key=lambda row: not is_feedback(row.params)):
            self._prompts.add_held(row.params, row.seq)

    async def _left_open(self, turn: int) -> list[Json]:
        """Return the updates that end the cards which were shown in a turn and have no end."""
        cards = await self._cards(turn)
        if not cards.older:
            return cards.closing()
        still_open = (await self._cards(None)).closing()
        return [update for update in cards.closing() if update in still_open]

    async def _cards(self, turn: int | None) -> OpenCards:
        cards = OpenCards()
        async for page in self._journal.replay(turn=turn):
            for params in page:
                cards.note(params.get("update"))
        return cards

    def hold(self, view: ClientView) -> Hold:
        """Let what happens from now on wait for a load by this client. Raises JournalError."""
        self._transcript.flush()
        return Hold(view, self._journal.moment(), whole=True)

    async def load(
        self,
        request: ClientRequest,
        *,
        replay: bool,
        attached: bool = False,
        held: Hold | None = None,
    ) -> None:
        """Show the session to the client (a resume replays nothing), then answer the request.

        `attached`: others had it, so the answer says which folder counts. `held`: the client had
        it when its request was read. Raises RpcError when the session is closed meanwhile, or the
        client leaves it, JournalError.
        """
        if self._port.closing:
            raise errors.unknown_session()
        view = self._transcript.attach(request.client)
        hold = held if held and held.begins(view) else Hold(view, whole=replay)
        try:
            if replay:
                view.missed_some = False
                await self._read(view, hold.moment)
                self.replay_state(view)
            elif own_meta(request.params).get(CONTINUES):
                for params in self._left:
                    view.replay(params)
            self._say_what_waits(view, request)
            request.answer(self.result(request, attached=attached))
        except JournalError as exc:
            if self._port.closing:  # it was deleted while it was read
                raise errors.unknown_session() from None
            if str(exc) in (GONE, WAL_GONE):
                raise errors.agent_trouble(f"the session can't be read: {exc}") from exc
            raise
        else:
            hold.end()
            if not self._transcript.seq and request.method != ATTACH:
                view.hush(Quiet.ASIDES)
        finally:
            hold.end()
            if not view.over:  # also if it has failed: the client has the session
                self._port.welcome(request.client)

    def _say_what_waits(self, view: ClientView, request: ClientRequest) -> None:
        if self._journal.behind:
            view.replay(notices.notice(notices.UNRECORDED))
        if held := list(self._prompts.held.values()):
            view.replay(notices.notice(notices.held(held)))
        if said := self._pauses.said:
            view.replay(notices.notice(said))
        if request.method != ATTACH and (work := self._work.at_work(request.client)):
            view.replay(notices.notice(work))

    def result(self, request: ClientRequest, *, attached: bool = False) -> Json:
        """Return the result of `session/load` or `resume`, fit for the client that asked."""
        own: Json = {"agentSessionId": self._journal.info.agent_session_id}
        if attached:
            clients = len(self._transcript.views)
            own["attached"] = {"cwd": self._port.workspace.cwd, "clients": clients}
        if held := self._prompts.held:
            own["held"] = [params["prompt"] for params in held.values()]
        if pause := self._pauses.state:
            own["pause"] = pause
        return with_own_meta(request.client.abilities.fit(self._user_settings.shown), own)

    def replay_state(self, view: ClientView) -> None:
        """Show the last update of each kind of which only the last one counts."""
        view.drop_waiting_states()
        for kind in STATE:
            if params := self._journal.get(f"state:{kind}"):
                view.replay(params)

    def take_replayed(self) -> LateReplay | None:
        """Return what a load has read of the conversation: for the first process, once."""
        replayed, self._replayed = self._replayed, None
        return replayed

    async def _read(self, view: ClientView, moment: Moment | None) -> None:
        """Show the transcript up to a moment, or to now; note what an agent may replay late."""
        late = LateReplay() if self._port.agent_replays and not self._port.epoch else None
        async for page in self._journal.replay(up_to=moment):
            for params in page:
                if late:
                    late.note(params)
                if not own_meta(params).get(CONTEXT):
                    view.replay(for_replay(params))
            # One on a socket is let go at the limit, and what is live is to count for that.
            limit = (self._limit + 1) // 2 if view.client.on_socket else self._limit
            if view.client.outgoing.pending >= limit:
                event("client.slow", session=self._journal.info.session_id)
                await view.pace(limit)
            if self._port.closing:
                raise errors.unknown_session()
            if view.over:
                raise errors.refused(
                    "the session went on without this client while it was loaded: load it again"
                )
        if not self._port.epoch:  # else turns may run that it does not have
            self._replayed = late
