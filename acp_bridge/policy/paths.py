"""Compares paths with the patterns of rules, links and `..` resolved.

- A pattern that begins with neither `/`, `~` nor `**/` is below the session's folder.
- `*` and `?` stand within a name, `**` for any number of folders; `X/**` includes X.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final

from acp_bridge.policy.definitions import Place

#: characters of a path that any system takes.
LONGEST: Final = 4096


def resolved(path: str, place: Place) -> str:
    """Return a path as the system would find it: absolute, without links and `..`.

    What does not exist yet stays as it is named. Empty for what no system can name.
    """
    if len(path) > LONGEST:
        return ""
    try:
        return os.path.realpath(_absolute(path, place))
    except ValueError:  # a NUL, or half a character
        return ""


def readings(path: str, place: Place) -> tuple[str, ...]:
    """Return the path as it is named and as the system would find it, for a refusal."""
    named = os.path.normpath(_absolute(path[:LONGEST], place))
    return tuple(dict.fromkeys((named, resolved(path, place) or named)))


def matches(pattern: str, path: str, place: Place) -> bool:
    """Return True if an absolute path is one that the pattern of a rule names."""
    real = place.real or os.path.realpath(place.cwd)
    named = _expressions(pattern, place.cwd, real, place.home)
    return any(each.fullmatch(path) for each in named)


@lru_cache(maxsize=4096)
def _expressions(pattern: str, cwd: str, real: str, home: str) -> tuple[re.Pattern[str], ...]:
    """Return the expressions of a pattern, one for each name of the session's folder."""
    if pattern.startswith("~"):
        pattern = _home(pattern, home)
    if pattern.startswith(("/", "**/")) or pattern == "**":
        return (_expression(pattern, ""),)
    pattern = os.path.normpath(pattern) if "**" not in pattern else pattern
    return tuple(_expression(pattern, folder) for folder in {cwd, real})


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    """Return True if an absolute path is one of these, or below one."""
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in folders)


def _absolute(path: str, place: Place) -> str:
    return os.path.join(place.cwd, _home(path, place.home))


def _home(path: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return path


def _expression(pattern: str, folder: str) -> re.Pattern[str]:
    """Return the expression of a pattern; `folder` is what it is below, if anything."""
    begin = re.escape(folder.rstrip("/")) + "/" if folder else ""
    pattern = pattern.removeprefix("./")
    if pattern in ("", "."):
        return re.compile(re.escape(folder))
    pieces = re.split(r"(/\*\*$|\*\*/|\*\*|\*|\?)", pattern)
    return re.compile(begin + "".join(map(_piece, pieces)), re.DOTALL)


def _piece(piece: str) -> str:
    match piece:
        case "/**":
            return "(?:/.*)?"
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _:
            return re.escape(piece)
