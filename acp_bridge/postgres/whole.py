"""Finds out if what the database has of a session is whole: the parts of its base, and its writes.

A row may be lost if somebody deletes it, or copies the database badly. What follows a gap is never
made: a session that is not whole is refused.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from acp_bridge.core.journal.connection import journal_errors
from acp_bridge.core.journal.errors import Incomplete

#: the bytes of SQLite's header up to the number of pages, and what it says for 65,536 bytes a page.
_HEADER: Final = 32
_LONGEST: Final = 1


def part_follows(part: int, expected: int) -> None:
    """Raise Incomplete if the number of a base's part is not the expected one."""
    if part != expected:
        raise Incomplete(f"part {expected} of its beginning")


def joined(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the bytes of a base, from the numbers and bytes of its parts. Raises Incomplete."""
    found = []
    for at, (part, data) in enumerate(parts):
        part_follows(part, at)
        found.append(data)
    return b"".join(found)


def check_base(draft: Path) -> None:
    """Raise Incomplete if a base is shorter than its header says; JournalError."""
    with journal_errors(), draft.open("rb") as file:
        header = file.read(_HEADER)
        size = file.seek(0, 2)
    page = int.from_bytes(header[16:18])
    page = 65536 if page == _LONGEST else page
    if not size or size < page * int.from_bytes(header[28:32]):
        raise Incomplete("the end of its beginning")


def follow(numbers: Iterable[int], last: int) -> int:
    """Check that numbers of writes follow `last`; returns the last of them. Raises Incomplete."""
    for n in numbers:
        if n != last + 1:
            raise Incomplete(
                f"write {last + 1}" if n == last + 2 else f"writes {last + 1} to {n - 1}"
            )
        last = n
    return last


def check_last(last: int, applied: int) -> None:
    """Raise Incomplete if writes are missing behind the last one, up to the number `applied`."""
    if last < applied:
        follow([applied + 1], last)
