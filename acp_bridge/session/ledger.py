"""The prompts of one session that have no outcome yet, and what the journal is told of them.

A prompt is known here by its key from reading to outcome; the journal gives it a number (`seq`)
when it is accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from acp_bridge import signals as sig
from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.log import event
from acp_bridge.session import answers
from acp_bridge.session.host import Host
from acp_bridge.session.outlet import Outlet
from acp_bridge.wire.peer import Call

Json = dict[str, Any]


@dataclass(slots=True)
class Prompt:
    """A prompt that waits or runs."""

    params: Json
    #: the request of the client that waits for the answer; None for one held since a restart.
    call: Call | None
    prompt_id: str
    #: its number in the journal; 0 until it is written there.
    seq: int = 0


class Ledger:
    """Keys, requests and journal numbers of a session's prompts."""

    def __init__(
        self,
        host: Host,
        journal: SessionJournal,
        outlet: Outlet,
        spawn: Callable[..., None],
        feed: Callable[[sig.Event], None],
    ) -> None:
        self.open: dict[int, Prompt] = {}
        #: prompts held since a restart, by key: run or dropped on the user's word only (R12).
        self.held: dict[int, Json] = {}
        self._host = host
        self._journal = journal
        self._outlet = outlet
        self._spawn = spawn
        self._feed = feed
        self._keys = 0

    def add(self, call: Call | None, params: Json, seq: int = 0) -> int:
        """A key for a prompt."""
        self._keys += 1
        self.open[self._keys] = Prompt(params, call, uuid4().hex, seq)
        return self._keys

    def add_held(self, params: Json, seq: int) -> None:
        """A prompt that waited when another bridge ended."""
        self.held[self.add(None, params, seq)] = params

    def key_of(self, request_id: object) -> int | None:
        """The key of the prompt that this request of the client brought."""
        for key, prompt in self.open.items():
            if prompt.call and prompt.call.id == request_id:
                return key
        return None

    # --- accept --------------------------------------------------------------------------------

    def commit(self, key: int) -> None:
        """Write a prompt down at once, in the order of reading; durable a moment later."""
        prompt = self.open[key]
        try:
            prompt.seq = self._journal.accept(prompt.prompt_id, prompt.params)
        except JournalError as exc:
            self._feed(sig.CommitFailed(key, str(exc)))
            return
        self._spawn(self._sync, key, prompt)

    async def _sync(self, key: int, prompt: Prompt) -> None:
        try:
            await self._journal.sync()
        except JournalError as exc:
            self._feed(sig.CommitFailed(key, str(exc)))
            return
        session_id = self._journal.info.session_id
        event("prompt.accepted", session=session_id, turn=prompt.seq)
        if self._host.tells_accepted and prompt.call and key in self.open:
            told = {"sessionId": session_id, "requestId": prompt.call.id}
            told["promptId"] = prompt.prompt_id
            self._host.client.notify("_acp_bridge/accepted", told)
        self._feed(sig.Committed(key))

    # --- outcome -------------------------------------------------------------------------------

    def answer(self, key: int, outcome: sig.Outcome) -> None:
        """The outcome, into the journal and then to the client."""
        prompt = self.open.pop(key)
        answer = answers.of_outcome(outcome)
        own = outcome.answer if isinstance(outcome, sig.Replied) else None
        self._end(prompt.seq, answers.for_journal(answer) or {}, own)
        event(
            "turn.ended",
            session=self._journal.info.session_id,
            turn=prompt.seq,
            how=answers.in_short(answer),
        )
        if call := prompt.call:
            self._outlet.flush()
            self._outlet.then(lambda: answers.respond(self._host.client, call, answer))

    def note(self, key: int, answer: object) -> None:
        """The agent's own outcome of a prompt that is to be answered `cancelled` (C13)."""
        self._end(self.open[key].seq, {"stopReason": "cancelled"}, answer)

    def interrupted(self, key: int) -> None:
        """The bridge ends while the prompt runs: it is not sent again (Q6)."""
        self._outlet.record_interrupted()
        self._end(self.open.pop(key).seq, {"interrupted": True}, None)

    def hold(self, keys: tuple[int, ...]) -> None:
        """These prompts wait for the user's word from now on."""
        for key in keys:
            prompt = self.open[key]
            prompt.call = None
            self.held[key] = prompt.params
            if prompt.seq:
                self._try(self._journal.hold, prompt.seq)

    def release(self, key: int) -> None:
        """A held prompt may run. Raises JournalError."""
        self._journal.release(self.open[key].seq)
        del self.held[key]

    def drop(self, key: int) -> None:
        """A held prompt is forgotten. Raises JournalError."""
        self._journal.drop(self.open[key].seq)
        del self.held[key], self.open[key]

    def _end(self, seq: int, told: Json, own: object) -> None:
        """The answer doesn't wait for the disk: what was told survives the process already."""
        self._outlet.end_turn(seq)
        if seq:
            self._try(self._journal.end_prompt, seq, told, answers.for_journal(own))
            self._spawn(self._tidy, seq)

    def _try(self, write: Callable[..., None], *args: object) -> None:
        try:
            write(*args)
        except JournalError as exc:
            event("journal.failed", session=self._journal.info.session_id, what=exc)

    async def _tidy(self, seq: int) -> None:
        """After a turn: durable, compact, listed with its time."""
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self._journal.sync,
            lambda: self._journal.compact(seq),
            self._journal.checkpoint,
            lambda: self._host.journal.touch(self._journal.info.session_id),
        )
        for step in steps:
            if self._journal.closed:
                return
            try:
                await step()
            except JournalError as exc:
                event("journal.failed", session=self._journal.info.session_id, what=exc)
