"""Turns files that a prompt mentions as `@path` into resource links, which an agent understands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from acp_bridge.core.protocol import Json

#: `@path`, or `@"path with spaces"`, at the beginning of a word.
MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')
#: punctuation that may follow a mention and is not part of the path.
_ENDS: Final = ".,;:!?)]}>'"


def blocks_of(text: str, folder: Path) -> list[Json]:
    """Return a prompt's content blocks; a mention of no existing file below `folder` stays text."""
    blocks: list[Json] = []
    at = 0
    for found in MENTION.finditer(text):
        named = _existing(found, folder)
        if named is None:
            continue
        path, end = named
        _add_text(blocks, text[at : found.start()])
        blocks.append(
            {
                "type": "resource_link",
                "uri": (folder / path).absolute().as_uri(),
                "name": path,
            }
        )
        at = end
    _add_text(blocks, text[at:])
    return blocks


def text_of(blocks: list[Json], folder: Path) -> tuple[str, list[Json], list[Json]]:
    """Return a prompt's text with its mentions, and the blocks before and behind it.

    Such a block is one that can't stand in a text: an image, or a link that is no mention.
    """
    text, before, after, was_text = "", list[Json](), list[Json](), False
    for block in blocks:
        is_text = block.get("type") == "text"
        piece = str(block.get("text")) if is_text else written(str(block.get("name")))
        if is_text:
            text += f"\n{piece}" if was_text else piece
        elif blocks_of(piece, folder) == [block]:
            text += piece
        else:
            (after if text else before).append(block)
        was_text = is_text
    return text, before, after


def written(path: str) -> str:
    """Return the mention of a path, in quotes if it has white space."""
    return f'@"{path}"' if any(character.isspace() for character in path) else f"@{path}"


def _existing(found: re.Match[str], folder: Path) -> tuple[str, int] | None:
    """Return the mentioned path and the index of the mention's end.

    None if there is no such file.
    """
    if quoted := found[1]:
        return (quoted, found.end()) if _is_file(quoted, folder) else None
    path = found[2]
    for shorter in (path, path.rstrip(_ENDS)):
        if _is_file(shorter, folder):
            return shorter, found.start() + 1 + len(shorter)
    return None


def _is_file(path: str, folder: Path) -> bool:
    if not path or Path(path).is_absolute() or ".." in Path(path).parts:
        return False
    try:
        return (folder / path).exists()
    except (OSError, ValueError):
        return False


def _add_text(blocks: list[Json], text: str) -> None:
    if text:
        blocks.append({"type": "text", "text": text})
