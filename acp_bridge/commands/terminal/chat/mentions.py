"""Files that a prompt mentions as `@path`: they become links, so that the agent knows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from acp_bridge.protocol import Json

#: `@path`, or `@"path with spaces"`, at the beginning of a word.
MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')
#: what ends a sentence and no path.
_ENDS: Final = ".,;:!?)]}>'"


def blocks_of(text: str, folder: Path) -> list[Json]:
    """Return the content blocks of a prompt; what names no file below `folder` stays text."""
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


def written(path: str) -> str:
    """Return how a path is mentioned."""
    return f'@"{path}"' if any(character.isspace() for character in path) else f"@{path}"


def _existing(found: re.Match[str], folder: Path) -> tuple[str, int] | None:
    """Return the path that is mentioned and where the mention ends, if there is such a file."""
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
