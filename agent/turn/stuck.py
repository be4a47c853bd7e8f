"""Detects from the last entries of a history that a model goes round in circles. No I/O.

Invariants
- Only the current turn counts, because a new prompt may well ask for the same again. Answers that
  announce a call and make none are counted across turns, because each of them ends one.
- Calls are equal if their names, their arguments as JSON values, and their results are. So a call
  whose result changes, such as one that polls a build's log, never counts.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any

from agent.conversation.entries import Answer, Call, Entry, Note, Prompt
from agent.conversation.messages import parsed

#: how many of the last entries are compared
WINDOW = 20
EQUAL_CALLS, FAILING_CALLS, EMPTY_ANNOUNCEMENTS, ALTERNATING_CALLS = 4, 3, 3, 6


class Circle(Enum):
    """A way of going round in circles; the value completes the sentence "the model ..."."""

    EQUAL = f"made the same call {EQUAL_CALLS} times and got the same result each time"
    FAILING = f"made the same call {FAILING_CALLS} times, and it failed in the same way each time"
    ANNOUNCING = f"announced a tool call {EMPTY_ANNOUNCEMENTS} times and made none"
    ALTERNATING = (
        f"made the same two calls in turn, {ALTERNATING_CALLS} in all, to the same results"
    )
    COMPACTING = "ran out of room twice and made no new call in between"


def circle(entries: Sequence[Entry], compactions: Sequence[int] = ()) -> Circle | None:
    """Returns how the model goes round in circles at the end of `entries`; None if it doesn't.

    `compactions`: for each time that room was made for an answer, the number of entries at that
    time.
    """
    last = next((e for e in reversed(entries) if not isinstance(e, Note)), None)
    if not isinstance(last, Answer):
        return None
    if not last.calls:  # the turn ends with such an answer, unless it announced a call
        return Circle.ANNOUNCING if _announcing(entries) else None
    turn = _turn(entries)
    rounds = [_round(answer) for answer in turn if isinstance(answer, Answer) and answer.calls]
    # Calls of one answer may be repeated together, as an answer, or one after the other.
    singles = [(pair,) for pairs in rounds for pair in pairs]
    for made in (singles, rounds):
        if _equal(made, FAILING_CALLS) and all(pair.failed for pair in made[-1]):
            return Circle.FAILING
        if _equal(made, EQUAL_CALLS):
            return Circle.EQUAL
        if _alternating(made):
            return Circle.ALTERNATING
    before = len(entries) - len(turn)
    if _compacting(turn, [count - before for count in compactions if count >= before]):
        return Circle.COMPACTING
    return None


class _Pair:
    """A call and its result; two pairs are equal if their calls and results are."""

    def __init__(self, call: Call) -> None:
        self.made = (call.call.name, _hashable(parsed(call.call.arguments)))
        # Equal to no other, so a call without a result never repeats another.
        result: Hashable = object()
        self.failed = False
        if (outcome := call.outcome) is not None:
            result = (outcome.status, outcome.text, *outcome.images)
            self.failed = _failed(outcome.status, outcome.raw)
        self._key = (self.made, result)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pair) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


_Round = tuple[_Pair, ...]


def _turn(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Returns the entries of the current turn among the last `WINDOW`, without its prompt."""
    last = list(entries[-WINDOW:])
    prompts = [number for number, entry in enumerate(last) if isinstance(entry, Prompt)]
    return last[prompts[-1] + 1 :] if prompts else last


def _round(answer: Answer) -> _Round:
    return tuple(map(_Pair, answer.calls))


def _failed(status: str, raw: Any) -> bool:
    """Returns True if a call failed; a command also fails by an exit code other than 0."""
    match raw:
        case {"exitCode": code}:
            return status == "failed" or code != 0
    return status == "failed"


def _equal(made: Sequence[_Round], count: int) -> bool:
    return len(made) >= count and len(set(made[-count:])) == 1


def _alternating(made: Sequence[_Round]) -> bool:
    last = made[-ALTERNATING_CALLS:]
    return len(last) == ALTERNATING_CALLS and all(
        one == other for one, other in zip(last, last[2:], strict=False)
    )


def _compacting(turn: Sequence[Entry], compactions: Sequence[int]) -> bool:
    if len(compactions) < 2:
        return False
    since = compactions[-2]
    earlier, later = (
        {pair.made for entry in part if isinstance(entry, Answer) for pair in _round(entry)}
        for part in (turn[:since], turn[since:])
    )
    return later <= earlier


# announcements


def _announcing(entries: Sequence[Entry]) -> bool:
    answers = [e for e in entries[-WINDOW:] if isinstance(e, Answer) and not e.refused]
    last = answers[-EMPTY_ANNOUNCEMENTS:]
    return len(last) == EMPTY_ANNOUNCEMENTS and all(
        not answer.calls and (answer.announced or announces(answer.said("text"))) for answer in last
    )


#: matches a tool call written into the text instead of made
_WRITTEN = re.compile(
    r"<\|?/?(tool_call|function_call|function=|invoke\b|tool_use)|\[TOOL_CALLS?\]"
    r"|\{\s*\"(name|function|tool)\"\s*:\s*\"[^\"]*\"\s*,\s*\"(arguments|parameters|input)\"\s*:"
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|[;\u2014]\s+")
_BEFORE = r"(?:(?:ok|okay|now|next|first|then|so|right|sure|great|alright|good|also)\b[\s,.!:-]*)*"
_INTENT = re.compile(
    rf"{_BEFORE}(?:"
    r"i['\u2019]ll|i will|i['\u2019]m going to|i am going to|i shall|i need to|i now|let me|"
    r"let['\u2019]s|we['\u2019]ll|we will|"
    r"(?:calling|running|reading|searching|checking|looking|opening|executing|using|testing)\b|"
    r"ich werde|lass mich|je vais|voy a|d\u00e9jame|vou )\b",
    re.IGNORECASE,
)
_NO_INTENT = re.compile(
    r"let me know|\bwait(ing)?\b|\b(if|once|when|unless|until|whenever|whether) (you|this|that)\b",
    re.IGNORECASE,
)


def announces(text: str) -> bool:
    """Guesses from the end of an answer whether a tool call should follow it."""
    text = text.strip()
    if _WRITTEN.search(text):
        return True
    line = text.rpartition("\n")[2].strip(" \t*_`>#-")
    if line.endswith((":", "\uff1a", "\u2026", "...")):
        return True
    sentence = _SENTENCES.split(line)[-1].strip(" *_`")
    if sentence.endswith("?") or _NO_INTENT.search(sentence):
        return False
    return _INTENT.match(sentence) is not None


def _hashable(value: Any) -> Hashable:
    match value:
        case dict():
            return frozenset((key, _hashable(each)) for key, each in value.items())
        case list():
            return tuple(map(_hashable, value))
    return type(value), value
