"""Goes through what one connection sent and got, in its order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acp_bridge.core.history import History, history_of
from acp_bridge.core.protocol import (
    ACCEPTED,
    ATTACH,
    CLOSE_FOR_ALL,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    SESSION_UPDATE,
    USER_MESSAGE,
)
from acp_bridge.core.updates.notices import CLOSED_BY_OTHER, DELETED_BY_OTHER, DETACHED
from tests.crash.told import Lost
from tests.fuzz.prompts import WORD, WORK, Guest, Prompt, key, number_of
from tests.fuzz.sights import Sight
from tests.fuzz.transcripts import Transcript, kept
from tests.support.recording import Message, Record

if TYPE_CHECKING:
    from tests.fuzz.ledger import Ledger

#: requests about a session as a whole, whose answers change what is expected of it.
_LEAVING = (SESSION_CLOSE, CLOSE_FOR_ALL)
_OPENINGS = (SESSION_NEW, SESSION_LOAD, SESSION_RESUME, SESSION_DELETE, *_LEAVING)
#: what a bridge says to a client that does not see any more what follows.
_OUT_OF_SIGHT = (
    CLOSED_BY_OTHER,
    DELETED_BY_OTHER,
    DETACHED,
    "This session is not shown here any more",
    "the session could not be opened here",
)
#: the bridge's log has a line for each update that was dropped as one of a cancelled turn.
LEAK = re.compile(r"agent\.unclean session=(\S+)")


@dataclass(slots=True)
class _Turn:
    """What a session shows now, as far as words tell whose it is."""

    number: int | None = None
    #: messages and cards since the first word.
    ids: set[str] = field(default_factory=set)
    #: those of turns that were cancelled.
    dead: set[str] = field(default_factory=set)


class Walk:
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
        #: by session.
        self.sights: dict[str, Sight] = {}
        self._own = {prompt.text for prompt in prompts.values()}
        self._ledger = ledger
        self._who = who
        self._company = company
        self._leaks = leaks
        self._prompts = prompts
        #: requests that open a session, by key: method and session.
        self._openings: dict[str, tuple[str, str]] = {}
        #: by key, the session of each `session/prompt` without an answer, commands among them.
        self._prompted: dict[str, str] = {}
        self._replaying: Counter[str] = Counter()
        self._heard: defaultdict[int, set[str]] = defaultdict(set)
        self._live: set[str] = set()
        self._turns: defaultdict[str, _Turn] = defaultdict(_Turn)
        #: by session, what the client asked before it closed that: it is shown no more of it.
        self._asked: defaultdict[str, list[Prompt]] = defaultdict(list)
        self._closed: list[Prompt] = []
        #: what others have closed for all, and is not taken yet.
        self._closings = [each for each in ledger.closings if each.by != who.number]
        #: when the line of this client drops, in monotonic seconds.
        self.drops: list[float] = []
        #: the lines without those of a replay, where ended cards and messages come again.
        self.outside: list[Record] = []

    def bridge_ended(self) -> None:
        """Take the end of another bridge, which may have had sessions that this client sees."""
        for sight in self.sights.values():
            sight.bridge_ended()
        for transcript in self._who.transcripts.values():
            transcript.cut_off()

    def _line_dropped(self) -> None:
        """Behind a load that was sent and not answered nobody knows where its replay began.

        `connect` does not know it either: one that was behind live updates may lack its beginning.
        """
        for method, session_id in self._openings.values():
            if method in (SESSION_LOAD, SESSION_RESUME):
                self._sight(session_id).bridge_ended()
                self._transcript(session_id).line_dropped()

    def take(self, record: Record) -> None:
        while self._closings and self._closings[0].time <= record.time:
            self._closed_for_all(self._closings.pop(0).session_id)
        while self.drops and self.drops[0] <= record.time:
            self.drops.pop(0)
            self._line_dropped()
        message = record.message or {}
        method, about = message.get("method"), message.get("params")
        session_id = about.get("sessionId") if isinstance(about, dict) else None
        if record.direction == "in" and method == SESSION_UPDATE and isinstance(about, dict):
            self._update(about)
            if self._replaying[str(session_id)]:
                return
        self.outside.append(record)
        if method == ATTACH and isinstance(about, dict):
            whole = history_of(about) is History.FULL
            method = SESSION_LOAD if whole else SESSION_RESUME
        if record.direction == "out":
            if method in _OPENINGS and "id" in message:
                self._opens(key(message["id"]), str(method), str(session_id))
            elif method == SESSION_PROMPT:
                self._prompted[key(message["id"])] = str(session_id)
                self._transcript(str(session_id)).quiet = False
                if sent := self._prompts.get(key(message["id"])):
                    self._sight(sent.session_id).prompted(sent.text)
                    self._asked[sent.session_id].append(sent)
        elif method == ACCEPTED and isinstance(about, dict):
            self._accepted(about)
        elif "method" not in message:
            self._answer(key(message.get("id")), message, record.time)

    def _accepted(self, about: Message) -> None:
        prompt = self._prompts.get(key(about["requestId"]))
        if prompt is None:
            return  # a command's
        if prompt.accepted or prompt.session_id != about["sessionId"]:
            raise Lost(f"prompt {prompt.number} is accepted twice, or as another one: {about}")
        prompt.accepted = True

    def _opens(self, request: str, method: str, session_id: str) -> None:
        self._openings[request] = (method, session_id)
        if method in (*_LEAVING, SESSION_DELETE):
            self._sight(session_id).lost_sight()
        elif method in (SESSION_LOAD, SESSION_RESUME):
            if self._transcript(session_id).quiet:
                self._sight(session_id).missed()
            self._sight(session_id).asked_to_open()
        if method == SESSION_DELETE:  # it closes the session first, also if it is given up then
            self._transcript(session_id).cut_off()
        if method in _LEAVING:
            self._transcript(session_id).leaving += 1
            self._closed += self._asked.pop(session_id, [])
            if self._company:
                self._unsee(session_id)
        if method == SESSION_LOAD:
            self._replaying[session_id] += 1
            self._transcript(session_id).load_sent(request)

    def _update(self, params: Message) -> None:
        session_id, update = params["sessionId"], params["update"]
        self._transcript(session_id).shown(params)
        self._sight(session_id).shown(params)
        if kept(params) is None:
            if any(notice in str(update.get("content")) for notice in _OUT_OF_SIGHT):
                self._loses_sight(session_id)
            if update["sessionUpdate"] == USER_MESSAGE and not self._replaying[session_id]:
                self._begins(str((update.get("content") or {}).get("text")))
            return
        content = update.get("content")
        said = str(content.get("text", "")) if isinstance(content, dict) else ""
        words = {found[0]: int(found[1]) for found in WORD.finditer(said)}
        if not self._replaying[session_id]:
            self._judge_live(session_id, params, set(words))
        for word, number in words.items():
            self._heard[number].add(word)

    def _begins(self, text: str) -> None:
        """Words that steer, and were perhaps not read, are said again when shown again."""
        for prompt in self._ledger.prompts:
            if prompt.steers and prompt.text == text:
                self._live -= set(prompt.words)

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
        ids = {str(update[name]) for name in ("toolCallId", "messageId") if name in update}
        turn.ids |= {each for each in ids if not each.startswith(WORK)}
        old = turn.ids & turn.dead or self._is_cancelled(number)
        if old and not self._ledger.replays_late:
            raise Lost(f"after the answer `cancelled`: {params}")

    def _is_cancelled(self, number: int | None) -> bool:
        if number is None or number >= len(self._ledger.prompts):
            return False
        prompt = self._ledger.prompts[number]
        # Whose lines came first can't be told of two clients that were there at the same time.
        told = prompt.by == self._who.number or prompt.answered < self._who.began
        return told and prompt.stopped == "cancelled"

    def judge_echoes(self) -> None:
        """A client shows its prompts by itself, but what was held. Raises Lost."""
        for sight in self.sights.values():
            echoed = {text for segment in sight.segments for text in segment.echoed}
            for prompt in self._prompts.values():
                if prompt.text in echoed and prompt.stopped:
                    raise Lost(f"prompt {prompt.number} is shown to the client that has sent it")

    def _sight(self, session_id: str) -> Sight:
        who = f"client {self._who.number} of bridge {self._who.life}"
        return self.sights.setdefault(session_id, Sight(session_id, who, self._own))

    def _transcript(self, session_id: str) -> Transcript:
        transcripts = self._who.transcripts
        return transcripts.setdefault(session_id, Transcript(session_id, unknown=True))

    def _loses_sight(self, session_id: str) -> None:
        """The session may go on, and this client does not see it."""
        self._sight(session_id).lost_sight()
        if self._company:
            self._transcript(session_id).missed()
            self._unsee(session_id)

    def _closed_for_all(self, session_id: str) -> None:
        """Another client has asked for that: this one may be shown a little more, and then no more
        until it loads the session again."""
        if session_id in self._who.transcripts:
            self._loses_sight(session_id)
            self._transcript(session_id).cut_off()

    def _unsee(self, session_id: str) -> None:
        for prompt in self._prompts.values():
            prompt.unseen |= prompt.session_id == session_id

    def _answer(self, request: str, message: Message, time: float) -> None:
        if "in flight" in str(message.get("error")):
            return  # to another request, which used the id while it was in flight
        if opening := self._openings.pop(request, None):
            self._opened(request, *opening, message)
        session_id = self._prompted.pop(request, "")
        if session_id and (message.get("result") or {}).get("stopReason") == "cancelled":
            self._transcript(session_id).quiet = True  # a command's answer, too
        if not (prompt := self._prompts.get(request)) or prompt.answer is not None:
            return
        if "sessions" in (message.get("result") or ()):
            return
        prompt.answer, prompt.answered = message, time
        how = str(prompt.stopped or message.get("error", {}).get("code"))
        who = "joined client's prompt" if prompt.by else "prompt"
        self._ledger.counts[f"{who}: {how}"] += 1
        self._ended(prompt)

    def _ended(self, prompt: Prompt) -> None:
        missing = set(prompt.words) - self._heard[prompt.number]
        turn = self._turns[prompt.session_id]
        if prompt.stopped == "end_turn" and missing:
            # A message with an id that a cancelled turn had can't be told from a leak of that turn.
            # Which turns of other clients were cancelled is not known here, nor what another
            # bridge has dropped.
            leaked = self._leaks[prompt.session_id] > 0 or self._ledger.several
            excused = self._ledger.reuses_ids and leaked and (turn.dead or self._company)
            # Behind a load its answer comes after all; before it the load was given up, since the
            # client has read too little, and that is the next thing that it is told.
            gives_up = (SESSION_LOAD, prompt.session_id) in self._openings.values()
            if not (excused or gives_up) and not prompt.unseen and prompt not in self._closed:
                raise Lost(f"prompt {prompt.number} has ended, not shown: {sorted(missing)}")
            self._leaks[prompt.session_id] -= 1
        if prompt.stopped == "cancelled":
            by_any = (prompt.life, prompt.session_id) in self._ledger.stops
            # A turn whose client does not have the session any more is anybody's to end.
            # What joined a turn ends with that, whoever stops it.
            others = (prompt.unseen or prompt.steers) and prompt.stoppable
            if not by_any and not prompt.own_stop and not others:
                raise Lost(f"prompt {prompt.number} is cancelled, and nobody did")
            if turn.number == prompt.number:
                turn.dead |= turn.ids
                turn.ids = set()

    def _opened(self, request: str, method: str, session_id: str, message: Message) -> None:
        result = message.get("result")
        if method == SESSION_NEW and isinstance(result, dict):
            own = result["sessionId"]
            self._who.transcripts.setdefault(own, Transcript(own)).attached = True
            self._sight(own).began()
            return
        if method == SESSION_DELETE:
            self._ledger.deleted |= {session_id} if result is not None else set()
            return
        if method in _LEAVING:
            if result is not None:
                self._sight(session_id).left()
            self._transcript(session_id).leaving -= 1
            if self._company:
                self._loses_sight(session_id)
            return
        replays, well = method == SESSION_LOAD, result is not None
        self._sight(session_id).opened(replays=replays, well=well)
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
