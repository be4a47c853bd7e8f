"""Sums up the changes of one file that a session's tool calls tell.

A call tells a whole file or a fragment of it, and not which. What the file was is found from what
it is now, each change undone, the last one first; else from where it began, each change made again.
A fragment has a place where its text is there once. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from acp_bridge.terminal.view.blocks import Diff


class Unknown(Enum):
    """Stands for the content of a file that can't be told."""

    CONTENT = "unknown"


UNKNOWN: Final = Unknown.CONTENT
#: the content of a file; None: there is no such file.
Content = str | Unknown | None


@dataclass(frozen=True, slots=True)
class Change:
    """The sum of changes of a file that follow each other; None: there is no such file."""

    before: str | None
    after: str | None


@dataclass(slots=True)
class FileChanges:
    """The changes of one file in order, and the fragments whose place in it is not known."""

    changes: list[Change] = field(default_factory=list)
    fragments: list[Diff] = field(default_factory=list)


def folded(
    diffs: Sequence[Diff], wanted: Sequence[bool], now: Content, base: Content = UNKNOWN
) -> FileChanges:
    """Return the sum of the changes of a file that tool calls tell in `diffs`, in order.

    `wanted`: for each diff, if it is to be part of the sum; `now`: the content of the file now;
    `base`: its content before the first diff, if all of them lead from there to `now`.
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
    """Return False if `now`, the content of the file, is not what the last of `diffs` has left."""
    last = diffs[-1]
    if not isinstance(now, str):
        return now is None and not last.new
    return now == last.new or (last.old is not None and last.new in now)


def _states(diffs: Sequence[Diff], now: Content, base: Content) -> list[tuple[Content, Content]]:
    """Return the content of the file before and after each diff, as far as it can be told."""
    if base is not UNKNOWN:
        forth = list(_forth(diffs, base))
        if forth[-1][1] == now and now is not UNKNOWN:
            return forth
    back = list(_back(diffs, now))[::-1]
    forth = list(_forth(diffs, UNKNOWN))
    return [b if UNKNOWN not in b else f for b, f in zip(back, forth, strict=True)]


def _back(diffs: Sequence[Diff], now: Content) -> Iterator[tuple[Content, Content]]:
    """Give the content before and after each diff, worked out from `now`, the last one first."""
    for at, diff in reversed([*enumerate(diffs)]):
        # Some agents tell no old text of a file that they write anew.
        overwritten = at > 0 and diff.old is None
        before = UNKNOWN if now is UNKNOWN or overwritten else undone(now, diff)
        yield before, now
        now = before


def _forth(diffs: Sequence[Diff], base: Content) -> Iterator[tuple[Content, Content]]:
    """Give the content before and after each diff, worked out from `base`, the first one first."""
    for at, diff in enumerate(diffs):
        before = None if at == 0 and base is UNKNOWN and diff.old is None else base
        after = _made(before, diff)
        yield before, after
        base = after


def undone(after: str | None, diff: Diff) -> Content:
    """Return the content of a file before `diff`, from the one after it; UNKNOWN if not clear."""
    if after == diff.new or (after is None and not diff.new):
        return diff.old
    if after is None or diff.old is None or not _is_once(diff.new, after):
        return UNKNOWN
    return after.replace(diff.new, diff.old)


def _made(before: Content, diff: Diff) -> Content:
    """Return the content of a file after `diff`, from the one before it; UNKNOWN if not clear."""
    if diff.old is None or before == diff.old or (before is None and not diff.old):
        return diff.new
    if not isinstance(before, str) or not _is_once(diff.old, before):
        return UNKNOWN
    return before.replace(diff.old, diff.new)


def _is_once(part: str, text: str) -> bool:
    """Return True if a text has this part at one place alone, overlaps included."""
    at = text.find(part)
    return bool(part) and at >= 0 and at == text.rfind(part)
