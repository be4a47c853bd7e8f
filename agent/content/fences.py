"""Text in a markdown code fence, for clients and models that read markdown."""

from __future__ import annotations

import re

_FENCE = re.compile(r"`{3,}")
_CLOSING = re.compile(r"\n`{3,}\Z")


def fenced(text: str) -> str:
    """Returns the text in a fence that is longer than any fence inside the text."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


def split_closing_fence(text: str) -> tuple[str, str]:
    """Splits a text before the line break in front of its closing fence; returns both parts.

    The second part is "" if the text does not end with a fence.
    """
    found = _CLOSING.search(text)
    end = found.start() if found else len(text)
    return text[:end], text[end:]
