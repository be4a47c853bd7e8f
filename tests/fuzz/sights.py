"""Compares what each client was shown of a session with the whole of it, as it is in the end.

While a client has a session it is shown all that happens, each thing once and in one order, which
is the order of every later load; but its own prompts, which it shows by itself. The words of others
come where their turns begin. (invariants R1, V1)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from acp_bridge.core.protocol import PROMPT_ID, STATE, USER_MESSAGE, own_meta
from tests.crash.told import Lost
from tests.fuzz.transcripts import Updates, kept
from tests.support.recording import Message

_NEXT = "\0"


def part_of(params: Message) -> Message | None:
    """An update as a part of the whole, or None for what is none: states, and what bridges say."""
    update = params["update"]
    if update["sessionUpdate"] in STATE or own_meta(params).keys() - {PROMPT_ID}:
        return None
    return {**update} if update["sessionUpdate"] == USER_MESSAGE else kept(params)


def flat(updates: Updates, without: Collection[str] = ()) -> str:
    """The parts as one text, the same however messages are cut into chunks.

    `without`: prompts whose words are left out.
    """
    return "".join(_pieces(updates, without))


def _pieces(updates: Updates, without: Collection[str]) -> Iterator[str]:
    last = ""
    for update in updates:
        content = update.get("content")
        is_text = isinstance(content, dict) and content.get("type") == "text"
        said = content["text"] if isinstance(content, dict) and is_text else ""
        if update["sessionUpdate"] == USER_MESSAGE:
            if said not in without:
                yield f"{_NEXT}user {json.dumps(content)}"
                last = ""
            continue
        label = f"{update['sessionUpdate']} {update.get('messageId')}" if is_text else ""
        if not is_text:
            yield _NEXT + json.dumps(update)
        elif label != last:
            yield f"{_NEXT}{label}{_NEXT}{said}"
        else:
            yield said
        last = label


@dataclass(slots=True)
class Segment:
    """What a client was shown from its getting a session to its leaving it, or loading it again."""

    #: what a load has shown, perhaps behind what was on its way; None: it began in the middle.
    window: Updates | None
    #: what was shown since.
    live: Updates = field(default_factory=list)
    #: bridges that ended in this time: what they had not passed on may be missing.
    gaps: int = 0
    #: the client had asked for nothing of this session before.
    first: bool = False
    #: the session may have gone on without the client behind it.
    broken: bool = False
    #: the client's prompts since, and those that it was shown itself.
    sent: set[str] = field(default_factory=set)
    echoed: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Sight:
    """What one connection was shown of one session."""

    session_id: str
    #: who has seen it, for messages.
    who: str
    #: the texts of its own prompts.
    own: set[str] = field(default_factory=set)
    segments: list[Segment] = field(default_factory=list)
    #: it has the session; the last segment goes on.
    has_it: bool = False
    #: it has left the session, was answered so, and has asked for nothing since.
    has_left: bool = False
    #: openings that are not answered: what is shown meanwhile, and if it may be told apart.
    _open: int = 0
    _asked: int = 0
    _window: Updates = field(default_factory=list)
    _mixed: bool = False
    _late_gaps: int = 0

    def shown(self, params: Message) -> None:
        """Take an update. Raises Lost if the client does not have the session any more."""
        part = part_of(params)
        if part is None:
            return
        if self.has_left:
            raise Lost(f"{self.who} has left {self.session_id}, and is shown {params}")
        if self._open:
            self._window.append(part)
        elif self.has_it:
            self.segments[-1].live.append(part)
            text = str((part.get("content") or {}).get("text"))
            if part["sessionUpdate"] == USER_MESSAGE and text in self.segments[-1].sent:
                self.segments[-1].echoed.add(text)

    def prompted(self, text: str) -> None:
        """The client has sent a prompt, whose words it shows by itself."""
        if self.has_it and not self._open:
            self.segments[-1].sent.add(text)

    def began(self) -> None:
        """The session is new."""
        self.segments.append(Segment([], first=True))
        self.has_it, self.has_left = True, False
        self._asked += 1

    def asked_to_open(self) -> None:
        """A load, a resume or an attach was sent."""
        self.has_left = False
        self._mixed = self._open > 0 or self._mixed
        self._open += 1
        self._asked += 1

    def opened(self, *, replays: bool, well: bool) -> None:
        """It was answered."""
        self._open -= 1
        if self._open:
            return
        window, mixed, self._window, self._mixed = self._window, self._mixed, [], False
        if mixed or (not well and replays):
            self._break()
            self.has_it = well and mixed
            if self.has_it:
                self.segments.append(Segment(None, gaps=self._late_gaps))
                self._late_gaps = 0
        elif not replays and self.has_it:
            self.segments[-1].live += window
        elif well:
            self.segments.append(Segment(window if replays else None, first=self._asked == 1))
            self.has_it = True

    def lost_sight(self) -> None:
        """What follows may not be shown to the client."""
        self._break()
        self.has_it = False
        self._mixed = self._open > 0

    def missed(self) -> None:
        """What was said last may have been kept from the client: only a replay has it."""
        self._break()

    def left(self) -> None:
        """The client has closed the session, and was answered."""
        self.has_left = not self._open

    def _break(self) -> None:
        if self.segments:
            self.segments[-1].broken = True

    def bridge_ended(self) -> None:
        """Another bridge, which may have been the one that has the session, has ended."""
        if self.has_it:
            self.segments[-1].gaps += 1
        if self._open:
            self._mixed, self._late_gaps = True, self._late_gaps + 1

    # --- afterwards ----------------------------------------------------------------------------

    def compare(self, whole: Updates) -> int:
        """Returns how many segments were compared with the session as it is. Raises Lost."""
        before: Segment | None = None
        replay: Updates | None = None
        for segment in self.segments:
            known, replay = replay, None
            if segment.window is not None:
                replay = self._replay_in(segment, before, known, whole)
            self._compare_live(segment, replay, whole)
            before = segment
        return len(self.segments)

    def _replay_in(
        self, segment: Segment, before: Segment | None, known: Updates | None, whole: Updates
    ) -> Updates:
        """The part of a load's window that is its replay. Raises Lost if there can be none."""
        all_of_it, window = flat(whole), segment.window or []
        for cut in range(1 if segment.first else len(window) + 1):
            replay = window[cut:]
            if replay and not _may_begin(replay[0], whole):
                continue
            if not all_of_it.startswith(flat(replay)):
                continue
            unsure = before is None or before.gaps or before.broken
            if unsure or self._goes_on(before, known, window[:cut], replay):
                return replay
        raise Lost(self._message("a load that goes on from what was shown", flat(window), whole))

    def _goes_on(
        self, before: Segment | None, known: Updates | None, late: Updates, replay: Updates
    ) -> bool:
        """The replay has all that was shown before, and no more."""
        assert before is not None
        now = flat(replay, self.own)
        if known is not None:
            return now == flat([*known, *before.live, *late], self.own)
        shown = flat([*before.live, *late], self.own)
        return now.endswith(_unlabelled(shown))

    def _compare_live(self, segment: Segment, replay: Updates | None, whole: Updates) -> None:
        all_of_it = flat(whole, self.own)
        begins = replay is not None
        shown = flat([*(replay or []), *segment.live], self.own)
        if not _fits(shown if begins else _unlabelled(shown), all_of_it, begins, segment.gaps):
            raise Lost(self._message("what was shown live", shown, whole))

    def _message(self, what: str, shown: str, whole: Updates) -> str:
        all_of_it = flat(whole, self.own)
        at = _longest(shown, all_of_it)
        there = all_of_it.find(shown[:at]) + at
        return (
            f"{self.who}, session {self.session_id}: {what} is not as it is in the end: shown"
            f" ...{shown[max(0, at - 100) : at + 300]!r} ({len(shown)}), and there is"
            f" ...{all_of_it[max(0, there - 100) : there + 300]!r} ({len(all_of_it)})"
        )


def _may_begin(update: Message, whole: Updates) -> bool:
    if not whole:
        return False
    first, one = flat(whole[:1]), flat([update])
    return first.startswith(one) or one.startswith(first)


def _unlabelled(text: str) -> str:
    """Without the label of a message whose beginning may have been before."""
    if text.startswith(_NEXT) and text[1:6] == "agent":
        return text[text.find(_NEXT, 1) + 1 :]
    return text


def _fits(shown: str, whole: str, begins: bool, gaps: int) -> bool:
    """It is a part of the whole, or with gaps some parts in this order."""
    if whole.startswith(shown) if begins else shown in whole:
        return True
    if not gaps:
        return False
    length = _common(shown, whole) if begins else _longest(shown, whole)
    rest = shown[length:]
    at = length if begins else whole.find(shown[:length]) + length
    return any(_fits(part, whole[at:], False, gaps - 1) for part in {rest, _unlabelled(rest)})


def _common(one: str, other: str) -> int:
    """The length of what both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _longest(shown: str, whole: str) -> int:
    """The length of the longest beginning that is somewhere in the whole."""
    low, high = 0, len(shown)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if shown[:middle] in whole else (low, middle - 1)
    return low
