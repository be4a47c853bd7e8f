"""Compares paths with the patterns of rules, links and `..` resolved.

- A pattern that begins with neither `/`, `~` nor `**/` is below the session's folder.
- `*` and `?` stand within a name, `**` for any number of folders; `X/**` includes X.
- However many stars a pattern has, a path is compared with it in one pass.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, takewhile
from typing import Final

from acp_bridge.core.records import replace
from acp_bridge.features.rules.definitions import Place

#: the most characters of a path that a system takes.
LONGEST: Final = 4096
#: for how many paths it is remembered what they match.
_REMEMBERED: Final = 256
#: how many links one path may lead through; systems have the same limit.
_LINKS: Final = 40
#: how many names in folders are looked at to know which files a word with a `*` stands for.
_MOST_NAMES: Final = 2000
#: the most characters of a name.
_LONGEST_NAME: Final = 255
#: what stands for one character of a name, or for some.
_SIGNS: Final = re.compile(r"\[[^]]*\]|.", re.DOTALL)
#: a bracket that each shell reads alike, and one of which each sees at least the same end.
_PLAIN: Final = re.compile(r"\[(!?)((?:0-\d|\d-9|[\w.])+)\]", re.ASCII)
_CLOSED: Final = re.compile(r"\[[!^]?[^][\\]+\]")
#: what no shell puts `.` or `..` in place of; a bracket that names a dot may stand for it.
_NOT_UP: Final = re.compile(r"[^.[]|\[(?:![^]]*|\^?(?:\w-\w|\w)+)\]", re.ASCII)
_PROCESS: Final = re.compile(r"/proc/(?:self|thread-self|\d+)(?:/task/\d+)?")
#: what `os.path.normpath` takes out of an absolute path.
_ODD: Final = re.compile(r"/(?:/|\.|$)")
#: links of a process that lead each process, or each namespace, elsewhere.
_OF_PROCESS: Final = frozenset({"cwd", "root", "fd", "exe", "map_files"})
_DEPENDS: Final = re.compile(rf"{_PROCESS.pattern}/(?:{'|'.join(sorted(_OF_PROCESS))})(?:/|$)")


# --- where a path leads --------------------------------------------------------------------------


def resolved(path: str, place: Place) -> str:
    """Return a path as the system would find it: absolute, without links and `..`.

    What does not exist yet stays as it is named, and so does a path that
    `depends_on_process`. Empty for what no system can name.
    """
    if len(path) > LONGEST or "\0" in path:
        return ""
    return _resolved(_absolute(path, place), place)


def _resolved(path: str, place: Place) -> str:
    """Return an absolute path as `resolved` does."""
    done, below = "", path
    if place.real and path.startswith(f"{place.cwd.rstrip('/')}/"):
        done, below = place.real.rstrip("/"), path[len(place.cwd) :]
    try:
        return _followed(done, below)
    except ValueError:  # half a character
        return ""


def _followed(done: str, below: str) -> str:
    """Return the path `below` the folder `done`, which has no links, without links and `..`.

    Empty if it leads through too many links.
    """
    names, links, exists = below.split("/")[::-1], 0, True
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            done, exists = done.rpartition("/")[0], True
            continue
        at = f"{done}/{name}"
        if done == "/proc" and name in ("self", "thread-self"):
            done = at
            continue
        if name in _OF_PROCESS and _PROCESS.fullmatch(done):
            return "/".join([at, *reversed(names)])
        try:
            target = os.readlink(at) if exists else ""
        except OSError as error:  # it is no link, or not there, nor is anything below it
            target, exists = "", not isinstance(error, FileNotFoundError)
        if not target:
            done = at
            continue
        links += 1
        if links > _LINKS:
            return ""
        done = "" if target.startswith("/") else done
        names.extend(reversed(target.split("/")))
    return done or "/"


def is_bare_repository(folder: str) -> bool:
    """Return True if git takes a folder, or one above it, for a repository without a `.git`.

    Its settings are a file as others, and name programs that git runs.
    """
    while not os.path.lexists(f"{folder}/.git"):
        if os.path.lexists(f"{folder}/HEAD"):
            return True
        if folder in ("", "/"):
            return False
        folder = folder.rpartition("/")[0]
    return False


def is_in_a_repository(path: str) -> bool:
    """Return True if an absolute path, or a folder above it, has what a `.git` has.

    Also for a file `HEAD`, with which a folder becomes one, where there is no `.git`.
    """
    while path not in ("", "/"):
        folder, _, name = path.rpartition("/")
        if name.casefold() == "head" and not os.path.lexists(f"{folder}/.git"):
            return True
        if all(os.path.lexists(f"{path}/{name}") for name in ("HEAD", "objects", "refs")):
            return True
        path = folder
    return False


def depends_on_process(path: str) -> bool:
    """Return True for a resolved path that leads each process elsewhere: `/proc/self/cwd/x`."""
    return path.startswith("/proc/") and _DEPENDS.match(path) is not None


def readings(path: str, place: Place) -> tuple[str, ...]:
    """Return the path as named and, if it differs, as the system would find it, for a refusal."""
    absolute = _absolute(path[:LONGEST], place)
    named = os.path.normpath(absolute) if _ODD.search(absolute) else absolute
    known = len(path) <= LONGEST and "\0" not in path
    found = (_resolved(absolute, place) if known else "") or named
    return (named,) if found == named else (named, found)


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    """Return True if an absolute path is one of these, or below one, in upper or lower case, which
    are the same to some disks.
    """
    return f"{path}/".casefold().startswith(_begins(folders))


@lru_cache(maxsize=_REMEMBERED)
def is_above(path: str, folders: tuple[str, ...]) -> bool:
    """Return True if an absolute path is one of these, or a folder above one, in any case."""
    begin = f"{path.rstrip('/')}/".casefold()
    return any(each.startswith(begin) for each in _begins(folders))


@lru_cache(maxsize=64)
def _begins(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return each folder in small letters, with a slash at its end."""
    return tuple(f"{each.rstrip('/')}/".casefold() for each in folders)


def _absolute(path: str, place: Place) -> str:
    path = at_home(path, place.home)
    return path if path.startswith("/") else f"{place.cwd.rstrip('/')}/{path}"


def at_home(path: str, home: str) -> str:
    """Return a path with the user's home in place of a `~` at its beginning."""
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return path


# --- words of a shell that stand for files -------------------------------------------------------


@lru_cache(maxsize=1024)
def names_of(pattern: str) -> re.Pattern[str]:
    """Return the expression of all names that some shell may put in place of a pattern.

    Shells differ about `[^a]` and `[a-z]`: any character may be meant. They also differ about
    where others end. A piece matches where it can first, so that many stars take no longer.
    """
    pieces = [""]
    for sign in _SIGNS.findall(pattern):
        if sign == "*":
            pieces.append("")
        elif found := _PLAIN.fullmatch(sign):
            pieces[-1] += f"[{'^' * len(found[1])}{found[2]}]"
        elif sign == "?" or _CLOSED.fullmatch(sign):
            pieces[-1] += "."
        elif sign != "[" and sign.startswith("["):
            pieces.append("")
            break
        else:
            pieces[-1] += re.escape(sign)
    first, *rest = pieces
    middle = "".join(f"(?>.*?{each})" for each in rest[:-1])
    return re.compile(first + middle + "".join(f".*{each}" for each in rest[-1:]), re.DOTALL)


def leads_up(pattern: str) -> bool:
    """Return True if some shell may put `.` or `..` in place of a pattern of names."""
    may_be = not _NOT_UP.match(pattern)
    return may_be and any(map(names_of(pattern).fullmatch, (".", "..")))


def expanded(word: str, place: Place) -> list[str] | None:
    """Return the files that a shell may put in place of a word with `*`, `?` or `[`.

    Some shells put `..` in place of `.*`. None if too many names would have to be looked at, as for
    a `**`: the disk is never walked.
    """
    found, seen = [""], 0
    for name in _absolute(word, place).split("/")[1:]:
        if "**" in name:
            return None
        if not re.search(r"[*?\[]", name):
            found = [f"{each}/{name}" for each in found]
            continue
        folders, found = found, []
        above = (".", "..") if leads_up(name) else ()
        for folder in folders:
            try:
                with os.scandir(folder or "/") as entries:
                    for each in chain(above, (entry.name for entry in entries)):
                        seen += 1
                        if seen > _MOST_NAMES:
                            return None
                        if names_of(name).fullmatch(each):
                            found.append(f"{folder}/{each}")
            except (OSError, ValueError):
                continue
    return found


def is_shown(path: str, word: str, place: Place) -> bool:
    """Return True for one of the files of `expanded` that shells put there by themselves.

    Where a name begins with a sign, they put hidden ones there only if they are told to.
    """
    names = zip(_absolute(word, place).split("/"), path.split("/"), strict=False)
    return not any(name[:1] in ("*", "?", "[") and made.startswith(".") for name, made in names)


def may_be_below(word: str, path: str, place: Place) -> bool:
    """Return True if a shell may replace a word with `*`, `?` or `[` by a path, or one below it."""
    names = _absolute(word, place).split("/")
    wanted = path.split("/")
    if any("**" in name for name in names[: len(wanted)]):
        return True
    pairs = zip(wanted, names, strict=False)
    return len(names) >= len(wanted) and all(names_of(name).fullmatch(want) for want, name in pairs)


def may_be_named(pattern: str, name: str) -> bool:
    """Return True if a program's pattern of names may mean a name, or one of a rule's pattern.

    A pattern that begins with a star, such as `*.py`, means no hidden names in particular: of
    `.env*`, it may mean `.env` alone.
    """
    if pattern.startswith("*") and name.startswith("."):
        name = name.replace("*", "")
    mine, other = (_SIGNS.findall(each[-_LONGEST_NAME:].casefold()) for each in (pattern, name))
    seen, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        at, to = waiting.pop()
        one, two = "".join(mine[at : at + 1]), "".join(other[to : to + 1])
        if not one and not two:
            return True
        steps = {(at + 1, to)} if one == "*" else set()
        steps |= {(at, to + 1)} if two == "*" or (one == "*" and two) else set()
        if one and two and (one == two or not {one[0], two[0]}.isdisjoint("*?[")):
            steps.add((at + 1, to + 1))
        waiting.extend(steps - seen)
        seen |= steps
    return False


# --- patterns ------------------------------------------------------------------------------------


class Patterns:
    """Finds, among the patterns of some rules, the one that names a path."""

    def __init__(self, patterns: Sequence[str], place: Place, *, exact: bool) -> None:
        """`place.real` is the session's folder without links.

        `exact`: upper and lower case make a difference. To some disks they don't.
        """
        self._exact = exact
        if not exact:  # an expression that takes no notice of case is slower
            cwd, home, real = place.cwd.casefold(), place.home.casefold(), place.real.casefold()
            place = replace(place, cwd=cwd, home=home, real=real)
            patterns = [each.casefold() for each in patterns]
        expressions = [_expression(each, place) for each in patterns]
        self._each = [re.compile(each, re.DOTALL) for each in expressions]
        self._any = re.compile("|".join(expressions) or r"(?!)", re.DOTALL)
        # An agent asks about the same files again and again.
        self.first = lru_cache(_REMEMBERED)(self._first)

    def _first(self, path: str) -> int | None:
        """Return the index of the first pattern that names an absolute path; None if none does."""
        path = path if self._exact else path.casefold()
        if self._any.fullmatch(path) is None:
            return None
        found = (at for at, each in enumerate(self._each) if each.fullmatch(path))
        return next(found, None)


def matches(pattern: str, path: str, place: Place) -> bool:
    """Return True if an absolute path is one that the pattern of a rule names."""
    return re.fullmatch(_expression(pattern, place), path, re.DOTALL) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str, place: Place) -> str:
    """Return the regular expression of a pattern."""
    pattern = at_home(pattern, place.home)
    return "|".join(_of_names(_names(pattern, each)) for each in _folders(pattern, place))


@lru_cache(maxsize=1024)
def fixed(pattern: str, place: Place) -> tuple[str, ...]:
    """Return the paths with which a pattern begins, up to the first name that has a star or a `?`.

    Empty if its first name has one.
    """
    pattern = at_home(pattern, place.home)
    names = list(takewhile(lambda name: not re.search(r"[*?]", name), pattern.split("/")))
    if not any(names):
        return ()
    begin = "/".join(names).lstrip("/")
    folders = _folders(pattern, place)
    return tuple(posixpath.normpath(f"{folder}/{begin}") for folder in folders)


def _folders(pattern: str, place: Place) -> tuple[str, ...]:
    """Return the folders that a pattern is below: the session's, with and without links, or all."""
    if pattern.startswith(("/", "**/")) or pattern == "**":
        return ("",)
    return tuple(dict.fromkeys((place.cwd, place.real or os.path.realpath(place.cwd))))


def _names(pattern: str, folder: str) -> list[str]:
    """Return a regular expression for each name on the path that `pattern` means in `folder`.

    A `**` is returned as it is; `.` and `..` are resolved.
    """
    found = [re.escape(name) for name in folder.split("/") if name]
    for name in pattern.split("/"):
        if name == "..":
            del found[-1:]
        elif name not in ("", "."):
            found.append(name if name == "**" else _of_name(name))
    return found


def _of_names(names: Iterable[str]) -> str:
    """Return the regular expression of a path from those of its names, or `**`.

    What stands behind a `**` matches as early as it can.
    """
    parts = "/".join(["", *names]).split("/**")
    first, *rest = parts
    if not rest:
        return first or "/"
    middle = "".join(rf"(?>(?:/[^/]+)*?{each}(?=/|\Z))" for each in rest[:-1] if each)
    last = rf"(?:/[^/]+)*?{rest[-1]}" if rest[-1] else "(?:/.*)?"
    return first + middle + last


def _of_name(name: str) -> str:
    """Return the regular expression of a name with stars; each piece matches as early as it can."""
    first, *rest = (re.escape(each).replace(r"\?", "[^/]") for each in re.split(r"\*+", name))
    middle = "".join(f"(?>[^/]*?{each})" for each in rest[:-1])
    return first + middle + "".join(f"[^/]*{each}" for each in rest[-1:])
