"""Writes a session into a file of its own."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


class NotWritten(Exception):
    """A session was not written; the text is for the user."""


def write_text(path: Path, text: str) -> None:
    """Write a text as `write_private` writes bytes. Raises NotWritten."""
    write_private(path, [text.encode("utf-8", "backslashreplace")])


def write_private(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that is not there yet and only its owner may read, whole or not at all.

    Raises NotWritten.
    """
    draft = path.parent / f".acp-bridge-{uuid4().hex}"
    try:
        if os.path.lexists(path):
            raise FileExistsError
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(draft, flags, 0o600), "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        _give_name(draft, path)
    except OSError as error:
        raise _not_written(path, error) from None
    finally:
        with suppress(OSError):
            draft.unlink()


def _give_name(draft: Path, path: Path) -> None:
    """Give the file `draft` the name `path` if nothing has that. Raises OSError."""
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if os.path.lexists(path):  # a disk without links: somebody may be quicker there
            raise FileExistsError from None
        draft.rename(path)


def _not_written(path: Path, error: OSError) -> NotWritten:
    if isinstance(error, FileExistsError):
        return NotWritten(f"{path} is there already: name another file")
    return NotWritten(f"{path} can't be written: {error.strerror}")
