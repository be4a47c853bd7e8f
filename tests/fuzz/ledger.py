"""What was asked and what was said in one run, and what must hold of it, bridge after bridge.

Judged when a bridge has ended, from the recorded lines and the agents' log alone:

- every line and every answer is as `tests/process/judge.py` wants it;
- a request is answered once; when the bridge was given time, none is unanswered;
- a whole turn's words were shown before its answer, and nothing of a cancelled one after it;
- nobody is answered `cancelled` without a reason;
- a load shows what was shown (`transcripts.py`);
- an agent gets each prompt at most once, and a session's prompts in the order of sending.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from acp_bridge.protocol import SESSION_LOAD, SESSION_NEW, SESSION_RESUME, SESSION_UPDATE
from tests.crash.rounds import Lost
from tests.fuzz.transcripts import Transcript, kept
from tests.process.judge import PROMPT, judge, stop_reason
from tests.support.fixture_agents import FixtureLog
from tests.support.recording import Message, Record, Recording

_WORD = re.compile(r"p(\d+)\.\d+\.")


@dataclass(slots=True)
class Prompt:
    """One prompt, and what became of it."""

    number: int
    session_id: str
    #: the bridge that it was sent to, from 0.
    life: int
    text: str
    #: what a whole turn says.
    words: list[str]
    #: it cancels what runs: it may overtake others.
    urgent: bool
    accepted: bool = False
    #: None if the bridge ended before.
    answer: Message | None = None

    @property
    def stopped(self) -> Any:
        """The stop reason; None for an error, and for no answer."""
        return stop_reason(self.answer or {})


def key(request_id: object) -> str:
    """An id as it is on the wire: 1 and "1" are two."""
    return json.dumps(request_id)


@dataclass
class Ledger:
    """Everything of one run."""

    transcripts: dict[str, Transcript] = field(default_factory=dict)
    prompts: list[Prompt] = field(default_factory=list)
    #: sessions with something that may cancel a prompt, by life.
    stops: set[tuple[int, str]] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    #: sessions whose held prompts may have been dropped by the user's word.
    dropped: set[str] = field(default_factory=set)
    #: how many turns the agents' log had when each bridge had ended.
    turns: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def transcript(self, session_id: str) -> Transcript:
        return self.transcripts.setdefault(session_id, Transcript(session_id, unknown=True))

    def judge_life(
        self, recording: Recording, said: str, prompts: dict[str, Prompt], *, quiet: bool
    ) -> None:
        """Take all that one bridge said; `prompts`: by the key of their ids. Raises Lost."""
        walk = _Walk(self, prompts)
        for record in recording:
            walk.take(record)
        for transcript in self.transcripts.values():
            transcript.ended(quiet=quiet)
        try:
            judge(Recording(walk.outside), said)
        except AssertionError as exc:
            raise Lost(f"judge: {exc}") from exc

    def judge_agents(self, log: FixtureLog, behaviours: tuple[str, ...]) -> None:
        """Take what the agents of all bridges got. Raises Lost."""
        if log.events("overlap"):
            raise Lost("an agent got a prompt during a turn")
        if log.events("locked out") and "reuses-ids" not in behaviours:
            raise Lost("a session was open in two processes")
        texts = [block["text"] for m in log.received(PROMPT) for block in m["params"]["prompt"]]
        if twice := [text for text, times in Counter(texts).items() if times > 1]:
            raise Lost(f"sent to an agent twice: {twice}")
        self._judge_order([number_of(turn["prompt"]) for turn in log.turns()])

    def _judge_order(self, ran: list[int | None]) -> None:
        last: defaultdict[tuple[object, ...], int] = defaultdict(lambda: -1)
        life = 0
        for at, number in enumerate(ran):
            while life < len(self.turns) and at >= self.turns[life]:
                life += 1
            if number is None or number >= len(self.prompts):
                continue
            prompt = self.prompts[number]
            if prompt.urgent:
                continue
            # Prompts that were held ran later, by the user's word, and in an order of their own.
            which = (prompt.session_id, life, prompt.life == life)
            if number < last[which]:
                raise Lost(f"prompt {number} ran after {last[which]}")
            last[which] = number


def number_of(text: str) -> int | None:
    """The number of the prompt whose words these are."""
    found = _WORD.search(text)
    return int(found[1]) if found else None


class _Walk:
    """Goes through one bridge's lines in their order."""

    def __init__(self, ledger: Ledger, prompts: dict[str, Prompt]) -> None:
        self._ledger = ledger
        self._prompts = prompts
        #: requests that open a session, by key: method and session.
        self._openings: dict[str, tuple[str, str]] = {}
        self._replaying: Counter[str] = Counter()
        self._heard: defaultdict[int, set[str]] = defaultdict(set)
        #: the lines without those of a replay, where ended cards and messages come again.
        self.outside: list[Record] = []

    def take(self, record: Record) -> None:
        message = record.message or {}
        method, about = message.get("method"), message.get("params")
        session_id = about.get("sessionId") if isinstance(about, dict) else None
        if record.direction == "in" and method == SESSION_UPDATE and isinstance(about, dict):
            self._update(about)
            if self._replaying[str(session_id)]:
                return
        self.outside.append(record)
        if record.direction == "out":
            if method in (SESSION_NEW, SESSION_LOAD, SESSION_RESUME) and "id" in message:
                self._opens(key(message["id"]), str(method), str(session_id))
        elif method == "_acp_bridge/accepted" and isinstance(about, dict):
            if prompt := self._prompts.get(key(about["requestId"])):
                prompt.accepted = True
        elif "method" not in message:
            self._answer(key(message.get("id")), message)

    def _opens(self, request: str, method: str, session_id: str) -> None:
        self._openings[request] = (method, session_id)
        if method == SESSION_LOAD:
            self._replaying[session_id] += 1
            self._ledger.transcript(session_id).load_sent(request)

    def _update(self, params: Message) -> None:
        session_id = params["sessionId"]
        self._ledger.transcript(session_id).shown(params)
        content = params["update"].get("content")
        if kept(params) is None or not isinstance(content, dict):
            return
        for found in _WORD.finditer(str(content.get("text", ""))):
            number = int(found[1])
            self._heard[number].add(found[0])
            dead = number < len(self._ledger.prompts) and self._ledger.prompts[number]
            if dead and dead.stopped == "cancelled" and not self._replaying[session_id]:
                raise Lost(f"after `cancelled` for prompt {number}: {params}")

    def _answer(self, request: str, message: Message) -> None:
        if opening := self._openings.pop(request, None):
            self._opened(request, *opening, message)
        if not (prompt := self._prompts.get(request)) or prompt.answer is not None:
            return
        prompt.answer = message
        how = str(prompt.stopped or message.get("error", {}).get("code"))
        self._ledger.counts[f"prompt: {how}"] += 1
        missing = set(prompt.words) - self._heard[prompt.number]
        if prompt.stopped == "end_turn" and missing:
            raise Lost(f"prompt {prompt.number} has ended, not shown: {sorted(missing)}")
        stopped = (prompt.life, prompt.session_id) in self._ledger.stops
        if prompt.stopped == "cancelled" and not stopped:
            raise Lost(f"prompt {prompt.number} is cancelled, and nobody did")

    def _opened(self, request: str, method: str, session_id: str, message: Message) -> None:
        result = message.get("result")
        if method == SESSION_NEW and isinstance(result, dict):
            own = result["sessionId"]
            self._ledger.transcripts.setdefault(own, Transcript(own)).attached = True
            return
        transcript = self._ledger.transcript(session_id)
        if method == SESSION_LOAD:
            self._replaying[session_id] -= 1
            if result is None:
                transcript.load_failed(request)
            else:
                compared = transcript.compared
                transcript.loaded(request)
                self._ledger.counts["load: compared"] += transcript.compared - compared
        elif result is not None:
            transcript.attached |= method == SESSION_RESUME
