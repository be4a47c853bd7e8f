"""What was asked and what was said in one run, and what must hold of it, bridge after bridge.

Judged when a bridge has ended, from each client's recorded lines and the agents' log alone:

- every line, answer and tool card is as `tests/whole/judge.py` wants it;
- a request is answered once; when the bridge was given time, none is unanswered;
- a whole turn's words were shown before its answer, and nothing of a cancelled one after it;
- nobody is answered `cancelled` without a reason, which a Stop of another client is not;
- a load shows what was shown, to this client and to any other (`transcripts.py`);
- an agent gets each prompt at most once, but for words that it perhaps did not read, and a
  session's prompts in the order of sending; each of its questions is answered once;
- in the end, what each client was shown is a part of the whole, in its order (`sights.py`), and
  questions were asked of all who can answer, and decided by one of them (`questions.py`);
- what a kept bridge had accepted has run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from acp_bridge.core.protocol import AGENT_MESSAGE, USER_MESSAGE
from tests.crash.told import Lost
from tests.fuzz.heard import Heard
from tests.fuzz.prompts import KEPT, ClosedForAll, Guest, Prompt, number_of
from tests.fuzz.questions import Person, judge_answers_heard, judge_who_was_asked
from tests.fuzz.sights import Sight, flat
from tests.fuzz.states import judge_states
from tests.fuzz.transcripts import Transcript, Updates
from tests.fuzz.walk import LEAK, Walk
from tests.support.fixture_agents import FixtureLog
from tests.support.recording import Message, Recording
from tests.support.shared_processes import faults_of_sharing
from tests.whole.judge import PROMPT, judge_answers, judge_cards, judge_lines

#: bytes that a bridge can have written without anybody reading them.
_PIPE = 65536


@dataclass
class Ledger:
    """Everything of one run."""

    transcripts: dict[str, Transcript] = field(default_factory=dict)
    prompts: list[Prompt] = field(default_factory=list)
    #: those of clients of version 2, by their numbers; of which of them a turn has begun; and what
    #: these clients were told.
    newer: dict[int, Prompt] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    heard: list[Heard] = field(default_factory=list)
    #: the agent names things alike in every turn.
    reuses_ids: bool = False
    #: the agent replays after its answer to a load.
    replays_late: bool = False
    #: bridges live at the same time: who has seen what first is known in the end alone.
    several: bool = False
    #: sessions with something that may cancel a prompt of any client, by life.
    stops: set[tuple[int, str]] = field(default_factory=set)
    #: sessions that the client wanted to be deleted, and those that were.
    gone: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    #: in the order of sending.
    closings: list[ClosedForAll] = field(default_factory=list)
    #: sessions whose held prompts may have been dropped by the user's word.
    dropped: set[str] = field(default_factory=set)
    #: sessions whose waiting prompts the user may have moved.
    moved: set[str] = field(default_factory=set)
    #: how many turns the agents' log had when each bridge had ended.
    turns: list[int] = field(default_factory=list)
    #: the numbers of the bridges that live.
    alive: set[int] = field(default_factory=set)
    #: what each connection was shown, and whom it was asked for.
    sights: list[tuple[Person, Sight]] = field(default_factory=list)
    people: list[Person] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def transcript(self, session_id: str) -> Transcript:
        return self.transcripts.setdefault(session_id, Transcript(session_id, unknown=True))

    @property
    def everybodys(self) -> list[Prompt]:
        """The prompts of all clients."""
        return [*self.prompts, *self.newer.values()]

    def _find(self, number: int | None) -> Prompt | None:
        if number is None or number < len(self.prompts):
            return None if number is None else self.prompts[number]
        return self.newer.get(number)

    def stop(self, life: int, session_id: str, by: int | None = None) -> None:
        """Prompts of this session may be cancelled: those that one client has sent until now.

        Without `by` all of them, also later ones: how messages of two clients meet is not known.
        """
        lives = self.alive | {life}
        if by is None:
            self.stops |= {(each, session_id) for each in lives}
        for prompt in self.everybodys:
            # One that another bridge has passed on waits there, also when its own has ended.
            there = prompt.life in lives or self.several
            if there and prompt.session_id == session_id:
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
        declared: Message | None = None,
        ends: Collection[int] = (),
        drops: Collection[float] = (),
    ) -> None:
        """Take all that one bridge said to one client; `prompts`: by the key of their ids.

        `guest`: the client is not the one that starts the bridges. `company`: there was more than
        one client. `declared`: what it said of itself. `ends`: how many lines there were when
        other bridges ended. `drops`: when the line of this client dropped. Raises Lost.
        """
        who = guest or Guest(0, len(self.turns) - 1, transcripts=self.transcripts)
        if company and who.transcripts is self.transcripts:
            for transcript in self.transcripts.values():
                transcript.missed()
        walk = Walk(self, who, prompts, Counter(LEAK.findall(said)), company=company)
        walk.drops = sorted(drops)
        recording, quiet = _whole_lines(recording, quiet=quiet)
        for at, record in enumerate(recording):
            for _ in range(list(ends).count(at)):
                walk.bridge_ended()
            walk.take(record)
        if not self.replays_late:
            walk.judge_echoes()
        for transcript in who.transcripts.values():
            transcript.ended(quiet=quiet)
        try:
            judge_lines(recording, said)
            judge_answers(recording)
            judge_cards(Recording(walk.outside))
        except AssertionError as exc:
            raise Lost(f"judge: {exc}") from exc
        if who.transcripts is not self.transcripts and not (self.replays_late or self.several):
            for session_id, transcript in who.transcripts.items():
                same = self.transcript(session_id).compare_with(transcript)
                self.counts["clients: compared"] += same
        self._note_person(recording, walk, who, prompts, declared or {})

    def _note_person(
        self, recording: Recording, walk: Walk, who: Guest, prompts: dict[str, Prompt], own: Message
    ) -> None:
        """Keep what a client was shown, and judge what it was told; `own`: its abilities."""
        person = Person(who.number, bool(own.get("observer")), bool(own.get("ownTurnsOnly")))
        person.read(recording, self.prompts)
        self.people.append(person)
        self.sights += [(person, sight) for sight in walk.sights.values()]
        mine = {prompt.number for prompt in prompts.values()}
        self.counts["state: judged"] += judge_states(recording, self.prompts, mine)

    def judge_whole(self, session_id: str, whole: Updates) -> None:
        """Compare what all clients were shown of a session with what it is. Raises Lost."""
        if self.replays_late:
            return
        for person, sight in self.sights:
            if sight.session_id != session_id:
                continue
            self.counts["sight: compared"] += sight.compare(whole)
            if len(sight.segments) == 1:
                live = sight.segments[0].live
                shown = flat([each for each in live if each["sessionUpdate"] != USER_MESSAGE])
                for prompt in self.prompts:
                    judge_who_was_asked(prompt, person, self.people, shown)
        for heard in self.heard:
            heard.judge_whole(session_id, whole)
        own = [prompt for prompt in self.everybodys if prompt.session_id == session_id]
        said = {prompt.number: _said(prompt, whole) for prompt in own}
        self.counts += judge_answers_heard(own, self.people, said)

    def judge_agents(self, log: FixtureLog) -> None:
        """Take what the agents of all bridges got. Raises Lost."""
        if log.events("overlap"):
            raise Lost("an agent got a prompt during a turn")
        for fault in () if self.reuses_ids else faults_of_sharing(log.events()):
            raise Lost(fault)
        if log.events("locked out") and not self.reuses_ids:
            raise Lost("a session was open in two processes")
        texts = [
            block["text"]
            for message in log.received(PROMPT)
            for block in message["params"]["prompt"]
            if number_of(block["text"]) is not None
        ]
        texts += [event["prompt"] for event in log.events("steered")]
        sent = Counter(texts)
        sent.subtract({prompt.text for prompt in self.prompts if prompt.may_be_unread})
        if twice := [text for text, times in sent.items() if times > 1]:
            raise Lost(f"sent to an agent twice: {twice}")
        answers = Counter(
            (event["pid"], str(event["message"].get("id")))
            for event in log.events("received")
            if "method" not in event["message"]
        )
        if answered := [each for each, times in answers.items() if times > 1]:
            raise Lost(f"an agent's request was answered twice: {answered}")
        self._judge_order([number_of(turn["prompt"]) for turn in log.turns()])

    def _may_be_kept(self, prompt: Prompt) -> bool:
        """Return True if it may have waited at a close for all, and its client was gone by then."""
        closed = any(each.session_id == prompt.session_id for each in self.closings)
        return closed and prompt.answer is None

    def _judge_order(self, ran: list[int | None]) -> None:
        last: defaultdict[tuple[object, ...], int] = defaultdict(lambda: -1)
        life = 0
        for at, number in enumerate(ran):
            while life < len(self.turns) and at >= self.turns[life]:
                life += 1
            prompt = self._find(number)
            if number is None or prompt is None:
                continue
            if prompt.urgent or prompt.session_id in self.moved or self._may_be_kept(prompt):
                continue
            # Prompts that were left over ran later, by the user's word, in an order of their own:
            # of an earlier life, or kept when the session was closed for all. Of several bridges
            # another one's end begins a life, too, which leaves nothing over here.
            left = prompt.era if self.several else prompt.era != life, KEPT in str(prompt.answer)
            which = (prompt.session_id, life, left, prompt.by)
            if number < last[which]:
                raise Lost(f"prompt {number} ran after {last[which]}")
            last[which] = number


def _said(prompt: Prompt, whole: Updates) -> str:
    """What the agent said in the turn of a prompt."""
    said, runs = "", False
    for update in whole:
        content = update.get("content")
        text = content.get("text", "") if isinstance(content, dict) else ""
        if update["sessionUpdate"] == USER_MESSAGE:
            runs = text == prompt.text
        elif runs and update["sessionUpdate"] == AGENT_MESSAGE:
            said += text
    return said


def _whole_lines(recording: Recording, *, quiet: bool) -> tuple[Recording, bool]:
    """Return the lines that are whole, and whether nothing else was on its way.

    A bridge that was killed, or had no time left for a client that didn't read, or for lines of
    megabytes, may have been in the middle of its last line.
    """
    last = recording[-1].raw if recording else b"\n"
    torn = not last.endswith(b"\n")
    quiet &= not torn or len(last) < _PIPE
    return Recording(recording[:-1] if torn and not quiet else recording), quiet
