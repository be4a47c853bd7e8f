"""Resolves the paths that the model gives.

Invariants
- Links are followed before anything is decided, and once more before it is done. From then on none
  is followed (see agent.tools.walk), so that an action which was prepared and allowed touches that
  file or none. A client that reads or writes for the tools follows links itself, and a search
  those that are made inside of its folder while it runs.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from agent.tools import Action, Grant, Show, ToolContext, ToolError, ToolResult
from agent.tools.trusted_files import is_git_s, is_keys_file, is_trusted


@dataclass(frozen=True, slots=True)
class Place:
    """A path that the model gave, resolved."""

    given: str
    real: Path
    #: the path as the client knows it: below the session's folder by the client's name for that
    shown: str
    outside: bool
    #: True if other programs act on the file's content (see agent.tools.trusted_files)
    trusted: bool = False

    @property
    def holds_keys(self) -> bool:
        return is_keys_file(self.real.name)

    @property
    def asked_for(self) -> bool:
        """True if the user is asked before a change in every mode.

        That holds outside of the session's folders, and for files that other programs act on
        unasked.
        """
        return self.outside or self.trusted


async def locate(path: str, context: ToolContext) -> Place:
    """Resolves a path, in a thread. Raises ToolError."""
    return await to_thread.run_sync(follow, path, context)


async def still(place: Place, context: ToolContext) -> None:
    """Raises ToolError if the path resolves to another file than before."""
    if (await locate(place.given, context)).real != place.real:
        raise ToolError(f"{place.given} leads elsewhere now than when it was looked at. Try again.")


def look(
    place: Place, context: ToolContext, grant: Grant, run: Callable[[], Awaitable[ToolResult]]
) -> Action:
    """Returns an action that calls `run`, a read, if the path still resolves to the same file."""

    async def run_there(show: Show) -> ToolResult:
        await still(place, context)
        return await run()

    return Action(run_there, grant, place.outside, shows_keys=place.holds_keys)


async def search_action(
    path: str, context: ToolContext, run: Callable[[Place], Awaitable[ToolResult]]
) -> Action:
    """Returns an action that searches below a path; `run` does it. Raises ToolError."""
    place = await locate(path, context)
    return look(place, context, search_grant(place, context), partial(run, place))


def search_locations(path: str, cwd: Path) -> list[dict[str, Any]]:
    """Returns the locations for a search's card: none for the session's folder."""
    return [] if path == "." else [{"path": absolute(path, cwd)}]


async def search_from(place: Place, context: ToolContext) -> tuple[Path, str, str]:
    """Returns a folder to search from, a file in it or "", and a prefix for the names found.

    With the prefix the model can use the names as paths. Raises ToolError.
    """
    return await to_thread.run_sync(_search_from, place, context.cwd)


def absolute(path: str, cwd: Path) -> str:
    """Returns the absolute path for a card's location; links are not followed."""
    return os.path.normpath(cwd / path)


def edit_grant(place: Place, context: ToolContext) -> Grant:
    if place.trusted:
        return Grant(("edit", str(place.real)), f"edits of {_name(place.real, context.cwd)}")
    folder = place.real.parent
    return Grant(("edit", str(folder)), f"edits in {_name(folder, context.cwd)}")


def read_grant(place: Place, context: ToolContext) -> Grant:
    if place.holds_keys:
        return Grant(("read", str(place.real)), f"reading {_name(place.real, context.cwd)}")
    folder = place.real.parent
    return Grant(("read", str(folder)), f"reading files in {_name(folder, context.cwd)}")


def search_grant(place: Place, context: ToolContext) -> Grant:
    """Returns the grant of a search.

    It covers a whole tree, so its key never equals a `read_grant`.
    """
    return Grant(("search", str(place.real)), f"searches below {_name(place.real, context.cwd)}")


# in a thread


def follow(path: str, context: ToolContext) -> Place:
    """Resolves a path in the calling thread, which may wait for the disk. Raises ToolError."""
    try:
        real = Path(os.path.realpath(context.cwd / path))
    except (OSError, ValueError) as error:  # a null byte or a lone surrogate in the path
        raise ToolError("That is not a path.") from error
    for root in (context.cwd, *context.extra_roots):
        with contextlib.suppress(ValueError):
            below = real.relative_to(os.path.realpath(root))
            trusted = is_git_s(real.parts) or is_trusted(below.parts) or _is_record(real, context)
            # The path as given counts too: a folder with a trusted name may be a link.
            given = Path(absolute(path, context.cwd))
            if not trusted and given.is_relative_to(root):
                trusted = is_trusted(given.relative_to(root).parts)
            return Place(path, real, str(root / below), False, trusted)
    return Place(path, real, str(real), True)


def _is_record(real: Path, context: ToolContext) -> bool:
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in context.records)


def _search_from(place: Place, cwd: Path) -> tuple[Path, str, str]:
    try:
        mode = os.stat(place.real).st_mode
    except OSError as error:
        raise ToolError(f"Could not search {place.given}: {error.strerror}.") from error
    if stat.S_ISDIR(mode):
        folder, target, shown = place.real, "", Path(place.shown)
    elif stat.S_ISREG(mode):
        folder, target, shown = place.real.parent, place.real.name, Path(place.shown).parent
    else:
        raise ToolError(f"{place.given} is neither a folder nor a regular file.")
    if shown == cwd:
        return folder, target, ""
    prefix = shown.relative_to(cwd) if shown.is_relative_to(cwd) else shown
    return folder, target, f"{prefix}/"


def _name(folder: Path, cwd: Path) -> str:
    """Returns a folder's name for the user: relative to `cwd` if it is below that."""
    root = os.path.realpath(cwd)
    if str(folder) == root:
        return folder.name or root
    return str(folder.relative_to(root) if folder.is_relative_to(root) else folder)
