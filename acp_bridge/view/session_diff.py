"""Folds the changes of one file that a session's tool calls tell into what they come to.

A call tells a whole file or a fragment of it, and not which. What the file was is found from what
it is now, each change undone, the last one first; else from where it began, each change made again.
A fragment has a place where its text is there once. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from acp_bridge.view.blocks import Diff


class Unknown(Enum):
    """Stands for the content of a file that can't be told."""

    CONTENT = "unknown"


UNKNOWN: Final = Unknown.CONTENT
#: the content of a file; None: there is no such file.
Content = str | Unknown | None


@dataclass(frozen=True, slots=True)
class Change:
    """What some changes of a file come to, from one content to another."""

    before: str | None
    after: str | None


@dataclass(slots=True)
class FileChanges:
    """The changes of one file in order, and what could not be placed in it."""

    changes: list[Change] = field(default_factory=list)
    fragments: list[Diff] = field(default_factory=list)


def folded(
    diffs: Sequence[Diff], wanted: Sequence[bool], now: Content, base: Content = UNKNOWN
) -> FileChanges:
    """Fold the changes of a file.

    `wanted`: which of them are to be told; `now`: what the file is; `base`: what it was before, if
    all changes lead from there to what it is.
    """
    states = _states(diffs, now, base)
    found, open_ = FileChanges(), False
    for diff, want, (before, after) in zip(diffs, wanted, states, strict=True):
        if not want:
            open_ = False
        elif before is UNKNOWN or after is UNKNOWN:
            found.fragments.append(diff)
            open_ = False
        elif open_ and found.changes[-1].after == before:
            found.changes[-1] = Change(found.changes[-1].before, after)
        else:
            found.changes.append(Change(before, after))
            open_ = True
    found.changes = [each for each in found.changes if each.before != each.after]
    return found


def fits(diffs: Sequence[Diff], now: Content) -> bool:
    """Return False if the file is now other than the last of its changes has left it."""
    last = diffs[-1]
    if not isinstance(now, str):
        return now is None and not last.new
    return now == last.new or (last.old is not None and last.new in now)


def _states(diffs: Sequence[Diff], now: Content, base: Content) -> list[tuple[Content, Content]]:
    """Return the content before and after each change."""
    if base is not UNKNOWN:
        forth = list(_forth(diffs, base))
        if forth[-1][1] == now and now is not UNKNOWN:
            return forth
    back = list(_back(diffs, now))[::-1]
    forth = list(_forth(diffs, UNKNOWN))
    return [b if UNKNOWN not in b else f for b, f in zip(back, forth, strict=True)]


def _back(diffs: Sequence[Diff], now: Content) -> Iterator[tuple[Content, Content]]:
    """Give the content before and after each change, from the last one on."""
    for at, diff in reversed([*enumerate(diffs)]):
        # Some agents tell no old text of a file that they write anew.
        overwritten = at > 0 and diff.old is None
        before = UNKNOWN if now is UNKNOWN or overwritten else undone(now, diff)
        yield before, now
        now = before


def _forth(diffs: Sequence[Diff], base: Content) -> Iterator[tuple[Content, Content]]:
    """Give the content before and after each change, from the first one on."""
    for at, diff in enumerate(diffs):
        before = None if at == 0 and base is UNKNOWN and diff.old is None else base
        after = _made(before, diff)
        yield before, after
        base = after


def undone(after: str | None, diff: Diff) -> Content:
    """Return what a file was before a change."""
    if after == diff.new or (after is None and not diff.new):
        return diff.old
    if after is None or diff.old is None or not _is_once(diff.new, after):
        return UNKNOWN
    return after.replace(diff.new, diff.old)


def _made(before: Content, diff: Diff) -> Content:
    """Return what a file is after a change."""
    if diff.old is None or before == diff.old or (before is None and not diff.old):
        return diff.new
    if not isinstance(before, str) or not _is_once(diff.old, before):
        return UNKNOWN
    return before.replace(diff.old, diff.new)


def _is_once(part: str, text: str) -> bool:
    """Return True if a text has this part at one place alone, overlaps included."""
    at = text.find(part)
    return bool(part) and at >= 0 and at == text.rfind(part)
