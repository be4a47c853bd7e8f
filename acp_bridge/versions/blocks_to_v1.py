"""Content blocks of version 2 as version 1 has them. SANS-IO."""

from __future__ import annotations

from collections.abc import Iterable

from acp_bridge.core.protocol import Json, objects, without


def block_to_v1(block: object) -> Json | None:
    """Return a content block without its icons; None for what is none."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return None
    if "icons" in block:
        return without(block, "icons")
    return block


def blocks_to_v1(blocks: object) -> list[Json]:
    """Return the blocks of a list in version 1's form."""
    return [found for each in objects(blocks) if (found := block_to_v1(each)) is not None]


def text_content(text: str) -> Json:
    """Return an item of a tool call's content that shows a text."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def fenced(text: str, language: str) -> str:
    """Return a text as a block of code in Markdown; the fence is longer than any in the text."""
    fence = "`" * max(3, 1 + _longest_run(text))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backquotes in a text."""
    runs: Iterable[str] = (
        "".join(c if c == "`" else " " for c in text).split() if "`" in text else ()
    )
    return max(map(len, runs), default=0)
