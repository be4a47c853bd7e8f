"""The clients that have one session: who may prompt, whose Stop means what, who leaves.

- A client's Stop is about its own prompts. One that has none stops the turn that runs only if no
  client that has the session waits for it: some send a Stop before every prompt (invariant V4).
- For a Stop, a prompt that a client waits for with `/queue wait` counts as that client's own.
- A Stop where no prompt is open is for what the agent does outside of prompts. It waits for a
  moment, and is void if a prompt of the same client comes.
- The prompts of a client that leaves run like any other; their answers go nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import anyio

from acp_bridge.core import errors
from acp_bridge.core.clients.client import Client
from acp_bridge.core.clients.rights import Right
from acp_bridge.core.history import History
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Standstill, State
from acp_bridge.core.protocol import (
    PROMPT_ID,
    QUEUE,
    SESSION_STATE,
    SESSION_UPDATE,
    Json,
    LiveState,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.questions import Questions
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.feature import Features
from acp_bridge.core.session.process.work import Background
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.transcript.client_view import ClientView
from acp_bridge.core.session.transcript.pacing import Pacing
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates import notices

#: characters of a prompt that are told.
_LENGTH: Final = 200
#: the words for states that nothing else decides.
_WORDS: Final = {
    State.CLOSED: LiveState.CLOSED,
    State.DRAINING: LiveState.CANCELLING,
    State.BLOCKED: LiveState.BLOCKED,
    State.UNAUTHENTICATED: LiveState.BLOCKED,
}


class Standing:
    """Sends one session's state, at each change, to the clients that declared that they want it.

    The state passes any quiet, since it is no update of the session. Of what happens while a client
    is being shown the session, each state has its place behind the replay: a turn ends below its
    words (invariant X3). `closed` is told only if somebody has closed it: when the bridge ends, the
    session is kept, and may be opened elsewhere at once.
    """

    def __init__(
        self,
        core: Core,
        transcript: TranscriptOut,
        prompts: Prompts,
    ) -> None:
        """The session has no client yet."""
        #: somebody closes the session for all.
        self.closing = False
        self._core = core
        self._transcript = transcript
        self._prompts = prompts
        self._word = LiveState.IDLE
        self._since = anyio.current_time()
        self._told: tuple[object, ...] = ()
        #: what each client was told last, since its last load, but for the seconds.
        self._heard: WeakKeyDictionary[ClientView, Json] = WeakKeyDictionary()
        #: what waits, as the clients were told it.
        self._queue: list[Json] = []

    def follow(self, after: SessionState) -> None:
        """Tell the clients a change of the session's state, but not that the bridge ends."""
        now = after.turns
        if now.ending and not self.closing:
            return
        word = self._word_for(after)
        if word != self._word:
            self._word, self._since = word, anyio.current_time()
        around = after.around
        stands = word, len(now.waiting), around.clients, now.running, around.background
        if stands != self._told:
            self._told = stands
            for view in self._transcript.views:
                self._tell(view)
        self.follow_queue()

    def follow_queue(self) -> None:
        """Tell the clients which prompts wait, if a prompt, its words or the order has changed."""
        if (listed := self._listed()) != self._queue:
            self._queue = listed
            for view in self._transcript.views:
                self._tell_queue(view)

    def _listed(self) -> list[Json]:
        """Return what waits; nothing if no client wants to know."""
        hear = any(view.client.abilities.hears_queue for view in self._transcript.views)
        return self._prompts.listed() if hear else []

    def _tell_queue(self, view: ClientView) -> None:
        if not view.client.abilities.hears_queue or view.replaying:
            return
        rows = []
        for key in self._prompts.unsent:
            prompt = self._prompts.get(key)
            text = notices.summary(prompt.params["prompt"], _LENGTH)
            mine = prompt.is_of(view.client)
            rows.append({**self._prompts.named(key), "text": text, "mine": mine})
        view.client.peer.notify(QUEUE, {"sessionId": self._core.id, "prompts": rows})

    def welcome(self, but: ClientView | None = None) -> None:
        """Tell all clients the state anew: one more client has been shown the session.

        `but`: a client that is not told what waits.
        """
        self._told, self._queue = (), self._listed()
        self.follow(self._core.state)
        for view in self._transcript.views:
            if view is not but:
                self._tell_queue(view)

    def note_answered(self, view: ClientView, stands: Json) -> None:
        """Note that a client has been told this state, by the answer to its request."""
        self._heard[view] = {**stands, "seconds": 0}

    def row(self) -> Json:
        """Return the state as members of this session's row in `_acp_bridge/live`."""
        self.follow(self._core.state)
        row = self._params()
        if asked := self._core.state.around.asked:
            more = f" (and {asked.count - 1} more)" if asked.count > 1 else ""
            row["asks"] = asked.oldest + more
        return row

    def _tell(self, view: ClientView) -> None:
        if view.client.abilities.hears_state:
            view.then(partial(self._say, view, self.told_to(view.client)))

    def _say(self, view: ClientView, told: Json) -> None:
        heard = {**told, "seconds": 0}
        if not view.over and heard != self._heard.get(view):
            self._heard[view] = heard
            view.client.peer.notify(SESSION_STATE, told)

    def for_load(self, view: ClientView) -> Json:
        """Return the state for the answer to a client's load, behind which it is told once more."""
        self._heard.pop(view, None)
        return self.told_to(view.client)

    def told_to(self, client: Client) -> Json:
        """Return the parameters of `_acp_bridge/state` for a client."""
        told, now = self._params(), self._core.now
        if (key := now.running) is not None:
            prompt = self._prompts.get(key)
            mine = client.identity in self._prompts.askers(now.unanswered[0])
            text = notices.first_line(prompt.params["prompt"], _LENGTH)
            told["turn"] = {"promptId": prompt.prompt_id, "mine": mine, "text": text}
            if prompt.edited:  # its client is shown the words, as all are
                told["turn"]["edited"] = True
        if self._prompts.last_end:
            told["last"] = self._prompts.last_end
        return told

    def _params(self) -> Json:
        told: Json = {
            "sessionId": self._core.id,
            "state": self._word,
            "seconds": int(anyio.current_time() - self._since),
            "waiting": len(self._core.now.waiting),
            "clients": len(self._transcript.views),
        }
        if (background := self._core.state.around.background) is not None:
            told["background"] = list(background)
        return told

    def _word_for(self, stand: SessionState) -> LiveState:
        now = stand.turns
        state, stands = now.state, now.standstill
        ends = state is State.KILLING and now.running is not None
        if word := LiveState.CANCELLING if ends else _WORDS.get(state):
            return word
        if stands is Standstill.PAUSED:
            return LiveState.PAUSED
        if stand.around.asked:
            return LiveState.PERMISSION
        if state is State.RUNNING:
            return LiveState.RUNNING
        if state is State.WORKING and (stands is not Standstill.OPEN or not now.unanswered):
            return LiveState.WORKING
        if stands is not Standstill.OPEN:
            return LiveState.HELD
        if now.asleep:
            return LiveState.ASLEEP
        if state in (State.STARTING, State.RELOADING, State.KILLING):
            return self._word if self.closing else LiveState.STARTING  # nothing starts then
        return LiveState.RUNNING if now.unanswered else LiveState.IDLE


class Audience:
    """Knows the clients that have one session: who may prompt, what a Stop ends, who leaves."""

    def __init__(
        self,
        core: Core,
        settings: Settings,
        transcript: TranscriptOut,
        prompts: Prompts,
        questions: Questions,
        features: Features,
        background: Background,
        close: Callable[[], None],
    ) -> None:
        """Nobody has the session before `TranscriptOut.attach`; `close` ends it."""
        self.pacing = Pacing(
            core, transcript, settings.client_limit, self.go_on_without, settings.unread
        )
        self._core = core
        self._stop_delay = settings.stop_delay
        #: the Stops that wait for a moment, by client.
        self._stops: dict[Client, anyio.CancelScope] = {}
        self._transcript = transcript
        self._prompts = prompts
        self._questions = questions
        self._features = features
        self._background = background
        self._close = close
        self.standing = Standing(core, transcript, prompts)
        #: the clients that the session went on without, since they did not read.
        self._detached: set[Client] = set()
        #: a client has closed the session while others had it.
        self._closed_by_one = False
        self._ended = False

    # --- prompts and Stop ----------------------------------------------------------------------

    def check_prompt(self, client: Client) -> None:
        """Raise RpcError unless the client has the session, or the session went on without it.

        In that case the client, which had not read for long, is shown the session again.
        """
        if client in self._detached:
            self._transcript.attach(client)
            self.welcome(client)
        elif self._transcript.view_of(client) is None:
            raise errors.refused(
                "this client does not have the session open: load it, resume it or attach to it"
                " first"
            )

    def cancel(self, client: Client, bound: str | None = None) -> None:
        """Carry out a client's `session/cancel`; `bound`: only if the prompt of this key is open.

        That of a client of version 2 lets what runs in the background go on; that of a client of
        version 1 ends it, also where nothing else runs.
        """
        if bound is not None and self._prompts.sent_under(bound) is None:
            return
        self._features.note_stop(client)
        if own := self.own(client):
            self._stop(client, own)
        elif self._prompts.stop_waiting(client):
            pass  # what is left over is nothing to stop
        elif self._may_stop(client):
            if oldest := self._core.now.unanswered[:1]:
                self._stop(client, frozenset(oldest))
            elif self._core.now.may_work and client not in self._stops:
                self._stops[client] = anyio.CancelScope()
                self._core.spawn(self._stop_work, client, self._stops[client])
            elif not client.abilities.shows_said and not self._core.now.may_work:
                self._background.stop()

    async def _stop_work(self, client: Client, scope: anyio.CancelScope) -> None:
        """Stop what the agent does outside of prompts, unless a prompt of the client comes."""
        with scope:
            await anyio.sleep(self._stop_delay)
        if not scope.cancel_called:
            del self._stops[client]
            self._stop(client, frozenset())

    def _stop(self, client: Client, keys: frozenset[int]) -> None:
        """Cancel the turns of these prompts, or what the agent does outside of turns."""
        self._core.feed(ev.Cancel(keys, spares=client.abilities.shows_said))

    def take_back_stop(self, client: Client) -> None:
        """Drop a Stop that waits: the client has sent a prompt right behind it (invariant V4)."""
        if scope := self._stops.pop(client, None):
            scope.cancel()

    def own(self, client: Client) -> frozenset[int]:
        """Return the keys of the open prompts whose end this client waits for."""
        keys, clients_of = self._core.now.unanswered, self._prompts.clients_of
        return frozenset(key for key in keys if client.identity in clients_of(key))

    def has(self, client: Client) -> bool:
        """Return True if the client has the session, also if that went on without the client."""
        return client in self._detached or self._transcript.view_of(client) is not None

    def _may_stop(self, client: Client) -> bool:
        """Return True if a Stop of this client, which waits for no prompt, may end the oldest one.

        It may not while a client that has the session waits for that prompt.
        """
        oldest = self._core.now.unanswered[:1]
        waiting = [each for key in oldest for each in self._prompts.clients_of(key)]
        waits = any(view.client.identity in waiting for view in self._transcript.views)
        return not waits and self.has(client) and client.may(Right.STOP)

    def cancel_turn(self, params: Json) -> Json:
        """Cancel the turn that runs, whoever asked for it; returns the answer to
        `_acp_bridge/cancel`.

        Where no turn runs, what the agent does outside of prompts is cancelled. With a `promptId`
        in `params` only the turn of that prompt is; with null only work outside of prompts.
        Raises RpcError for a `promptId` that is neither a text nor null.
        """
        now = self._core.now
        runs, works = now.foremost is not None, now.may_work
        if PROMPT_ID in params:
            bound = params[PROMPT_ID]
            if bound is not None and not isinstance(bound, str):
                raise errors.invalid("must be a text or null", PROMPT_ID)
            works = works and bound is None and not runs
            keys = {now.foremost, now.running} if runs else set[int | None]()
            found = [self._prompts.find(key) for key in keys if key is not None]
            runs = any(prompt is not None and prompt.prompt_id == bound for prompt in found)
        if runs or works:
            self._core.feed(ev.Cancel(None if runs else frozenset()))
        return {"cancelled": runs or works}

    def at_work(self, client: Client) -> str | None:
        """Return the notice of running turns and waiting prompts for a client that has just loaded.

        None if there are none but its own.
        """
        now, own = self._core.now, self.own(client)
        others = [self._prompts.find(key) for key in now.unanswered if key not in own]
        if all(each and each.delivery == "steered" for each in others):  # those are no turns
            return None
        running, waiting = now.running, self._prompts.numbered(now.waiting)
        if running is None and not waiting:  # hooks run at the end of its turn
            running = now.unanswered[0]
        runs = None if running is None else self._prompts.get(running).params
        return notices.at_work(runs, waiting)

    # --- who comes and goes --------------------------------------------------------------------

    def has_others(self, client: Client) -> bool:
        """Return True when another client has the session, or has a prompt here and may come back.

        A client with a name may come back after the end of its connection.
        """
        away = self._prompts.away(*self._core.now.unanswered)
        has = any(each.identity != client.identity for each in away)
        return has or self._transcript.has_others(client)

    def note_history(self, client: Client, history: History) -> None:
        """Note how much of the session a client is about to be shown.

        With `History.NONE` it is not asked the questions that are open now.
        """
        self._questions.pass_over(client, history is History.NONE)

    def welcome(self, client: Client, history: History = History.FULL) -> None:
        """Send the open questions, and the state, to a client that was just shown the session.

        `history`: as for `note_history`.
        """
        self._detached.discard(client)
        self._closed_by_one = False
        self._prompts.note_opened(client)
        self.go_on(client, history)

    def go_on(self, client: Client, history: History = History.FULL) -> None:
        """Send the open questions, and the state, to a client that has been shown all else.

        `history`: as for `note_history`.
        """
        view = self._transcript.view_of(client)
        if self._questions.asked and not (view and view.lag):
            self._questions.ask_too(client)
        self.standing.welcome(but=view if history is History.NONE else None)
        self._core.settle()

    def leave(self, client: Client, *, closes: bool = False, had: bool = True) -> None:
        """Take the session from a client; `closes`: the client closed it while others have it.

        `had`: False if it was only about to open it, so that no question comes to wait for it.
        """
        self._closed_by_one |= closes and self.has(client)
        if closes:
            self._prompts.note_closed(client)
        self._detached.discard(client)
        if self._transcript.detach(client) or closes:
            self._questions.withdraw(client, closes=closes, returns=had and not closes)
        self._core.settle()
        self._end_if_left()

    def go_on_without(self, view: ClientView) -> None:
        """Let the session go on without a client that reads too little.

        A client on a socket is disconnected. The one on stdin is told when it reads again, and has
        the session again with its next load or prompt.
        """
        client = view.client
        event("client.left_behind", clients=len(self._transcript.views))
        self.leave(client)
        if client.on_socket:
            client.let_go("too much was not read: attach again to see the session whole")
            return
        self._detached.add(client)
        said = {"sessionId": self._core.id, **notices.notice(notices.DETACHED)}
        client.peer.notify(SESSION_UPDATE, said)

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Tell clients a change of the session's state; end a closed session that nobody has."""
        self.standing.follow(after)
        if self._closed_by_one:
            self._end_if_left()

    def _end_if_left(self) -> None:
        """End a session that a client has closed, once it has neither a client nor work."""
        left = not self._transcript.views and not self._detached
        if self._closed_by_one and left and not self._core.state.busy:
            self._closed_by_one = False
            self._close()

    def end(self, by: Client | None, said: str) -> None:
        """Tell all clients but `by` how the session ends; end loads whose replay has not begun."""
        # What waits for a load that was read is in the transcript of whoever opens it again.
        for view in self._transcript.views:
            if view.is_ahead:
                self._questions.withdraw(view.client, closes=True, returns=False)
                self._transcript.detach(view.client)
        if by and not self._ended:
            self._transcript.end_quiet_of_all()
            self._transcript.show_to_others(by, notices.notice(said))
        self._ended = self.standing.closing = True
        for view in self._transcript.views:
            view.hurry()
