"""Compares paths with the patterns of rules, links and `..` resolved.

- A pattern that begins with neither `/`, `~` nor `**/` is below the session's folder.
- `*` and `?` stand within a name, `**` for any number of folders; `X/**` includes X.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

from acp_bridge.policy.definitions import Place


def resolved(path: str, place: Place) -> str:
    """Return a path as the system would find it: absolute, without links and `..`.

    What does not exist yet stays as it is named.
    """
    return os.path.realpath(_absolute(path, place))


def readings(path: str, place: Place) -> tuple[str, ...]:
    """Return the path as it is named and as the system would find it, for a refusal."""
    return tuple(dict.fromkeys((os.path.normpath(_absolute(path, place)), resolved(path, place))))


def matches(pattern: str, path: str, place: Place) -> bool:
    """Return True if an absolute path is one that the pattern of a rule names."""
    if pattern.startswith("~"):
        pattern = _home(pattern, place)
    if not pattern.startswith(("/", "**/")) and pattern != "**":
        pattern = os.path.normpath(pattern) if "**" not in pattern else pattern
        folders = {place.cwd, os.path.realpath(place.cwd)}
        return any(_expression(pattern, folder).fullmatch(path) for folder in folders)
    return bool(_expression(pattern, "").fullmatch(path))


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    """Return True if an absolute path is one of these, or below one."""
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in folders)


def _absolute(path: str, place: Place) -> str:
    return os.path.join(place.cwd, _home(path, place))


def _home(path: str, place: Place) -> str:
    if path == "~" or path.startswith("~/"):
        return place.home + path[1:]
    return path


@lru_cache(maxsize=1024)
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
