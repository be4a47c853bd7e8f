"""Places in a session's transcript, and the cursors that name them to clients.

Sans-IO. Invariants
- A place is one of the transcript as it is after merging, down to characters inside a message: it
  is the same before and after the merger has joined what it can join (invariant N5).
- A cursor holds a sum of all that stands before its place, so one of another transcript, or of one
  that was changed, is refused and never answered from elsewhere.

Texts of the same kind and message that stand side by side are one text here, however they were
cut, and a text that is empty is nothing. An update that shows version 1 the whole content of a tool
call while pieces of it come is nothing, too: the merger moves and drops such updates. So is an
update of an output that grows, since a later one may supersede it. Either may be shown twice, since
what it tells is whole.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from acp_bridge.core.journal.merge import Key, chunk_of, shows_content, with_text
from acp_bridge.core.updates.growing import grows
from acp_bridge.core.wire.jsonrpc import dumps

_SUM: Final = 16
"""Bytes of a cursor's sum."""
_COUNT: Final = 8
"""Bytes of a cursor's count."""
_ID: Final = 9
"""Bytes of the id of a message that has none of its own."""

Params = dict[str, Any]


class WrongCursor(Exception):
    """A client has sent what is no cursor, or none of this transcript; the text tells it so."""


class Cursor(NamedTuple):
    """A place as a client names it: the units of the transcript before it, and their sum."""

    units: int
    sum: bytes

    def __str__(self) -> str:
        return urlsafe_b64encode(self.units.to_bytes(_COUNT) + self.sum).decode()

    @classmethod
    def read(cls, text: object) -> Cursor:
        """Return the cursor for the text that a client has sent. Raises WrongCursor."""
        try:
            found = urlsafe_b64decode(text) if isinstance(text, str) else b""
        except (NotBase64, ValueError):
            found = b""
        cursor = cls(int.from_bytes(found[:_COUNT]), found[_COUNT:])
        if str(cursor) != text or len(found) != _COUNT + _SUM:
            raise WrongCursor("this is no cursor of a session")
        return cursor


class Place:
    """A place in one session's transcript: it is the beginning, and moves on with each `add`."""

    def __init__(self, session_id: str) -> None:
        """Be the beginning of the transcript of the session `session_id`."""
        #: how much of the transcript stands before the place: characters of text, and 1 for each
        #: other entry. Characters are units of UTF-16: there two halves of a character, as some
        #: agents send them, count the same apart and joined.
        self.units = 0
        #: the id to show for the message of the last text, if that message has no id of its own.
        self.message = ""
        self._sum = blake2b(digest_size=_SUM)
        self._frame(session_id.encode("utf-8", "surrogatepass"))
        #: the key, as `chunk_of` has it, of the text before the place; None behind another entry.
        self._key: Key = None
        #: the key and the id of the last message, by `sessionId`: the session and its subagents.
        self._messages: dict[object, tuple[Key, str]] = {}

    @property
    def cursor(self) -> Cursor:
        """The cursor that names this place."""
        return Cursor(self.units, self._sum.digest())

    def copy(self) -> Place:
        """Return another object for the same place, which moves on by itself."""
        copy = Place("")
        copy.units, copy.message = self.units, self.message
        copy._sum, copy._key, copy._messages = self._sum.copy(), self._key, {**self._messages}
        return copy

    def add(self, params: Params) -> None:
        """Move the place behind the next entry of the transcript, or behind a piece of it."""
        key, text = chunk_of(params)
        if key is not None:
            self._add_text(params.get("sessionId"), key, text)
        elif not (shows_content(params) or grows(params)):
            self._key = None
            self._messages.pop(params.get("sessionId"), None)
            self._frame(dumps(params))
            self.units += 1

    def _add_text(self, session_id: object, key: Key, text: str) -> None:
        before, message = self._messages.get(session_id, (None, ""))
        head = repr(key).encode("utf-8", "surrogatepass")
        if key != before:
            begun = self._sum.copy()
            begun.update(head)
            message = urlsafe_b64encode(begun.digest()[:_ID]).decode()
        self.message = message
        if not text:
            return
        if key != self._key:
            self._frame(head)
        self._key, self._messages[session_id] = key, (key, message)
        data = _utf16(text)
        self._sum.update(data)
        self.units += len(data) // 2

    def _frame(self, data: bytes) -> None:
        """Add `data`, which is no text of a message, to the sum so that no text looks like it."""
        self._sum.update(b"\0%d %d\0" % (self.units, len(data)) + data)


class Part(NamedTuple):
    """The parts of an entry before and after a place; None: there is no such part."""

    before: Params | None
    after: Params | None


class From:
    """Divides a transcript that is read from its beginning at the place that a cursor names."""

    def __init__(self, session_id: str, cursor: Cursor | None) -> None:
        """`cursor`: None for the beginning."""
        #: the place behind the entries that were read.
        self.place = Place(session_id)
        self._cursor = cursor
        self._is_there = cursor is None
        if cursor:
            self._look(cursor)

    def divide(self, params: Params) -> Part:
        """Read the next entry; returns its parts before and after the cursor's place.

        Raises WrongCursor.
        """
        cursor = self._cursor
        if cursor is None or self._is_there:
            self.place.add(params)
            return Part(None, params)
        key, text = chunk_of(params)
        room, size = cursor.units - self.place.units, len(_utf16(text)) // 2
        if key is None or size <= room:
            self.place.add(params)
            self._look(cursor)
            return Part(params, None)
        head, tail = (_with(params, each) for each in _cut(text, room))
        self.place.add(head)
        self._look(cursor)
        self.place.add(tail)
        return Part(head, tail)

    def _look(self, cursor: Cursor) -> None:
        """Note whether the place that `cursor` names is reached. Raises WrongCursor."""
        if self.place.units >= cursor.units:
            if self.place.cursor != cursor:
                raise WrongCursor("the session has nothing that goes on at this cursor")
            self._is_there = True

    def end(self) -> Place:
        """Return the place at the transcript's end. Raises WrongCursor."""
        if not self._is_there:
            raise WrongCursor("the session is shorter than at this cursor")
        return self.place


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _cut(text: str, units: int) -> tuple[str, str]:
    data = _utf16(text)
    head, tail = data[: 2 * units], data[2 * units :]
    return head.decode("utf-16-le", "surrogatepass"), tail.decode("utf-16-le", "surrogatepass")


def _with(params: Params, text: str) -> Params:
    """Return the params of a chunk with `text` in the place of its own text."""
    return {**params, "update": with_text(params["update"], text)}
