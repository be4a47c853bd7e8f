"""What was asked and what was said in one run, and what must hold of it, bridge after bridge.

Judged when a bridge has ended, from each client's recorded lines and the agents' log alone:

- every line, answer and tool card is as `tests/process/judge.py` wants it;
- a request is answered once; when the bridge was given time, none is unanswered;
- a whole turn's words were shown before its answer, and nothing of a cancelled one after it;
- nobody is answered `cancelled` without a reason, which a Stop of another client is not;
- a load shows what was shown, to this client and to any other (`transcripts.py`);
- an agent gets each prompt at most once, and a session's prompts in the order of sending.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from acp_bridge.notices import CLOSED_BY_OTHER, DETACHED
from acp_bridge.protocol import (
    ATTACH,
    REQUEST_PERMISSION,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_RESUME,
    SESSION_UPDATE,
)
from tests.crash.told import Lost
from tests.fuzz.transcripts import Transcript, kept
from tests.process.judge import PROMPT, judge_answers, judge_cards, judge_lines, stop_reason
from tests.support.fixture_agents import FixtureLog
from tests.support.recording import Message, Record, Recording

#: requests about a session as a whole, whose answers change what is expected of it.
_OPENINGS = (SESSION_NEW, SESSION_LOAD, SESSION_RESUME, SESSION_CLOSE, SESSION_DELETE)
#: what the bridge says to a client that does not see any more what follows.
_OUT_OF_SIGHT = (CLOSED_BY_OTHER, DETACHED)
#: the log's line for each update that was dropped as one of a cancelled turn.
_LEAK = re.compile(r"agent\.unclean session=(\S+)")
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
    #: the client that has sent it: 0 is the one that starts the bridges.
    by: int = 0
    #: its client has sent something after it that may cancel it.
    own_stop: bool = False
    #: its client did not have the session for a while.
    unseen: bool = False
    #: something that may cancel it was sent after it.
    stoppable: bool = False
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


@dataclass(slots=True)
class Guest:
    """A client that did not start its bridge, from the beginning to the end of its connection."""

    number: int
    life: int
    transcripts: dict[str, Transcript] = field(default_factory=dict)


@dataclass
class Ledger:
    """Everything of one run."""

    transcripts: dict[str, Transcript] = field(default_factory=dict)
    prompts: list[Prompt] = field(default_factory=list)
    #: the agent names things alike in every turn.
    reuses_ids: bool = False
    #: the agent replays after its answer to a load.
    replays_late: bool = False
    #: sessions with something that may cancel a prompt of any client, by life.
    stops: set[tuple[int, str]] = field(default_factory=set)
    #: sessions that the client wanted to be deleted, and those that were.
    gone: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    #: sessions whose held prompts may have been dropped by the user's word.
    dropped: set[str] = field(default_factory=set)
    #: how many turns the agents' log had when each bridge had ended.
    turns: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def transcript(self, session_id: str) -> Transcript:
        return self.transcripts.setdefault(session_id, Transcript(session_id, unknown=True))

    def stop(self, life: int, session_id: str, by: int | None = None) -> None:
        """Prompts of this session may be cancelled: those that one client has sent until now.

        Without `by` all of them, also later ones: how messages of two clients meet is not known.
        """
        if by is None:
            self.stops.add((life, session_id))
        for prompt in self.prompts:
            if (prompt.life, prompt.session_id) == (life, session_id):
                prompt.stoppable = True
                prompt.own_stop |= prompt.by == by

    def judge_life(
        self,
        recording: Recording,
        said: str,
        prompts: dict[str, Prompt],
        *,
        quiet: bool,
        guest: Guest | None = None,
        company: bool = False,
    ) -> None:
        """Take all that one bridge said to one client; `prompts`: by the key of their ids.

        `guest`: the client did not start the bridge. `company`: there was more than one client.
        Raises Lost.
        """
        who = guest or Guest(0, len(self.turns) - 1, self.transcripts)
        if company and not guest:
            for transcript in self.transcripts.values():
                transcript.missed()
        walk = _Walk(self, who, prompts, Counter(_LEAK.findall(said)), company=company)
        # A bridge that was killed, or had no time left for a client that didn't read, may have
        # been in the middle of its last line.
        cut = not quiet and recording[-1:] and not recording[-1].raw.endswith(b"\n")
        recording = Recording(recording[:-1] if cut else recording)
        for record in recording:
            walk.take(record)
        for transcript in who.transcripts.values():
            transcript.ended(quiet=quiet)
        try:
            judge_lines(recording, said)
            judge_answers(recording)
            judge_cards(Recording(walk.outside))
        except AssertionError as exc:
            raise Lost(f"judge: {exc}") from exc
        if guest and not self.replays_late:
            for session_id, transcript in guest.transcripts.items():
                same = self.transcript(session_id).compare_with(transcript)
                self.counts["clients: compared"] += same

    def judge_agents(self, log: FixtureLog) -> None:
        """Take what the agents of all bridges got. Raises Lost."""
        if log.events("overlap"):
            raise Lost("an agent got a prompt during a turn")
        if log.events("locked out") and not self.reuses_ids:
            raise Lost("a session was open in two processes")
        texts = [
            block["text"]
            for message in log.received(PROMPT)
            for block in message["params"]["prompt"]
            if number_of(block["text"]) is not None
        ]
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
            which = (prompt.session_id, life, prompt.life == life, prompt.by)
            if number < last[which]:
                raise Lost(f"prompt {number} ran after {last[which]}")
            last[which] = number


def number_of(text: str) -> int | None:
    """The number of the prompt whose words these are."""
    found = _WORD.search(text)
    return int(found[1]) if found else None


@dataclass(slots=True)
class _Turn:
    """What a session shows now, as far as words tell whose it is."""

    number: int | None = None
    #: messages and cards since the first word.
    ids: set[str] = field(default_factory=set)
    #: those of turns that were cancelled.
    dead: set[str] = field(default_factory=set)


class _Walk:
    """Goes through one bridge's lines in their order."""

    def __init__(
        self,
        ledger: Ledger,
        who: Guest,
        prompts: dict[str, Prompt],
        leaks: Counter[str],
        *,
        company: bool,
    ) -> None:
        """`leaks`: by session, how many updates the bridge took for ones of a cancelled turn.

        `company`: a session may go on when this client has left it.
        """
        self._ledger = ledger
        self._who = who
        self._company = company
        self._leaks = leaks
        self._prompts = prompts
        #: requests that open a session, by key: method and session.
        self._openings: dict[str, tuple[str, str]] = {}
        self._replaying: Counter[str] = Counter()
        self._heard: defaultdict[int, set[str]] = defaultdict(set)
        self._live: set[str] = set()
        self._turns: defaultdict[str, _Turn] = defaultdict(_Turn)
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
        if method == ATTACH and isinstance(about, dict):
            method = SESSION_LOAD if about.get("replay", True) else SESSION_RESUME
        if record.direction == "out":
            if method in _OPENINGS and "id" in message:
                self._opens(key(message["id"]), str(method), str(session_id))
        elif method == REQUEST_PERMISSION and isinstance(about, dict):
            self._transcript(str(session_id)).asked(about["toolCall"])
        elif method == "_acp_bridge/accepted" and isinstance(about, dict):
            if prompt := self._prompts.get(key(about["requestId"])):
                prompt.accepted = True
        elif "method" not in message:
            self._answer(key(message.get("id")), message)

    def _opens(self, request: str, method: str, session_id: str) -> None:
        self._openings[request] = (method, session_id)
        if method == SESSION_CLOSE and self._company:
            self._transcript(session_id).leaving += 1
            self._unsee(session_id)
        if method == SESSION_LOAD:
            self._replaying[session_id] += 1
            self._transcript(session_id).load_sent(request)

    def _update(self, params: Message) -> None:
        session_id, update = params["sessionId"], params["update"]
        self._transcript(session_id).shown(params)
        if kept(params) is None:
            if any(notice in str(update.get("content")) for notice in _OUT_OF_SIGHT):
                self._loses_sight(session_id)
            return
        content = update.get("content")
        said = str(content.get("text", "")) if isinstance(content, dict) else ""
        words = {found[0]: int(found[1]) for found in _WORD.finditer(said)}
        if not self._replaying[session_id]:
            self._judge_live(session_id, params, set(words))
        for word, number in words.items():
            self._heard[number].add(word)

    def _judge_live(self, session_id: str, params: Message, words: set[str]) -> None:
        """Nothing comes twice, and nothing of a turn that was cancelled."""
        update = params["update"]
        # A replay later than a process's first turn can't be told from an answer.
        if (again := words & self._live) and not self._ledger.replays_late:
            raise Lost(f"shown before, and no load: {again} in {params}")
        self._live |= words
        number = number_of(" ".join(words))
        turn = self._turns[session_id]
        if number is not None and number != turn.number:
            turn.number, turn.ids = number, set()
        turn.ids |= {str(update[name]) for name in ("toolCallId", "messageId") if name in update}
        old = turn.ids & turn.dead or self._is_cancelled(number)
        if old and not self._ledger.replays_late:
            raise Lost(f"after the answer `cancelled`: {params}")

    def _is_cancelled(self, number: int | None) -> bool:
        if number is None or number >= len(self._ledger.prompts):
            return False
        prompt = self._ledger.prompts[number]
        # When another client of this bridge was answered can't be told from these lines.
        told_here = prompt.by == self._who.number or prompt.life != self._who.life
        return told_here and prompt.stopped == "cancelled"

    def _transcript(self, session_id: str) -> Transcript:
        transcripts = self._who.transcripts
        return transcripts.setdefault(session_id, Transcript(session_id, unknown=True))

    def _loses_sight(self, session_id: str) -> None:
        """The session may go on, and this client does not see it."""
        if self._company:
            self._transcript(session_id).missed()
            self._unsee(session_id)

    def _unsee(self, session_id: str) -> None:
        for prompt in self._prompts.values():
            prompt.unseen |= prompt.session_id == session_id

    def _answer(self, request: str, message: Message) -> None:
        if "in flight" in str(message.get("error")):
            return  # to another request, which used the id while it was in flight
        if opening := self._openings.pop(request, None):
            self._opened(request, *opening, message)
        if not (prompt := self._prompts.get(request)) or prompt.answer is not None:
            return
        if "sessions" in (message.get("result") or ()):
            return
        prompt.answer = message
        how = str(prompt.stopped or message.get("error", {}).get("code"))
        who = "joined client's prompt" if prompt.by else "prompt"
        self._ledger.counts[f"{who}: {how}"] += 1
        self._ended(prompt)

    def _ended(self, prompt: Prompt) -> None:
        missing = set(prompt.words) - self._heard[prompt.number]
        turn = self._turns[prompt.session_id]
        if prompt.stopped == "end_turn" and missing:
            # A message with an id that a cancelled turn had can't be told from a leak of that turn.
            excused = self._ledger.reuses_ids and turn.dead and self._leaks[prompt.session_id] > 0
            if not excused and not prompt.unseen:
                raise Lost(f"prompt {prompt.number} has ended, not shown: {sorted(missing)}")
            self._leaks[prompt.session_id] -= 1
        if prompt.stopped == "cancelled":
            by_any = (prompt.life, prompt.session_id) in self._ledger.stops
            # A turn whose client does not have the session any more is anybody's to end.
            if not by_any and not prompt.own_stop and not (prompt.unseen and prompt.stoppable):
                raise Lost(f"prompt {prompt.number} is cancelled, and nobody did")
            if turn.number == prompt.number:
                turn.dead |= turn.ids
                turn.ids = set()

    def _opened(self, request: str, method: str, session_id: str, message: Message) -> None:
        result = message.get("result")
        if method == SESSION_NEW and isinstance(result, dict):
            own = result["sessionId"]
            self._who.transcripts.setdefault(own, Transcript(own)).attached = True
            return
        if method == SESSION_DELETE:
            self._ledger.deleted |= {session_id} if result is not None else set()
            return
        if method == SESSION_CLOSE:
            if self._company:
                self._transcript(session_id).leaving -= 1
                self._loses_sight(session_id)
            return
        transcript = self._transcript(session_id)
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
