"""Keeps the prompts of one session that have no outcome yet, and records them in the journal.

A prompt is known here by its key from reading to outcome; the journal gives it a number (`seq`)
when it is accepted.

A client with a name that comes back on another connection has sent what it sent on earlier ones: so
requests are kept here when their connections have ended. Of a prompt that was sent again and again
on connections that end, only a few are kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import uuid4

import anyio
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.journal import (
    DROPPED,
    INTERRUPTED,
    DatabaseAway,
    JournalError,
    PromptRow,
    PromptState,
    SessionJournal,
    told,
)
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.effects import Cancelled, Done, Failed, Failure, Outcome, Replied
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import (
    ACCEPTED,
    PERHAPS_READ,
    Json,
    own_meta,
    prompt_key,
    with_own_meta,
)
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.prompts import answers
from acp_bridge.core.session.transcript.client_view import ClientView
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import Answer, Ok

#: why a prompt that was to join a turn is left over.
_LEFT: Final = (Failure.NOT_JOINED, Failure.PERHAPS_UNREAD)
#: so many requests of `Prompt.again` are kept whose connections have ended.
_ENDED: Final = 8


class Prompt(Struct):
    """A prompt that waits, runs, or is left over."""

    params: Json
    #: the request that waits for the answer; None for one that is left over.
    request: ClientRequest | None
    #: the requests that brought it once more under its key (invariant X2).
    again: list[ClientRequest] = field(default_factory=list)
    #: the requests in `again` whose clients want to be told that it is on disk, and were not.
    untold: list[ClientRequest] = field(default_factory=list)
    #: its number in the journal; 0 until it is written there.
    seq: int = 0
    #: the journal has it as left over; if that could not be written, it waits there still.
    is_left_over: bool = False
    #: how the agent ended its turn, while hooks may still send the agent back to work.
    answer: object = None
    #: what the agent answered when the prompt had been cancelled.
    cancelled_with: object = None
    #: the client that sent it; None for one that is left over, and for a hook's feedback.
    client: Client | None = None
    #: the clients that have sent it, and how many replays each had been shown then.
    senders: dict[Client, int] = field(default_factory=dict)
    #: the blocks that hooks have added to it for the agent.
    added: list[Json] = field(default_factory=list)
    #: the user has given it other words since its client sent it.
    edited: bool = False
    #: it was sent into a turn, so the transcript has its words there.
    shown: bool = False
    #: the turn in which it was to be sent while the journal was away, so that it waits again; the
    #: journal has perhaps noted it as sent. 0: none.
    put_off: int = 0
    #: the clients that were shown its words in that turn, in the form of `senders`.
    seen: dict[Client, int] = field(default_factory=dict)
    #: the `_session/steering` that brought it, until that is answered.
    steering: ClientRequest | None = None
    #: for one that was to join a turn, what the answer tells: "steered" or "queued".
    delivery: str = ""
    prompt_id: str = field(default_factory=lambda: uuid4().hex)
    #: those of its clients that have closed the session, by identity.
    closed_by: set[object] = field(default_factory=set)
    #: the requests that wait for its end beside its own (`/queue wait`).
    waits: list[ClientRequest] = field(default_factory=list)

    @property
    def asked(self) -> list[ClientRequest]:
        """The requests that brought the prompt and have no answer, the oldest first."""
        return [self.request, *self.again] if self.request else self.again

    @property
    def requests(self) -> list[ClientRequest]:
        """The requests that are answered when it ends, its own first."""
        return [*self.asked, *self.waits]

    def is_shown_by(self, view: ClientView) -> bool:
        """Return True if the view's client shows the prompt's words: it has sent them as they are,
        and was not shown the session from its beginning since, or was shown the words already.

        On a new connection, what a client was shown on earlier ones does not count.
        """
        if self.seen.get(view.client) == view.replays:
            return True
        if self.edited:
            return False
        then = self.senders.get(view.client)
        if then is None:
            return self.is_of(view.client) and not view.replays
        return view.replays == then

    def is_of(self, client: Client) -> bool:
        """Return True if the client has sent it, on this connection or an earlier one."""
        return client in self.senders or client.identity in [each.identity for each in self.senders]

    def forget_ended(self) -> None:
        """Forget all but the last few requests in `again` whose connections have ended."""
        ended = [each for each in self.again if each.client.gone]
        self.again = [each for each in self.again if each not in ended[:-_ENDED]]
        known = [each.client for each in self.asked]
        self.senders = {
            each: then for each, then in self.senders.items() if not each.gone or each in known
        }

    @property
    def unheard_of(self) -> bool:
        """True if the prompt was to have a turn, had none, and all clients to be told so are gone.

        A `/queue run`, which is not in the journal, has no turn of its own.
        """
        gone = bool(self.requests) and all(each.client.gone for each in self.requests)
        return gone and bool(self.seq) and self.answer is None


class Prompts:
    """Knows a session's prompts by key: the request that waits, and the number in the journal."""

    def __init__(
        self,
        journal: SessionJournal,
        transcript: TranscriptOut,
        core: Core,
        touch: Callable[[], Awaitable[None]],
    ) -> None:
        """`touch` notes in the listing that the session was used now; it raises JournalError."""
        self._journal = journal
        self._transcript = transcript
        self._core = core
        self._touch = touch
        self._open: dict[int, Prompt] = {}
        self._left_over: list[int] = []
        #: the requests that wait for the end of what the agent does outside of prompts.
        self.waits_for_work: list[ClientRequest] = []
        #: how the prompt ended that was answered last.
        self.last_end: Json = {}
        self._last_key = 0
        self._catching_up = False

    @property
    def left_over(self) -> dict[int, Json]:
        """The parameters of the prompts that wait for the user's word, by key, in order (R12)."""
        return {key: self._open[key].params for key in self._left_over}

    def find(self, key: int) -> Prompt | None:
        """Return the prompt with this key, or None."""
        return self._open.get(key)

    def get(self, key: int) -> Prompt:
        """Return the prompt with this key; raises KeyError."""
        return self._open[key]

    def askers(self, key: int) -> list[object]:
        """Return who waits for the answer to this prompt, by `Client.identity`."""
        prompt = self._open.get(key)
        return [request.client.identity for request in prompt.asked] if prompt else []

    def away(self, *keys: int) -> list[Client]:
        """Return the ended connections of clients with names that have sent these prompts.

        Such a client may come back, and its prompts are its own then; but for one that has closed
        the session.
        """
        prompts = [self._open[key] for key in keys if key in self._open]
        return [
            each.client
            for prompt in prompts
            for each in prompt.asked
            if each.client.gone and each.client.abilities.name
            if each.client.identity not in prompt.closed_by
        ]

    def note_closed(self, client: Client) -> None:
        """Note that a client has closed the session, which goes on with its prompts."""
        for prompt in self._open.values():
            if prompt.is_of(client):
                prompt.closed_by.add(client.identity)

    def note_opened(self, client: Client) -> None:
        """Note that a client has the session again, if it had closed it."""
        for prompt in self._open.values():
            prompt.closed_by.discard(client.identity)

    def sent_under(self, name: str) -> int | None:
        """Return the key here of the prompt that clients sent under this key of theirs, or None."""
        for key, prompt in self._open.items():
            if prompt_key(prompt.params) == name:
                return key
        return None

    def clients_of(self, key: int) -> list[object]:
        """Return who waits for this prompt's end, also by `/queue wait`, by `Client.identity`."""
        prompt = self._open.get(key)
        return [request.client.identity for request in prompt.requests] if prompt else []

    def wait_for(self, key: int, request: ClientRequest) -> None:
        """Let one more request be answered when this prompt ends; raises KeyError."""
        self._open[key].waits.append(request)

    def add(
        self,
        params: Json,
        request: ClientRequest | None,
        *,
        steering: ClientRequest | None = None,
    ) -> int:
        """Add a prompt; returns its key. `steering`: the `_session/steering` that brought it."""
        self._last_key += 1
        asked = request or steering
        client = asked.client if asked else None
        prompt = Prompt(params, request, client=client, steering=steering)
        if client:
            self._note_sender(prompt, client)
        self._open[self._last_key] = prompt
        return self._last_key

    def _note_sender(self, prompt: Prompt, client: Client) -> None:
        view = self._transcript.view_of(client)
        prompt.senders[client] = view.replays if view else 0

    def shown_by(self, prompt: Prompt) -> list[Client]:
        """Return the clients that already show a prompt's words.

        Those are the clients that have sent the prompt and not loaded the session since, and those
        that were shown them when the prompt was to be sent before and could not be. No client
        shows by itself words that were edited, or a hook's feedback, or what was left over and not
        sent again.
        """
        return [view.client for view in self._transcript.views if prompt.is_shown_by(view)]

    def senders_but(self, prompt: Prompt, client: Client) -> list[Client]:
        """Return the clients that have sent a prompt and have the session, without this one."""
        others = [view.client for view in self._transcript.views if view.client is not client]
        return [each for each in others if prompt.is_of(each)]

    def add_left_over(self, row: PromptRow) -> None:
        """Add a prompt that waited when another bridge ended."""
        key = self.add(row.params, None)
        prompt = self._open[key]
        prompt.seq, prompt.prompt_id, prompt.is_left_over = row.seq, row.prompt_id, True
        self._left_over.append(key)

    @property
    def unsent(self) -> list[int]:
        """The keys of the prompts that wait, then of those that are left over, each in order."""
        return [*self._core.now.waiting, *self._left_over]

    def numbered(self, keys: Iterable[int]) -> list[tuple[int, Json]]:
        """Return the journal's number and the parameters of each of these prompts."""
        return [(self._open[key].seq, self._open[key].params) for key in keys]

    def listed(self) -> list[Json]:
        """Return the answer to `_acp_bridge/queue/list`, an object for each prompt."""
        return [
            {**self.named(key), "prompt": self._open[key].params["prompt"]} for key in self.unsent
        ]

    def named(self, key: int) -> Json:
        """Return how a prompt is named to clients, and whether it waits or is left over."""
        prompt, state = self._open[key], "held" if key in self._left_over else "waiting"
        return {"promptId": prompt.prompt_id, "number": prompt.seq, "state": state}

    def with_number(self, word: str, keys: Iterable[int]) -> int | None:
        """Return the key of the prompt among `keys` whose number is `word`, or None."""
        return next((key for key in keys if str(self._open[key].seq) == word), None)

    def key_of(self, client: Client, request_id: object) -> int | None:
        """Return the key of the prompt that this client's request brought, or waits for.

        A `_session/steering` that was answered is no request any more.
        """
        for key, prompt in self._open.items():
            asked = [*prompt.requests, prompt.steering]
            if any(request.is_of(client, request_id) for request in asked if request):
                return key
        return None

    # --- accept --------------------------------------------------------------------------------

    def commit(self, key: int) -> None:
        """Write a prompt into the journal in the order of reading, then have it synced to disk."""
        prompt = self._open[key]
        try:
            prompt.seq = self._journal.accept(prompt.prompt_id, prompt.params)
        except JournalError as exc:
            self._core.feed(ev.CommitFailed(key, told(exc)))
            return
        self._journal.then(partial(self._written, key, prompt))

    def _written(self, key: int, prompt: Prompt, error: JournalError | None) -> None:
        """Have a prompt synced to disk, or tell the machine that the journal has not taken it."""
        if error:
            if not isinstance(error, DatabaseAway):  # it may be there, and must end there then
                prompt.seq = 0
            self._core.feed(ev.CommitFailed(key, told(error)))
            return
        failed = ev.CommitFailed(key, "it could not be synced")
        self._core.spawn(self._sync, key, prompt, prompt.request, instead=failed)

    async def _sync(self, key: int, prompt: Prompt, request: ClientRequest | None) -> None:
        try:
            await self._journal.sync()
        except JournalError as exc:
            self._core.feed(ev.CommitFailed(key, told(exc)))
            return
        event("prompt.accepted", session=self._core.id, turn=prompt.seq)
        now = self._open.get(key)
        if request and now and request in now.asked:  # it was not answered meanwhile
            self.tell_accepted(request, prompt.prompt_id)
        self._core.feed(ev.Committed(key))

    def tell_accepted(self, request: ClientRequest, prompt_id: str, **more: bool) -> None:
        """Tell the client that wants to know it that the prompt of this request is on disk.

        `more`: what there is to say of a prompt that has ended.
        """
        if request.client.abilities.hears_accepted:
            told = {"sessionId": self._core.id, "requestId": request.call.id}
            request.client.peer.notify(ACCEPTED, {**told, "promptId": prompt_id, **more})

    # --- sent again ----------------------------------------------------------------------------

    def join(self, key: int, request: ClientRequest) -> Prompt:
        """Let one more request, which brought this prompt again, be answered with its end."""
        prompt = self._open[key]
        prompt.forget_ended()
        prompt.again.append(request)
        self._note_sender(prompt, request.client)
        if request.client.abilities.hears_accepted:
            prompt.untold.append(request)
            self._core.spawn(self._tell_joined, key)
        return prompt

    async def _tell_joined(self, key: int) -> None:
        with suppress(JournalError):
            await self._journal.sync()
            if prompt := self._open.get(key):
                self._tell_untold(prompt)

    def _tell_untold(self, prompt: Prompt) -> None:
        told, prompt.untold = prompt.untold, []
        for request in told:
            if request in prompt.asked:  # also once it has taken the place of the first
                self.tell_accepted(request, prompt.prompt_id)

    def withdraw(self, key: int, client: Client, request_id: object) -> bool:
        """Answer one cancelled request, and let its prompt be; False if that must be cancelled.

        It is let be if another client waits for the same prompt, or if that was left over.
        """
        prompt = self._open[key]
        found = [each for each in prompt.asked if each.is_of(client, request_id)]
        others = [each for each in prompt.asked if each not in found and not each.client.gone]
        if not found or (prompt.request and not others):
            return False
        self._let_go(prompt, *found)
        for request in found:
            self._transcript.then(client, partial(request.fail, errors.cancelled()))
        return True

    def stop_waiting(self, client: Client) -> bool:
        """Answer a client's oldest request for a prompt that is left over, for its Stop.

        The prompt stays left over, or goes on for who runs it. False if there is no such request.
        """
        for prompt in self._open.values():
            own = [each for each in prompt.again if each.client is client]
            if own and not prompt.request:
                self._let_go(prompt, own[0])
                self._answer(own[:1], answers.of_outcome(Cancelled()), hush=True)
                return True
        return False

    def end_left_over(self, outcome: Outcome) -> None:
        """Answer who waits for prompts that are left over, because the session is closed."""
        for key in self._left_over:
            asked, self._open[key].again = self._open[key].again, []
            self._answer(asked, self._transcript.answered(answers.of_outcome(outcome)), hush=False)

    def _let_go(self, prompt: Prompt, *requests: ClientRequest) -> None:
        left = [each for each in prompt.asked if each not in requests]
        prompt.request, prompt.again = (left[0], left[1:]) if prompt.request else (None, left)

    def _answer(self, requests: list[ClientRequest], answer: Answer, *, hush: bool) -> None:
        """Answer requests; `hush`: show their clients nothing after that, unless a turn runs."""
        for request in requests:
            self._transcript.then(request.client, partial(request.respond, answer))
        for request in requests:
            if hush and not self._transcript.seq:
                self._transcript.hush(request.client)

    # --- outcome -------------------------------------------------------------------------------

    def answer(self, key: int, outcome: Outcome) -> None:
        """Write the outcome into the journal, then tell it to the client that asked."""
        prompt = self._open.pop(key)
        answer = self._transcript.answered(answers.of_outcome(outcome, prompt.cancelled_with))
        joined = prompt.delivery == "steered"  # the agent's answer is that to another prompt
        own = outcome.answer if isinstance(outcome, Replied) and not joined else None
        if prompt.delivery and isinstance(answer, Ok) and isinstance(answer.result, dict):
            answer = Ok(_with_delivery(answer.result, prompt.delivery))
        try:
            if isinstance(outcome, Failed) and outcome.why in _LEFT:
                self._leave(key, prompt, perhaps_read=outcome.why is Failure.PERHAPS_UNREAD)
            elif outcome == Failed(Failure.KEPT):
                self._keep(prompt)
            else:
                told = answers.for_journal(answer) or {}
                self._answer_receipt(prompt, outcome, told)
                if prompt.answer is prompt.cancelled_with is None:  # else it is written already
                    self._end(prompt, told, own)
                elif prompt.seq:  # what was recorded since then
                    self._core.spawn(self._tidy, prompt.seq)
                self._tell_untold(prompt)
            self.last_end = {"promptId": prompt.prompt_id, **answers.for_clients(answer)}
        finally:  # whatever breaks, the prompt is answered (invariant Q9)
            for request in prompt.asked:
                self._transcript.then(request.client, partial(request.respond, answer))
            if asked := prompt.steering:
                unsent = answers.of_words_unsent(outcome)
                self._transcript.then(asked.client, partial(asked.respond, unsent))
            for request in prompt.waits:
                self._end_wait(request, answers.of_wait(outcome))
        how = answers.in_short(answer)
        event("turn.ended", session=self._core.id, turn=prompt.seq, how=how)
        # Another turn may run: this prompt had waited behind it.
        if isinstance(outcome, Cancelled) and not self._transcript.seq:
            for request in prompt.requests:
                self._transcript.hush(request.client)

    def _answer_receipt(self, prompt: Prompt, outcome: Outcome, told: Json) -> None:
        """Note in the journal the answer under a prompt's key, where the row's outcome is another.

        A prompt that the disk did not take may be sent again, as a new one. After hooks the answer
        may be another than that which ended the prompt's turn.
        """
        key = prompt_key(prompt.params) if prompt.seq else None
        if key and prompt.answer is not None:
            self._try(self._journal.answer_receipt, key, told)
        elif key and isinstance(outcome, Failed) and outcome.why is Failure.JOURNAL:
            self._try(self._journal.take_receipt_back, key)

    def end_waits_for_work(self, before: SessionState, after: SessionState) -> None:
        """Answer each `/queue wait` for what the agent did outside of prompts: it is over."""
        stopped = before.turns.state in (State.DRAINING, State.KILLING)
        answer = answers.of_wait(Cancelled() if stopped else Done())
        waits, self.waits_for_work = self.waits_for_work, []
        for request in waits:
            self._end_wait(request, answer)
            if stopped and not self._transcript.seq:
                self._transcript.hush(request.client)

    def _end_wait(self, request: ClientRequest, answer: Answer) -> None:
        """Answer a `/queue wait`; first name the next prompt, unless its client waits for that."""
        follows = self._core.now.unanswered[:1]
        if follows and request.client.identity not in self.clients_of(*follows):
            self._transcript.show_to(request.client, notices.notice(notices.NEXT))
        self._transcript.then(request.client, partial(request.respond, answer))

    def end_turn(self, key: int, answer: object) -> None:
        """Keep how the agent ended the turn; the client is answered later (invariant Q11)."""
        prompt = self._open[key]
        prompt.answer = answer
        self._end(prompt, answers.kept(Replied(answer)), answer)

    def forget(self, key: int) -> Json:
        """Forget a prompt that was never written down; returns its parameters."""
        return self._open.pop(key).params

    def note(self, key: int, answer: object) -> None:
        """Keep the agent's own outcome of a prompt that is to be answered `cancelled` (C13)."""
        prompt = self._open[key]
        prompt.cancelled_with = answer
        self._end(prompt, answers.kept(Cancelled(), answer), answer)

    def interrupt(self, key: int) -> None:
        """Note that the bridge ends while the prompt runs: it is not sent again (invariant Q6)."""
        prompt = self._open.pop(key)
        if prompt.seq == self._transcript.seq:  # what has joined a turn ends with that
            self._transcript.record_only(notices.notice(notices.INTERRUPTED))
        self._end(prompt, INTERRUPTED, None)

    def leave_over(self, keys: tuple[int, ...]) -> None:
        """Note that these prompts wait for the user's `/queue run` from now on."""
        for key in keys:
            prompt = self._open[key]
            prompt.request = prompt.client = None
            if not prompt.again:
                prompt.senders.clear()
            self._left_over.append(key)
            self._keep(prompt)

    def _leave(self, key: int, prompt: Prompt, *, perhaps_read: bool) -> None:
        """Leave a prompt over that was to join a turn; it waits for the user's `/queue run`."""
        left = replace(prompt, request=None, client=None, again=[], senders={}, waits=[], added=[])
        left.untold, left.steering, left.delivery, left.shown = [], None, "", False
        if perhaps_read:
            own = own_meta(prompt.params)
            left.params = with_own_meta(prompt.params, {**own, PERHAPS_READ: True})
            self.not_sent(prompt)
            self._try(self._journal.change_params, prompt.seq, left.params)
        self._open[key] = left
        self._left_over.append(key)
        self._keep(left)
        self._transcript.notice(
            notices.not_joined(prompt.params["prompt"], perhaps_read=perhaps_read)
        )

    def not_sent(self, prompt: Prompt) -> None:
        """Note in the journal that a prompt which was sent into a turn counts as waiting again."""
        self._try(self._journal.return_to_queue, prompt.seq)

    def put_off(self, prompt: Prompt, turn: int) -> None:
        """Let a prompt wait again whose words were shown in this turn: it was not sent.

        The journal, which is away, has perhaps noted that it was.
        """
        prompt.put_off, prompt.shown = turn, False
        prompt.seen = self._transcript.seen()
        self._transcript.places.lose()  # what is recorded has another order now
        self.not_sent(prompt)

    def words_stand(self, prompt: Prompt) -> bool:
        """Return whether the transcript has the words of a prompt that was put off."""
        return bool(prompt.put_off) and self._journal.has_words(prompt.seq, prompt.put_off)

    def _keep(self, prompt: Prompt) -> None:
        """Note in the journal that a prompt is left over."""
        if prompt.seq:
            prompt.is_left_over = self._try(self._journal.leave_over, prompt.seq)

    def release(self, key: int) -> None:
        """Take a prompt from those that are left over, for it to run. Raises JournalError."""
        prompt = self._open[key]
        if prompt.is_left_over:
            self._journal.release(prompt.seq)
            held = PromptState.LEFT_OVER
            self._or_later(self._journal.return_to_queue, prompt.seq, held)
        self._left_over.remove(key)

    def reorder_left_over(self, order: list[int]) -> None:
        """Put the left-over prompts into this order; those that it lacks come last."""
        rank = {key: at for at, key in enumerate(order)}
        self._left_over.sort(key=lambda key: rank.get(key, len(rank)))

    def drop(self, key: int) -> Prompt:
        """Note that a prompt never runs; forget one that was left over. Raises JournalError.

        Who waits for one that was left over is answered by `answer_dropped`.
        """
        prompt = self._open[key]
        if key not in self._left_over:
            self._journal.drop(prompt.seq, {"stopReason": "cancelled"})
            return prompt
        self._journal.drop(prompt.seq)
        self._or_later(self._journal.end_prompt, prompt.seq, DROPPED, None)
        self._left_over.remove(key)
        return self._open.pop(key)

    def answer_dropped(self, prompt: Prompt) -> None:
        """Answer who waits for a prompt that was left over and dropped."""
        self._answer(prompt.again, answers.of_outcome(Cancelled()), hush=True)

    def _end(self, prompt: Prompt, told: Json, own: object) -> None:
        """Write a prompt's outcome without a wait for the disk, since it survives the process."""
        seq = prompt.seq
        if seq and seq == self._transcript.seq and (text := notices.turn_ended(told)):
            self._say_end(prompt, text)
        self._transcript.end_turn(seq)
        if seq:
            self._try(self._journal.end_prompt, seq, told, answers.for_journal(own))
            self._core.spawn(self._tidy, seq)

    def _say_end(self, prompt: Prompt, text: str) -> None:
        """Say how a turn ended where its updates end; the client that asked has its answer."""
        said = self._transcript.named(notices.notice(text))
        self._transcript.record_only(said)
        noted = self._transcript.flush()
        self._transcript.show_to_all_but({request.client for request in prompt.asked}, said, noted)

    def _or_later(self, write: Callable[..., None], *args: object) -> None:
        """Call `write` if the last write fails since the database is away: it is told as done."""

        def written(error: JournalError | None) -> None:
            if isinstance(error, DatabaseAway):
                self._try(write, *args)

        self._journal.then(written)

    def _try(self, write: Callable[..., None], *args: object) -> bool:
        try:
            write(*args)
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)
            return False
        return True

    async def _tidy(self, seq: int) -> None:
        """Make the journal durable and compact after a turn, and list the session's new time."""
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self._journal.sync,
            lambda: self._journal.compact(seq),
            self._journal.checkpoint,
            self._touch,
        )
        for step in steps:
            if self._journal.closed:
                return
            try:
                await step()
            except JournalError as exc:
                event("journal.failed", session=self._core.id, what=exc)
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Try again and again to write what the journal lacks, also while nothing else happens."""
        while (self._journal.behind or self._journal.broken) and not self._catching_up:
            self._catching_up = True
            try:
                await anyio.sleep(waits.JOURNAL_RETRY)
            finally:
                self._catching_up = False
            if self._journal.closed:
                return
            with suppress(JournalError):
                self._journal.catch_up()
                await self._journal.checkpoint()


def _with_delivery(result: Json, delivery: str) -> Json:
    """Return the answer to a prompt that was to join a turn, with what came of that."""
    return with_own_meta(result, {**own_meta(result), "delivery": delivery})
