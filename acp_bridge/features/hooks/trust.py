"""Keeps which projects' hooks and rules the user trusts, as long as their files stay the same.

- What is trusted of hooks is a hash over `hooks.toml` and every file of the project that its
  commands name. A file that is changed, added, removed or made a link elsewhere is another hash.
- What is trusted of rules is a hash over `permissions.toml`. Their records have a folder of their
  own: who trusts the one does not trust the other.
- A record is a file of its own in the data folder, so that two that are made at once don't meet.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from glob import has_magic, iglob
from itertools import islice
from pathlib import Path
from typing import Final

from acp_bridge.features.hooks.definitions import Hook
from acp_bridge.features.hooks.made_names import made_name
from acp_bridge.features.hooks.places import PROJECT_FILE, RECORDS

#: how many bytes of one file, and how many files of one project, can be trusted at most.
LARGEST: Final = 16 * 1024 * 1024
MOST: Final = 500

#: the characters that may divide the names of files in a command.
_BETWEEN: Final = re.compile(r"""[\s"'`;&|<>(){}=,:]+""")
Mark = tuple[int, int, int, int]

_VARIABLE: Final = re.compile(r"\$\{?\w+\}?/?")
#: a bracket of a pattern of which shells and Python may not say the same.
_BRACKET: Final = re.compile(r"\[(?![A-Za-z0-9_.]+\])[!^]?\]?(?:\[[:.=]\w+[:.=]\]|[^]])*\]")
#: what options that are letters may begin with, up to where a value begins.
_LETTERS: Final = re.compile(r"-[A-Za-z]{1,8}")
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


#: variables that every hook has.
_OF_HOOKS: Final = ("CLAUDE_PROJECT_DIR", "PWD", "HOME")


class NotTrustable(Exception):
    """A file, or the hooks of a project, can't be trusted; the text says why."""


@dataclass(frozen=True, slots=True)
class Record:
    """The trusted files of a folder: a hash for each, by its path below the folder."""

    folder: str
    files: dict[str, str]


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a regular file; raises OSError, and NotTrustable for any other.

    It never waits, as it would for somebody to write into a pipe.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotTrustable(f"{path.name} is no file")
        if status.st_size > largest:
            raise NotTrustable(f"{path.name} is too large")
        return file.read(largest + 1)


def read_text(path: Path, largest: int) -> tuple[bytes, str] | None:
    """Return the content of a file of the user's, as bytes and as text; None if it is not there.

    Raises NotTrustable for one that can't be read, and for one that is no text, with the line.
    """
    try:
        content = read_file(path, largest)
        return content, content.decode()
    except FileNotFoundError as error:
        if not os.path.lexists(path):
            return None
        raise NotTrustable("it is a link that leads nowhere") from error
    except OSError as error:
        raise NotTrustable(f"it can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotTrustable(f"line {line}: it is not UTF-8") from error


def mark(path: Path) -> Mark | None:
    """Return what is different once a file has changed; None if nothing is known of the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def check_own(path: Path) -> None:
    """Raise NotTrustable for a file that anybody may write; raises OSError."""
    if path.stat().st_mode & stat.S_IWOTH:
        raise NotTrustable("anybody may write this file; `chmod o-w` it")


def named_files(folder: Path, hooks: Iterable[Hook]) -> list[str]:
    """Return the files of the project that commands name, as paths below it, sorted.

    Raises NotTrustable if they are too many.
    """
    found: set[str] = set()
    for hook in hooks:
        found.update(islice(_named_by(folder, hook), MOST + 1))
        if len(found) > MOST:
            raise NotTrustable(f"its commands name more than {MOST} files")
    return sorted(found)


def hashes(folder: Path, config: bytes, hooks: Iterable[Hook]) -> dict[str, str]:
    """Return a hash for `hooks.toml` and each file that the hooks name; raises NotTrustable."""
    hooks = tuple(hooks)
    for hook in hooks:
        _refuse_made_names(folder, hook)
    found = {PROJECT_FILE: digest(config)}
    for name in named_files(folder, hooks):
        path = folder / name
        try:
            content = read_file(path)
            # Where a link leads counts too: another place may change without anybody's notice.
            target = os.path.realpath(path)
        except OSError as error:
            raise NotTrustable(f"{name} can't be read: {error.strerror}") from error
        executable = b"x" if os.access(path, os.X_OK) else b"-"
        found[name] = hashlib.sha256(
            b"\0".join([os.fsencode(target), executable, content])
        ).hexdigest()
    return found


def digest(content: bytes) -> str:
    """Return the hash of a file's content."""
    return hashlib.sha256(content).hexdigest()


def changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the names of files whose hash differs, or which came or went, sorted."""
    return sorted(name for name in before | now if before.get(name) != now.get(name))


# --- records -----------------------------------------------------------------------------------


def record_path(home: Path, folder: str, kept: str = RECORDS) -> Path:
    """Return the path of the record of `folder`, a real path; `kept` is the records' folder in the
    data folder `home`: that of hooks, or that of rules."""
    return home / kept / f"{digest(os.fsencode(folder))[:32]}.json"


def read_record(path: Path) -> Record | None:
    """Return the record in a file; None if there is no file, or no record in it; raises OSError."""
    try:
        found = json.loads(read_file(path))
        return Record(str(found["folder"]), {str(k): str(v) for k, v in found["files"].items()})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, NotTrustable):
        return None


def write_record(home: Path, record: Record, kept: str = RECORDS) -> None:
    """Write a record to its file in the folder `kept`, whole or not at all; raises OSError."""
    path = record_path(home, record.folder, kept)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump({"folder": record.folder, "files": record.files}, file, ensure_ascii=True)
            file.flush()
            os.fsync(fd)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def records(home: Path, kept: str = RECORDS) -> list[Record]:
    """Return all records in the folder `kept`, sorted by their folders; raises OSError."""
    try:
        paths = sorted((home / kept).glob("*.json"))
    except FileNotFoundError:
        return []
    found = [record for path in paths if (record := read_record(path))]
    return sorted(found, key=lambda record: record.folder)


def _refuse_made_names(folder: Path, hook: Hook) -> None:
    """Raise NotTrustable if a command names a file that only its shell knows, when it runs."""

    def is_folder(path: str) -> bool:
        return (folder / path).is_dir()

    if piece := made_name(hook.command, {*os.environ, *_OF_HOOKS}, is_folder):
        raise NotTrustable(
            f"a hook of {hook.event} runs or names {piece}, and which file that is only its shell"
            " knows, when it runs. Write the file's path there, or put the command into a script"
            " and name that"
        )


# --- what a command names ----------------------------------------------------------------------


def _named_by(folder: Path, hook: Hook) -> Iterator[str]:
    """Give the files below the folder that a command may run or read, told by its words.

    Words count wherever they stand: as an option's value, behind a variable, inside of quotes, and
    below folders that the command names (`cd tools && ./check`).
    """
    words = set(_words(hook))
    real = Path(os.path.realpath(folder))
    bases = {real}
    for name in (name for word in words for name in _paths(real, word)):
        place = Path(os.path.normpath(name))
        if place != real and place.is_dir() and place.is_relative_to(real):
            bases.add(place)
        if len(bases) > MOST:
            raise NotTrustable(f"its commands name more than {MOST} folders")
    for base in sorted(bases):
        for word in sorted(words):
            for name in _files(base, word):
                path = Path(os.path.normpath(name))
                if not path.is_relative_to(real):
                    path = Path(os.path.realpath(name))  # the folder itself may be behind a link
                if path.is_file() and path.is_relative_to(real):
                    yield str(path.relative_to(real))


def _paths(base: Path, word: str) -> Iterator[str]:
    """Give a path, and those that a shell may put in the place of a pattern."""
    place = os.path.join(base, word)
    yield place
    if has_magic(word):
        pattern = os.path.join(base, _BRACKET.sub("?", word))
        yield from iglob(pattern, recursive=True, include_hidden=True)


def _files(base: Path, word: str) -> Iterator[str]:
    yield from _paths(base, word)
    place = os.path.join(base, word)
    if os.path.isdir(place):
        yield from (os.path.join(place, name) for name in ("__main__.py", "__init__.py"))
    if _MODULE.fullmatch(word):  # python -m checks.style
        module = os.path.join(base, *word.split("."))
        yield from (f"{module}.py", f"{module}/__main__.py", f"{module}/__init__.py")


def _words(hook: Hook) -> Iterator[str]:
    texts = [hook.command] if isinstance(hook.command, str) else list(hook.command)
    for text in texts:
        pieces = [text, os.path.expandvars(text), re.sub(r"\\\n|[\\\"']", "", text)]
        with suppress(ValueError):  # an open quote: the shell will not run it either
            pieces += map(os.path.expanduser, shlex.split(text, comments=False))
        for piece in pieces:
            bare = _VARIABLE.sub(" ", piece)
            for word in (piece.strip(), bare.strip(), *_BETWEEN.split(piece), *bare.split(" ")):
                for part in (word, *_BETWEEN.split(word)):
                    yield from (name for name in (part, *_attached(part)) if name)


def _attached(word: str) -> Iterator[str]:
    """Give what may be the value of an option in the same word, as in `-Cchecks`."""
    if found := _LETTERS.match(word):
        yield from (word[at:] for at in range(2, min(found.end(), len(word) - 2) + 1))
