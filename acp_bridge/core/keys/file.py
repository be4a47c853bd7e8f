"""Changes one variable in `keys.env` in the data folder; the rest of the file stays as it is.

Invariants
- The file is replaced as a whole, so whoever reads it sees the old one or the new one, and a full
  disk or a kill leaves the old one.
- It is 0600 from its first byte on. A folder that is made for it is 0700.
- A link is followed to the user's own file, which is replaced there; the link stays.
- A file that anybody may write is not taken over, or what others have put into it would count from
  then on.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Final

from acp_bridge.core.keys import FILE

#: values that need no quotes.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./+:@~,%=-]+")
#: seconds to wait for another `acp-bridge key` to end.
_LOCK_WAIT: Final = 5.0
_LOCK_INTERVAL: Final = 0.02
_MOST_BYTES: Final = 1 << 20


class Unusable(Exception):
    """The file can't be changed; the text says why and what to do, for the user."""


def set_key(home: Path, name: str, value: str) -> None:
    """Write a line `NAME=value`, in the place of the variable's old line, if any. Raises Unusable.

    `value` has one line. The data folder and the file are made if need be.
    """
    with _errors(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _change(home / FILE, lambda text: _with(text, name, f"{name}={_quoted(value)}"))


def remove_key(home: Path, name: str) -> bool:
    """Remove the lines of a variable; returns False if there is none. Raises Unusable."""
    with _errors(home):
        try:
            return _change(home / FILE, lambda text: _with(text, name, None))
        except FileNotFoundError:
            return False


def values(home: Path) -> list[str]:
    """Return all values of the file of keys, to be masked in texts; [] if it can't be read.

    Lines that are no setting are among them, since such a line may be a key.
    """
    from dotenv.parser import parse_stream

    try:
        text = (home / FILE).read_text("utf-8", "replace") if (home / FILE).is_file() else ""
    except OSError:
        return []
    bindings = list(parse_stream(StringIO(text)))
    # A line may be nothing but a key.
    bare = [each.key for each in bindings if each.key and each.value is None]
    broken = [each.original.string for each in bindings if each.error]
    return [*bare, *broken, *(each.value for each in bindings if each.value)]


@contextmanager
def _errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(f"{home / FILE} can't be changed: {error.strerror or error}") from error


def _change(file: Path, change: Callable[[str], str]) -> bool:
    """Replace the file's text by the result of `change`; returns False if that is the same.

    Raises OSError, Unusable.
    """
    target = Path(os.path.realpath(file))
    with _locked(target.parent):
        before = _read(target, linked=file.is_symlink())
        after = change(before or "")
        if after == (before or ""):
            return False
        replace(target, after)
    return True


def _read(path: Path, *, linked: bool) -> str | None:
    """Return the text of the file, None if there is none. Raises OSError, Unusable.

    `linked`: a link leads to `path`, so that a missing file is an error.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if linked:
            raise Unusable(f"{FILE} is a link to {path}, which is not there") from None
        return None
    with open(fd, encoding="utf-8", newline="") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Unusable(f"{path} is no file")
        if found.st_uid != os.geteuid():
            raise Unusable(f"{path} belongs to another user: look at it, and remove it")
        if found.st_mode & 0o002:
            raise Unusable(
                f"anybody may write {path}: look if every line is yours, then run chmod 600 on it"
            )
        try:
            text = file.read(_MOST_BYTES)
        except ValueError:
            raise Unusable(f"{path} is not UTF-8") from None
        if len(text) == _MOST_BYTES:
            raise Unusable(f"{path} is too large for a file of keys")
        return text


def _with(text: str, name: str, line: str | None) -> str:
    """Return `text` with `line` in place of the lines of the variable `name`; None removes them."""
    from dotenv.parser import parse_stream

    parts, end = [], "\r\n" if "\r\n" in text else "\n"
    for binding in parse_stream(StringIO(text)):
        original = binding.original.string
        if binding.key != name or binding.error:
            parts.append(original)
        else:  # what stands before it on the way to its line are empty lines
            parts.append(original[: len(original) - len(original.lstrip())])
            if line is not None:
                parts.append(line + end)
                line = None
    whole = "".join(parts)
    if line is None:
        return whole
    return f"{whole}{'' if not whole or whole.endswith(end) else end}{line}{end}"


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def replace(path: Path, text: str) -> None:
    """Replace a file by one with this text and mode 0600; raises OSError, and leaves it as it was.

    The caller makes sure that nobody else replaces it at the same time.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # of one that was killed; the lock says that none is at it
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(draft, flags, 0o600)
    try:
        with open(fd, "w", encoding="utf-8", newline="") as file:
            os.fchmod(fd, 0o600)
            file.write(text)
            file.flush()
            os.fsync(fd)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    with suppress(OSError):  # the file is there; it may only be lost with the power
        _sync(path.parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself for the block, without a lock file.

    Where folders can't be locked, the block runs without. Raises OSError, and Unusable if another
    program keeps the lock.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unusable(f"another program keeps {folder} locked") from None
                time.sleep(_LOCK_INTERVAL)
            except OSError:  # a file system on which folders can't be locked
                break
        yield
    finally:
        os.close(fd)
