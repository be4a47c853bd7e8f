"""Sets one entry in an editor's JSON settings file and keeps everything else.

Invariants
- The file is replaced as a whole or not at all, and only if nobody changed it meanwhile.
- The old content is in a backup first, with the same rights.
- A symbolic link is kept: the file that it leads to is replaced.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acp_bridge.terminal.setup.editor import Entry
from acp_bridge.terminal.setup.jsonc import Malformed, parse, put

_BACKUP: Final = ".before-acp-bridge"
#: members that a person may have changed since they were written: never overwritten.
_THEIRS: Final = frozenset({"env"})


class NotWritten(Exception):
    """The settings file could not be changed; the text says why."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write; `backup` is None if the file is new or was not changed."""

    changed: bool
    backup: Path | None = None


def write(path: Path, entry: Entry) -> Written:
    """Set an entry in a settings file, which is made if there is none. Raises NotWritten.

    Other members that the entry has in the file stay, and so does its `env`, if it has one.
    """
    file = Path(os.path.realpath(path))
    try:
        before = _content(file)
        after = _changed(before or b"", entry)
        if before == after:
            return Written(changed=False)
        if before is not None and not stat.S_IMODE(file.stat().st_mode) & 0o222:
            # Its owner wants no changes, though the folder would allow the replacement.
            raise Malformed("it is read-only")
        file.parent.mkdir(parents=True, exist_ok=True)
        backup = None if before is None else _back_up(file, before)
        _replace(file, before, after)
    except (Malformed, UnicodeError) as why:
        reason = "it is not UTF-8" if isinstance(why, UnicodeError) else why
        raise NotWritten(f"{path} was not changed: {reason}") from None
    except OSError as error:
        raise NotWritten(f"{path} was not changed: {error.strerror}") from None
    return Written(changed=True, backup=backup)


def _content(file: Path) -> bytes | None:
    """Return the content of a file, None if there is none. Raises OSError, Malformed."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Malformed("it is no regular file")
        return opened.read()


def _changed(before: bytes, entry: Entry) -> bytes:
    """Return the file's content with the entry set. Raises Malformed, UnicodeDecodeError."""
    text = before.decode("utf-8")
    old: Any = parse(text)
    for name in entry.path:
        old = old.get(name) if isinstance(old, dict) else None
    if not isinstance(old, dict):
        return put(text, entry.path, entry.value).encode("utf-8")
    if old.keys() & entry.instead_of:
        others = {key: kept for key, kept in old.items() if key not in entry.instead_of}
        return put(text, entry.path, {**others, **entry.value}).encode("utf-8")
    for name, value in entry.value.items():
        if name not in old or (name not in _THEIRS and old[name] != value):
            text = put(text, (*entry.path, name), value)
    return text.encode("utf-8")


def _back_up(file: Path, content: bytes) -> Path:
    """Write the old content to a new file beside the settings; returns its path. Raises OSError."""
    mode = stat.S_IMODE(file.stat().st_mode)
    number = 1
    while True:
        backup = file.with_name(f"{file.name}{_BACKUP}{f'-{number}' if number > 1 else ''}")
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        with open(descriptor, "wb") as opened:
            _store(opened.fileno(), content, mode)
        return backup


def _replace(file: Path, before: bytes | None, after: bytes) -> None:
    """Replace a file by one with new content, same owner and rights. Raises OSError, Malformed.

    `before`: the content that it must still have; None for no file.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(descriptor, "wb") as opened:
            known = None if before is None else file.stat()
            if known is not None:
                with suppress(OSError):  # the owner's group may not be ours
                    os.fchown(descriptor, known.st_uid, known.st_gid)
            _store(descriptor, after, stat.S_IMODE(known.st_mode) if known else 0o600)
            opened.flush()
        if _content(file) != before:
            raise Malformed("it was changed meanwhile; try again")
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _store(descriptor: int, content: bytes, mode: int) -> None:
    """Write a content to a new file, set its mode, and sync it to disk."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fchmod(descriptor, mode)
    os.fsync(descriptor)
