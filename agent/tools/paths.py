"""Resolves the paths that the model gives.

Invariants
- Links are followed before anything is decided, and once more before it is done. From then on none
  is followed (see agent.tools.walk), so that an action which was prepared and allowed touches that
  file or none. A client that reads or writes for the tools follows links itself, and a search
  those that are made inside of its folder while it runs.
- A name that is in the session's folder as it is given is that file, but for `~` alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from anyio import to_thread

from agent.tools import Action, Grant, Show, ToolContext, ToolError, ToolResult
from agent.tools.cards import sentence
from agent.tools.trusted_files import is_git_s, is_keys_file, is_trusted

#: what a card says below the diff of a file with several names
_NAMES = (
    "This file has {} names on this disk (hard links). The change is seen under all of them, and "
    "some may be outside of the project."
)

_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/|$)")
_ADDRESS = re.compile(r"file:(?://([^/]*))?(.*)", re.IGNORECASE | re.DOTALL)
_OTHER_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*:)//", re.IGNORECASE)
_HERE = ("", "localhost", "127.0.0.1", "[::1]")
#: what begins the part of a glob that no file is named by
_MAGIC = re.compile(r"[*?\[{\\]")


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
    #: how many names the file has on the disk (hard links); 0 if it is no file
    names: int = field(default=0, compare=False)

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


async def still(place: Place, context: ToolContext) -> Place:
    """Resolves the path again. Raises ToolError if it leads to another file than before."""
    now = await locate(place.given, context)
    if now.real != place.real:
        raise ToolError(f"{place.given} leads elsewhere now than when it was looked at. Try again.")
    return now


def look(
    place: Place, context: ToolContext, grant: Grant, run: Callable[[], Awaitable[ToolResult]]
) -> Action:
    """Returns an action that calls `run`, a read, if the path still resolves to the same file."""

    async def run_there(show: Show) -> ToolResult:
        await still(place, context)
        return await run()

    return Action(run_there, grant, place.outside, shows_keys=place.holds_keys)


def edit_action(
    run: Callable[[Show], Awaitable[ToolResult]],
    place: Place,
    context: ToolContext,
    shown: tuple[dict[str, Any], ...],
) -> Action:
    """Returns an action that changes a file. `shown`: the diff for the card."""
    if place.names > 1:
        shown = (*shown, *sentence(_NAMES.format(place.names)))
    grant = edit_grant(place, context)
    return Action(run, grant, place.asked_for, shown, only_person=place.names > 1)


async def search_action(
    path: str,
    glob: str | None,
    context: ToolContext,
    run: Callable[[Place, str | None], Awaitable[ToolResult]],
) -> Action:
    """Returns an action that searches below a path, or where a glob leads; `run` does it.

    `run` is given the glob from there. Raises ToolError.
    """
    if glob:
        path, glob = await to_thread.run_sync(base_of, glob, path, context.cwd)
    place = await locate(path, context)
    return look(place, context, search_grant(place, context), partial(run, place, glob))


def search_locations(path: str, glob: str | None, cwd: Path) -> list[dict[str, Any]]:
    """Returns the locations for a search's card: none for the session's folder."""
    with contextlib.suppress(ToolError):
        path = base_of(glob, path, cwd)[0] if glob else path
    return [] if path == "." else [{"path": absolute(path, cwd)}]


async def search_from(place: Place, context: ToolContext) -> tuple[Path, str, str]:
    """Returns a folder to search from, a file in it or "", and a prefix for the names found.

    With the prefix the model can use the names as paths. Raises ToolError.
    """
    return await to_thread.run_sync(_search_from, place, context.cwd)


def absolute(path: str, cwd: Path) -> str:
    """Returns the absolute path for a card's location; links are not followed."""
    with contextlib.suppress(ToolError):
        path = meant(path, cwd)
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
    given = meant(path, context.cwd)
    try:
        real = Path(os.path.realpath(context.cwd / given))
    except (OSError, ValueError) as error:  # a null byte or a lone surrogate in the path
        raise ToolError("That is not a path.") from error
    names = _names(real)
    for root in (context.cwd, *context.extra_roots):
        with contextlib.suppress(ValueError):
            below = real.relative_to(os.path.realpath(root))
            trusted = is_git_s(real.parts) or is_trusted(below.parts) or _is_record(real, context)
            # The path as given counts too: a folder with a trusted name may be a link.
            named = Path(os.path.normpath(context.cwd / given))
            if not trusted and named.is_relative_to(root):
                trusted = is_trusted(named.relative_to(root).parts)
            return Place(path, real, str(root / below), False, trusted, names)
    return Place(path, real, str(real), True, names=names)


def _names(real: Path) -> int:
    try:
        found = os.stat(real, follow_symlinks=False)
    except OSError:
        return 0
    return found.st_nlink if stat.S_ISREG(found.st_mode) else 0


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


def meant(path: str, cwd: Path) -> str:
    """Returns the path that is meant, absolute or relative to `cwd`. It may look at the disk.

    Raises ToolError for an address of no file, or on another machine.
    """
    address = _OTHER_ADDRESS.match(path)
    if address and address[1].lower() != "file:" and not _is_there(cwd / address[1]):
        raise ToolError(f"{path} is an address and no path.")
    if found := _ADDRESS.fullmatch(path):
        path = _of_address(path, found[1], found[2], cwd)
    if _HOME.match(path):
        return _HOME.sub(lambda _: os.path.expanduser("~"), path, count=1)
    if path.startswith("~") and not _is_there(cwd / path.partition("/")[0]):
        return os.path.expanduser(path)
    return path


def base_of(glob: str, path: str, cwd: Path) -> tuple[str, str]:
    """Returns the folder to look in and the glob from there; `path`: the folder that was named.

    An absolute glob, one in the home folder and one that begins with `..` lead to a folder of their
    own. A glob that begins with a slash is else one from the named folder. It looks at the disk.
    Raises ToolError.
    """
    negated, wanted = ("!", glob[1:]) if glob.startswith("!") else ("", glob)
    wanted = meant(wanted, cwd)
    if not wanted.startswith(("/", "../")):
        return path, glob
    folder = os.path.normpath(cwd / meant(path, cwd))
    fixed = _fixed(wanted)
    rest = wanted[len(fixed) :].lstrip("/")
    if wanted.startswith("../"):
        base = os.path.normpath(os.path.join(folder, fixed))
    elif _is_at(fixed, folder) or not _is_there(Path(folder + fixed)):
        base = os.path.normpath(fixed)
    else:
        return path, glob
    if base == "/" or not os.path.isdir(base):
        return path, glob
    if negated:
        if not _is_at(base, folder):
            return path, glob
        below = os.path.relpath(os.path.realpath(base), os.path.realpath(folder))
        return path, f"!/{rest}" if below == "." else f"!/{below}/{rest}"
    return base, f"/{rest}" if rest else "**"


def _fixed(glob: str) -> str:
    """Returns the folders at the beginning of a glob that are plain names."""
    magic = _MAGIC.search(glob)
    plain = glob[: magic.start()] if magic else glob
    return plain.rpartition("/")[0] + "/"


def _is_at(path: str, folder: str) -> bool:
    real = Path(os.path.realpath(path))
    return real.is_relative_to(os.path.realpath(folder))


def _of_address(given: str, host: str | None, rest: str, cwd: Path) -> str:
    """Returns the path of a `file:` address."""
    if host and _HOME.fullmatch(host):
        rest = f"{host}{rest}"
    elif host and host.lower() not in (*_HERE, socket.gethostname().lower()):
        raise ToolError(f"{given} names a file on another machine, {host}.")
    elif not rest.startswith("/") and (host is not None or not rest or _is_there(cwd / given)):
        return given
    path = _decoded(rest)
    if _is_there(cwd / path):
        return path
    return _decoded(re.split(r"[?#]", rest, maxsplit=1)[0])


def _decoded(text: str) -> str:
    return os.fsdecode(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))


def _is_there(path: Path) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a null byte
        return False
