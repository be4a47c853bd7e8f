"""What a client of version 2 that acts was told, judged by what it did and by the whole in the end.

- `tests/support/v2_conversation.py`: every line fits the schema, turns begin and end once, replays
  have their mark and their state.
- A prompt is withdrawn, or its turn cancelled, with a reason alone. A request that is given up
  without an answer may cross it: then its turn ends. After the answer it changes nothing.
- A prompt is answered before the first word of its turn.
- The words of a whole turn were shown before its end; none of a cancelled one after it; and none
  twice, but in a replay.
- A replay begins with the beginning, and has all that was shown before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acp_bridge.core.protocol import AGENT_MESSAGE, own_meta
from tests.crash.told import Lost
from tests.fuzz.prompts import WORD, Guest, Prompt, key
from tests.fuzz.questions import Person
from tests.fuzz.transcripts import Updates
from tests.support.recording import Message, Record, Recording
from tests.support.v2_conversation import Attempt, Broken, Conversation

if TYPE_CHECKING:
    from tests.fuzz.ledger import Ledger


@dataclass(slots=True)
class Part:
    """What the agent said to one client in one stretch of a session."""

    text: str = ""
    #: it is what a replay has shown, perhaps behind what was on its way.
    replays: bool = False
    #: a request for a session failed, or two of them were open: which is which is not known.
    unsure: bool = False

    @property
    def words(self) -> list[str]:
        return [found[0] for found in WORD.finditer(self.text)]


@dataclass(slots=True)
class _Session:
    parts: list[Part] = field(default_factory=list)
    #: the keys of resumes that are not answered.
    opening: set[str] = field(default_factory=set)

    @property
    def mixed(self) -> bool:
        """The part that is shown now is perhaps of several replays."""
        return bool(self.opening) and self.parts[-1].unsure


@dataclass
class Heard:
    """One connection, from beginning to end."""

    ledger: Ledger
    who: Guest
    recording: Recording
    #: by the keys of their requests.
    prompts: dict[str, Prompt] = field(default_factory=dict)
    _conversation: Conversation = field(default_factory=Conversation)
    _sessions: dict[str, _Session] = field(default_factory=dict)
    #: prompts of sessions that it closed after it had sent them: their turns are not told further.
    _left: set[int] = field(default_factory=set)
    #: the methods of the requests that have no answer, by the keys of their ids.
    _open: dict[str, str] = field(default_factory=dict)
    _taken: int = 0

    # --- while it is there ---------------------------------------------------------------------

    def is_over(self) -> bool:
        """True if all is answered, and every turn of its own has ended. Raises Lost."""
        self._take()
        return not self.open_requests()

    def open_requests(self) -> list[str]:
        """Return what it waits for."""
        turns = [
            f"the end of {each.text[:60]}"
            for each in self._conversation.attempts.values()
            if each.message and not each.is_over and each.end is None
        ]
        return [*self._open.values(), *turns]

    # --- afterwards ----------------------------------------------------------------------------

    def judge(self) -> None:
        """Take all that it was told. Raises Lost."""
        self._take()
        for session in self._sessions.values():
            if session.opening:  # the connection has ended in the middle of a replay, perhaps
                session.parts[-1].unsure = True
        for request, attempt in self._conversation.attempts.items():
            if prompt := self.prompts.get(request):
                self._judge_attempt(prompt, attempt)
        person = Person(self.who.number)
        person.read(self.recording, self.ledger.prompts)
        self.ledger.people.append(person)
        self.ledger.heard.append(self)
        self.ledger.counts["version 2: ends of turns"] += self._conversation.ends

    def _take(self) -> None:
        while self._taken < len(self.recording):
            record = self.recording[self._taken]
            self._taken += 1
            try:
                self._conversation.take_all([record])
            except Broken as broken:
                raise Lost(f"client {self.who.number} of version 2: {broken}") from None
            self._follow(record)

    def _judge_attempt(self, prompt: Prompt, attempt: Attempt) -> None:
        prompt.accepted |= attempt.accepted
        if attempt.message:
            self.ledger.begun.add(prompt.number)
        outcome = attempt.outcome
        how = "begun" if outcome is None else str(outcome.get("result") or outcome["error"]["code"])
        self.ledger.counts[f"version 2, prompt: {how}"] += attempt.is_answered
        if outcome and (attempt.end or not prompt.again):
            prompt.answer = outcome
        if attempt.is_over or prompt.number in self._left:
            return
        by_any = (prompt.life, prompt.session_id) in self.ledger.stops or prompt.again
        stopped = (outcome or {}).get("result", {}).get("stopReason") == "cancelled"
        why = prompt.own_stop or by_any or attempt.given_up
        if stopped and not why:
            raise Lost(f"prompt {prompt.number} of version 2 is cancelled, and nobody did")

    # --- what the agent said -------------------------------------------------------------------

    def _follow(self, record: Record) -> None:
        message = record.message or {}
        method, params = message.get("method"), message.get("params")
        if record.direction == "out" and isinstance(params, dict):
            if _is_request(message):
                self._open[key(message["id"])] = str(method)
            self._sent(message, params)
        elif method == "session/update" and isinstance(params, dict):
            self._shown(params)
        elif record.direction == "in" and "method" not in message:
            self._open.pop(key(message.get("id")), None)
            self._answered(key(message.get("id")), well="result" in message)

    def _sent(self, message: Message, params: Message) -> None:
        session = self._session(params.get("sessionId"))
        match message.get("method"):
            case "session/resume":
                replays, unsure = "replayFrom" in params, bool(session.opening)
                session.opening.add(key(message["id"]))
                if unsure:
                    session.parts[-1].unsure = True
                if replays or unsure:
                    session.parts.append(Part(replays=replays, unsure=unsure))
                elif not session.parts:
                    session.parts.append(Part())
            case "session/close" | "_acp_bridge/close":
                self._left |= {
                    each.number
                    for each in self.prompts.values()
                    if each.session_id == params["sessionId"]
                }

    def _answered(self, request: str, *, well: bool) -> None:
        for session in self._sessions.values():
            if request not in session.opening:
                continue
            session.opening.remove(request)
            session.parts[-1].unsure |= not well
            if not session.opening:
                session.parts.append(Part())

    def _shown(self, params: Message) -> None:
        session, update = self._session(params["sessionId"]), params["update"]
        if not session.parts:
            session.parts.append(Part())
        if update["sessionUpdate"] == "replay_complete" and not session.mixed:
            session.parts.append(Part())
        if update["sessionUpdate"] == "state_update" and update.get("stopReason") == "end_turn":
            self._judge_whole_turn(params["sessionId"], session)
        if said := _said(params):
            session.parts[-1].text += said
            self._judge_live(session.parts[-1], said)

    def _judge_whole_turn(self, session_id: str, session: _Session) -> None:
        """All words of the turn that has just ended were shown, to who did not leave meanwhile."""
        if self.ledger.reuses_ids or self.ledger.replays_late:
            return
        shown = {word for part in session.parts for word in part.words}
        for request, attempt in self._conversation.attempts.items():
            prompt = self.prompts.get(request)
            ended = attempt.end and attempt.end["stopReason"] == "end_turn"
            if prompt is None or not ended or prompt.session_id != session_id or prompt.again:
                continue
            if prompt.number in self._left:
                continue
            if missing := [word for word in prompt.words if word not in shown]:
                raise Lost(f"prompt {prompt.number} of version 2 has ended, not shown: {missing}")

    def _judge_live(self, part: Part, said: str) -> None:
        """Nothing comes of a turn before its prompt is answered, or when it is cancelled."""
        if part.replays or part.unsure or self.ledger.replays_late:
            return
        new = {found[0] for found in WORD.finditer(said)}
        for request, attempt in self._conversation.attempts.items():
            prompt = self.prompts.get(request)
            if prompt is None or prompt.number in self._left or not new & set(prompt.words):
                continue
            where = f"prompt {prompt.number} of version 2"
            if attempt.end and attempt.end["stopReason"] == "cancelled":
                raise Lost(f"{where} goes on when it is cancelled")
            if not attempt.is_answered and not prompt.again:
                raise Lost(f"{where} has begun, and is not answered")

    def _session(self, session_id: object) -> _Session:
        return self._sessions.setdefault(str(session_id), _Session())

    # --- the whole -----------------------------------------------------------------------------

    def judge_whole(self, session_id: str, whole: Updates) -> None:
        """Compare what was said to it with all that was said. Raises Lost."""
        session = self._sessions.get(session_id)
        if session is None or self.ledger.replays_late:
            return
        all_of_it = [found[0] for found in WORD.finditer("".join(map(_text, whole)))]
        before: set[str] = set()
        for part in session.parts:
            if not part.unsure:
                self.ledger.counts["version 2: compared"] += 1
                if part.replays:
                    self._is_replay(part.words, all_of_it, before)
                else:
                    self._is_live(part.words, all_of_it, before)
            before |= set(part.words)

    def _is_live(self, words: list[str], whole: list[str], before: set[str]) -> None:
        # Words that the agent perhaps did not read are sent again, and there twice.
        if again := {word for word in before & set(words) if whole.count(word) < 2}:
            raise Lost(f"client {self.who.number}: shown before, and no replay: {again}")
        rest = iter(whole)
        if not all(word in rest for word in words):
            raise Lost(f"client {self.who.number} was shown {words}, and there is {whole}")

    def _is_replay(self, words: list[str], whole: list[str], before: set[str]) -> None:
        for cut in range(len(words) + 1):
            late, replay = words[:cut], words[cut:]
            if whole[: len(replay)] == replay and before | set(late) <= set(replay):
                return
        raise Lost(
            f"client {self.who.number}: a replay has shown {words}, before it {sorted(before)},"
            f" and there is {whole}"
        )


def _is_request(message: Message) -> bool:
    return "method" in message and "id" in message


def _said(params: Message) -> str:
    """The agent's words in an update, without what the bridge says by itself."""
    return "" if own_meta(params) else _text(params["update"])


def _text(update: Message) -> str:
    content = update.get("content")
    if update["sessionUpdate"] != AGENT_MESSAGE or not isinstance(content, dict):
        return ""
    return str(content.get("text", ""))
