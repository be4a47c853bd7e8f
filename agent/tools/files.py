"""Reads and writes files, through the client or on the disk; remembers which the model has read.

Invariants
- Only regular files are opened, so that opening never waits for a pipe or a device.
- A file is not changed if the model has not read it, or if it has changed since.
- What the client refuses is not done on the disk instead, but for reading a file outside of the
  session's folders, which some clients never do and the user has allowed.
- On the disk no link is followed, so that what is read or written is the file that was looked at.
- A file is changed whole or not at all: the new content is written beside it, then renamed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import BinaryIO

from anyio import to_thread

from agent.client import ClientError, NotOffered
from agent.tools import ToolContext, ToolError
from agent.tools.paths import Place, still
from agent.tools.text_file import Text, decode, from_client
from agent.tools.walk import open_folder

#: bytes of a file that is read whole and so can be edited; with JSON escapes it must still fit into
#: a message of 10 MB
MAX_TEXT = 4 * 1024 * 1024


def open_regular(place: Place) -> BinaryIO:
    """Opens a regular file for reading; waits for the disk, so call it in a thread.

    Raises ToolError, FileNotFoundError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    name = place.real.name
    try:
        with open_folder(place.real.parent) as at:
            # Before opening: to open a device may have an effect.
            _check_kind(place, os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
            file = os.fdopen(os.open(name, flags, dir_fd=at), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(place, error) from error
    try:
        _check_kind(place, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


def unreadable(place: Place, error: OSError) -> ToolError:
    return ToolError(f"Could not read {place.given}: {error.strerror}.")


def binary(place: Place) -> ToolError:
    return ToolError(f"{place.given} is a binary file, not text.")


async def read(place: Place, context: ToolContext) -> Text | None:
    """Returns the whole file, or None if there is none.

    A client that can read files is asked, since it has unsaved changes. Raises ToolError, also if
    the file is no text or longer than MAX_TEXT.
    """
    on_disk = await to_thread.run_sync(_read, place, abandon_on_cancel=True)
    if not context.client.reads_files:
        return on_disk
    try:
        content = await context.client.read_file(place.shown, None, None)
    except NotOffered:
        return on_disk
    except ClientError as error:
        if on_disk is None or place.outside:
            return on_disk
        raise ToolError(error.explain(f"The editor refused to give {place.given}")) from error
    await still(place, context)  # the client follows links itself
    if on_disk is None:
        # Some clients return "" for a file that isn't there.
        return from_client(content) if content else None
    if on_disk.encoding != "utf-8" and "\ufffd" in content:  # the client decoded it wrongly
        return on_disk
    return from_client(content)


async def read_to_change(place: Place, context: ToolContext) -> Text | None:
    """Returns the file if it is unchanged since the model has read it; None if there is none.

    Raises ToolError.
    """
    known = context.seen.get(str(place.real))
    unread = f"{place.given} was not read yet. Read it with read_file first."
    if known is None and await to_thread.run_sync(_exists, place):
        raise ToolError(unread)
    text = await read(place, context)
    if text is not None and text.digest != known:
        changed = f"{place.given} has changed since it was read. Read it again."
        raise ToolError(changed if known else unread)
    return text


def note_seen(place: Place, text: Text, context: ToolContext) -> None:
    context.seen[str(place.real)] = text.digest


async def change(place: Place, before: Text | None, after: Text, context: ToolContext) -> None:
    """Writes `after` if the file is still equal to `before`. Raises ToolError."""
    data = after.encode()
    if len(data) > MAX_TEXT:
        raise ToolError(f"{place.given} would be longer than {MAX_TEXT} bytes.")
    await still(place, context)
    if await read_to_change(place, context) != before:
        raise ToolError(f"{place.given} has changed since the edit was made. Read it again.")
    await to_thread.run_sync(_make_folder, place)
    if not await _write_through_client(place, after, context):
        await to_thread.run_sync(_write, place, data)
    note_seen(place, after, context)


async def _write_through_client(place: Place, after: Text, context: ToolContext) -> bool:
    """Writes the file through the client.

    Returns False if it has to be written on the disk instead. Some clients can't write, or not in
    the file's encoding. Raises ToolError if the client refuses.
    """
    client = context.client
    if not (client.writes_files and after.encoding == "utf-8"):
        return False
    try:
        await client.write_file(place.shown, after.mark + after.raw)
    except NotOffered:
        return False
    except ClientError as error:
        raise ToolError(error.explain(f"The editor refused to write {place.given}")) from error
    return True


# in a thread


def _check_kind(place: Place, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise ToolError(
            f"Could not read {place.given}: it is a link that leads to no file, or to "
            "another one than when it was looked at."
        )
    if stat.S_ISDIR(mode):
        raise ToolError(f"{place.given} is a folder.")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{place.given} is not a regular file.")


def _exists(place: Place) -> bool:
    try:
        open_regular(place).close()
    except FileNotFoundError:
        return False
    return True


def _read(place: Place) -> Text | None:
    try:
        with open_regular(place) as file:
            data = file.read(MAX_TEXT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(place, error) from error
    if len(data) > MAX_TEXT:
        raise ToolError(f"{place.given} is longer than {MAX_TEXT} bytes.")
    if (text := decode(data)) is None:
        raise binary(place)
    return text


def _make_folder(place: Place) -> None:
    try:
        with open_folder(place.real.parent, make=True):
            pass
    except OSError as error:
        problem = f"Could not make the folder of {place.given}: {error.strerror}."
        raise ToolError(problem) from error


def _write(place: Place, data: bytes) -> None:
    try:
        with open_folder(place.real.parent) as at:
            _replace(place.real.name, data, at)
    except OSError as error:
        raise ToolError(f"Could not write {place.given}: {error.strerror}.") from error


def _replace(name: str, data: bytes, at: int) -> None:
    """Writes the file `name` of the folder whose descriptor is `at`. Raises OSError."""
    beside = f".{secrets.token_hex(8)}.tmp"
    mode = _writable_mode(name, at)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(beside, flags, 0o666, dir_fd=at)
    try:
        with os.fdopen(file, "wb") as out:
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.write(data)
        os.replace(beside, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=at)
        raise


def _writable_mode(name: str, at: int) -> int | None:
    """Returns the file's permission bits; None if there is no file.

    Raises PermissionError for a write-protected file, which a rename would replace all the same.
    """
    try:
        mode = stat.S_IMODE(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None
    if not mode & 0o222:
        raise PermissionError(0, "it is write-protected")
    return mode
