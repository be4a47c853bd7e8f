"""Writes changes of files as a patch that `git apply` and `patch` take. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

#: lines around a change that are shown with it.
_CONTEXT: Final = 3
#: lines of one side above which a change is written as a whole: to compare takes their square.
_MOST_COMPARED: Final = 3_000
_NO_NEWLINE: Final = "\\ No newline at end of file"


def patch(path: str, before: str | None, after: str | None) -> list[str]:
    """Return the lines of the patch from one text of a file to another; None: there is no file."""
    old, new = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    head = [f"diff --git {old} {new}"]
    if before is None:
        head.append("new file mode 100644")
    if after is None:
        head.append("deleted file mode 100644")
    lines = list(hunks(before or "", after or ""))
    if lines:
        head.append("--- /dev/null" if before is None else f"--- {old}")
        head.append("+++ /dev/null" if after is None else f"+++ {new}")
    return [*head, *lines]


def _quoted(path: str) -> str:
    """Return a path as git writes it: in quotes, with escapes, if odd characters are in it."""
    if path.isprintable() and not {'"', "\\"} & set(path):
        return path
    escaped = (
        char if " " <= char <= "~" else "".join(f"\\{byte:03o}" for byte in _bytes(char))
        for char in path.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{"".join(escaped)}"'


def _bytes(char: str) -> bytes:
    return char.encode(errors="surrogatepass")


def hunks(before: str, after: str) -> Iterator[str]:
    """Give the lines of a unified diff from the first `@@` on; none for equal texts."""
    old, new = _lines(before), _lines(after)
    first, last = _differing(old, new)
    if first == len(old) == len(new):
        return
    # Only what differs is compared, with the lines around it.
    begin, rest = max(0, first - _CONTEXT), max(0, last - _CONTEXT)
    for group in _groups(old[begin : len(old) - rest], new[begin : len(new) - rest], first - begin):
        i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        yield f"@@ -{_range(begin + i1, i2 - i1)} +{_range(begin + j1, j2 - j1)} @@"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from _signed(" ", old[begin + a1 : begin + a2])
            else:
                yield from _signed("-", old[begin + a1 : begin + a2])
                yield from _signed("+", new[begin + b1 : begin + b2])


_Group = list[tuple[str, int, int, int, int]]


def _groups(old: list[str], new: list[str], same: int) -> Iterator[_Group]:
    """Give groups of opcodes as `SequenceMatcher.get_grouped_opcodes` does.

    `same`: how many first lines are known to be equal.
    """
    if max(len(old), len(new)) <= _MOST_COMPARED:
        for group in SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
            yield [(str(tag), a1, a2, b1, b2) for tag, a1, a2, b1, b2 in group]
        return
    after = _differing(old, new)[1]
    yield [
        ("equal", 0, same, 0, same),
        ("replace", same, len(old) - after, same, len(new) - after),
        ("equal", len(old) - after, len(old), len(new) - after, len(new)),
    ]


def _differing(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many lines are equal at the beginning, and how many of the others at the end."""
    most = min(len(old), len(new))
    first = next((at for at in range(most) if old[at] != new[at]), most)
    left = most - first
    last = next((at for at in range(left) if old[-1 - at] != new[-1 - at]), left)
    return first, last


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their newlines; nothing else divides lines."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _signed(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith("\n"):
            yield sign + line[:-1]
        else:
            yield sign + line
            yield _NO_NEWLINE


def _range(start: int, length: int) -> str:
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
