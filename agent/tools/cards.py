"""Makes the content that tools show on their cards (ACP tool call content), and their titles."""

from __future__ import annotations

from typing import Any

from agent.content.fences import fenced

#: characters; of a diff of longer texts, only the lines that differ and some around are shown
_WHOLE = 100_000
_AROUND = 10
_TITLE = 60


def diff(path: str, old: str | None, new: str) -> tuple[dict[str, Any], ...]:
    """Returns a diff as card content; of long texts only the part that differs.

    `path`: absolute. `old`: None if the file is new.
    """
    if old is not None and len(old) + len(new) > _WHOLE:
        old, new = _differing(old, new)
    return ({"type": "diff", "path": path, "oldText": old, "newText": new},)


def code(text: str) -> tuple[dict[str, Any], ...]:
    """Returns a text as card content in a code fence, so that it isn't read as Markdown."""
    return sentence(fenced(text))


def sentence(text: str) -> tuple[dict[str, Any], ...]:
    """Returns a sentence of our own as card content."""
    return ({"type": "content", "content": {"type": "text", "text": text}},)


def image(data: str, mime_type: str) -> tuple[dict[str, Any], ...]:
    """Returns an image as card content. `data`: base64."""
    return ({"type": "content", "content": {"type": "image", "data": data, "mimeType": mime_type}},)


def visible(text: str) -> str:
    """Returns the text with invisible characters written as escapes, so that the user sees them."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def short(text: str) -> str:
    """Returns the text as a one-line title; a long one keeps its end, which tells files apart."""
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
