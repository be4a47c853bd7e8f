"""Finds a recorded session by the beginning of its id, or as the last one used in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.cli.harmless import one_line

if TYPE_CHECKING:
    from acp_bridge.core.journal import Owns, SessionInfo


#: says where to look if the file of a session can't be used.
def where() -> str:
    """Return the words that tell the user how to find a session's file."""
    return f"`{OWN_COMMANDS.line('doctor')}` says where its file is, or should be"


#: characters of an id that are shown, or more if two ids begin alike.
_SHORTEST: Final = 8
#: how many sessions are listed if the beginning of an id fits several.
_LISTED: Final = 10


class NotFound(Exception):
    """No session fits, or several do; the text is for the user."""


def session(home: Path, given: str) -> SessionInfo:
    """Return the session whose id is, or begins with, `given`. Raises NotFound."""
    listed = listing(home)
    by_id = {info.session_id: info for info in listed}
    titles = {info.session_id: info.title or "" for info in listed}
    return by_id[full_id(given, titles)]


def kept(home: Path, session_id: str) -> SessionInfo | None:
    """Return the session of this id; None if nothing was said in it, so that nothing is kept.

    Raises NotFound if the sessions can't be read.
    """
    return next((info for info in listing(home) if info.session_id == session_id), None)


def last_used(home: Path, folder: Path, agent: Owns | None = None) -> SessionInfo:
    """Return the session used last in a folder; `agent`: only sessions of this agent.

    Raises NotFound.
    """
    here = os.path.realpath(folder)
    for info in listing(home):
        if agent is not None and not agent.owns(info.agent, info.agent_info):
            continue
        if info.cwd and real(info.cwd) == here:
            return info
    raise NotFound("no session was used in this folder")


def here() -> Path:
    """Return the working folder's real path. Raises FileNotFoundError if it was removed."""
    return Path(real_path("."))


def real_path(given: str) -> str:
    """Return the real path of a folder that the user named; `~` is expanded.

    Raises FileNotFoundError for a relative path if the working folder was removed.
    """
    return os.path.realpath(os.path.expanduser(given))


def with_tilde(folder: str) -> str:
    """Return a folder with `~` for the user's home."""
    home = os.path.expanduser("~")
    return "~" + folder[len(home) :] if f"{folder}/".startswith(f"{home}/") else folder


def listing(home: Path) -> list[SessionInfo]:
    """Return all recorded sessions, newest first. Raises NotFound if they can't be read."""
    from acp_bridge.core.journal import JournalError  # imported here, since `ps` needs no journal
    from acp_bridge.core.journal.reading import all_sessions

    try:
        return all_sessions(home)
    except JournalError as error:
        raise NotFound(str(error)) from error


def full_id(given: str, titles: dict[str, str]) -> str:
    """Return the only id in `titles` that begins with `given`, or is `given`. Raises NotFound.

    `titles`: the title of each session by its id, for the message if several fit.
    """
    if given in titles:
        return given
    found = [each for each in titles if given and each.startswith(given)]
    if len(found) == 1:
        return found[0]
    name = one_line(given)
    if not found:
        raise NotFound(f"no session has an id that begins with '{name}'")
    lines = [f"{one_line(each)}  {one_line(titles[each])[:60]}" for each in found[:_LISTED]]
    more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    raise NotFound("\n  ".join([f"'{name}' may mean several sessions:", *lines, *more]))


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return for each id its shortest beginning that no other shares, 8 characters at least."""
    short: dict[str, str] = {}
    ordered = sorted(set(ids))
    for at, each in enumerate(ordered):
        neighbours = [*ordered[max(at - 1, 0) : at], *ordered[at + 1 : at + 2]]
        shared = max((_shared(each, other) for other in neighbours), default=0)
        short[each] = each[: max(_SHORTEST, shared + 1)]
    return short


def _shared(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@lru_cache(maxsize=4096)
def real(folder: str) -> str:
    """Return the real path of a folder, from a cache."""
    return os.path.realpath(folder)
