"""Reads and writes files, through the client or on the disk; remembers which the model has read.

Invariants
- Only regular files are opened, so that opening never waits for a pipe or a device.
- A file is not changed if the model has not read it, or if it has changed since.
- What the client refuses is not done on the disk instead, but for reading a file outside of the
  session's folders, which some clients never do and the user has allowed.
- On the disk no link is followed, so that what is read or written is the file that was looked at.
- A file that got another name after it was looked at is not changed (see agent.tools.written).
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from anyio import to_thread

from agent.client import ClientError, NotOffered
from agent.tools import ToolContext, ToolError
from agent.tools.paths import Place, still
from agent.tools.text_file import Text, decode, from_client
from agent.tools.walk import open_folder
from agent.tools.written import more_names, write

#: bytes of a file that is read whole and so can be edited; with JSON escapes it must still fit into
#: a message of 10 MB
MAX_TEXT = 4 * 1024 * 1024


def open_regular(place: Place) -> BinaryIO:
    """Opens a regular file for reading; waits for the disk, so call it in a thread.

    Raises ToolError, FileNotFoundError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    name = place.real.name or "."  # of the root
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
    other = on_disk.odd or on_disk.encoding != "utf-8"
    if other and "\ufffd" in content:  # the client decoded it wrongly
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
    if decode(data) is None:
        raise ToolError(f"{place.given} would be a binary file: it would have a null byte.")
    if (await still(place, context)).names > 1 and place.names < 2:
        raise more_names(place)
    if await read_to_change(place, context) != before:
        raise ToolError(f"{place.given} has changed since the edit was made. Read it again.")
    await to_thread.run_sync(_make_folder, place)
    if not await _write_through_client(place, after, context):
        await to_thread.run_sync(write, place, data, context)
    note_seen(place, after, context)


async def _write_through_client(place: Place, after: Text, context: ToolContext) -> bool:
    """Writes the file through the client.

    Returns False if it has to be written on the disk instead. Some clients can't write, or not in
    the file's encoding, or would lose its odd bytes. Raises ToolError if the client refuses.
    """
    client = context.client
    if not client.writes_files or after.encoding != "utf-8" or after.odd:
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
