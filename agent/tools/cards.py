"""What file tools show on their cards: ACP tool call content."""

from __future__ import annotations

from typing import Any

from agent.content.fences import fenced

#: characters of a text in a diff; of a longer one, only the lines that differ and some around
_WHOLE = 100_000
_AROUND = 10
_TITLE = 60


def diff(path: str, old: str | None, new: str) -> tuple[dict[str, Any], ...]:
    """`path`: absolute. `old`: None if the file is new. Of long texts, the part that differs."""
    if old is not None and len(old) + len(new) > _WHOLE:
        old, new = _differing(old, new)
    return ({"type": "diff", "path": path, "oldText": old, "newText": new},)


def code(text: str) -> tuple[dict[str, Any], ...]:
    """Text that is not markdown."""
    return ({"type": "content", "content": {"type": "text", "text": fenced(text)}},)


def image(data: str, mime_type: str) -> tuple[dict[str, Any], ...]:
    """`data`: base64."""
    return ({"type": "content", "content": {"type": "image", "data": data, "mimeType": mime_type}},)


def visible(text: str) -> str:
    """With what would not be seen written out: the user is to know what is asked."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def short(text: str) -> str:
    """One line of it for a title: of a long one the end, which tells files apart."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= _TITLE else f"…{line[1 - _TITLE :]}"


def _differing(old: str, new: str) -> tuple[str, str]:
    before, after = old.splitlines(True), new.splitlines(True)
    both = min(len(before), len(after))
    head = next((n for n in range(both) if before[n] != after[n]), both)
    rest = both - head
    tail = next((n for n in range(rest) if before[-1 - n] != after[-1 - n]), rest)
    start = max(0, head - _AROUND)
    tail = max(0, tail - _AROUND)
    return (
        "".join(before[start : len(before) - tail]),
        "".join(after[start : len(after) - tail]),
    )
