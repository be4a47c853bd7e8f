"""Joins the adjacent chunks of one message, so that a replay sends messages and not tokens.

Sans-IO. Invariants
- Two chunks are joined only if they are adjacent, in the same turn, of the same kind and message,
  and differ in nothing but their text: `_meta`, annotations and unknown fields included.
- A line that was not joined comes out as it went in, byte for byte.
- While a tool call's content comes in pieces, updates show clients of version 1 the whole content
  so far: only the last of these updates is left, behind the joined pieces.
- Joining what was joined already changes nothing, wherever it was cut before (invariant R1).
- A line that is no JSON object hides no other (invariant K2).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from acp_bridge.core.protocol import (
    MESSAGES,
    OF_VERSION_1,
    SAID,
    SAID_UPDATE,
    TOOL_CALL_UPDATE,
    own_meta,
)
from acp_bridge.core.wire.jsonrpc import dumps, read_object
from acp_bridge.core.wire.runs import Around, around_texts

MESSAGE_LIMIT: Final = 1_000_000
"""Characters. A longer message is replayed in several chunks, since a line may not be too long."""


Key: TypeAlias = tuple[str, str | None] | str | None


class Entry(NamedTuple):
    """The params of one update.

    `raw` is the line as it was recorded, None if the entry was joined from several lines; `params`
    is the line's value, None if it can't be read.
    """

    raw: bytes | None
    params: dict[str, Any] | None

    def line(self) -> bytes:
        """Return the line of JSON by which the entry is kept."""
        return dumps(self.params) if self.raw is None else self.raw


class Merger:
    """Takes a stream of recorded lines and gives the same transcript in fewer entries."""

    def __init__(self) -> None:
        self._turn: int | None = None
        self._key: Key = None
        self._first = Entry(None, None)
        self._texts: list[str] = []
        self._size = 0
        #: by tool call, the last entry that showed version 1 its whole content since the open entry
        #: began.
        self._shown: dict[str, Entry] = {}
        #: what is around the text in the open entry's line; None if that is no plain chunk.
        self._around: Around | None = None

    def feed(self, turn: int, lines: bytes) -> list[Entry]:
        """Take the lines of one row; returns the entries that are complete by now."""
        done: list[Entry] = []
        for raw in lines.split(b"\n"):
            if not raw or (turn == self._turn and self._continues(raw)):
                continue
            params = read_object(raw)
            key, text = chunk_of(params)
            if key is not None and key == self._key and turn == self._turn and self._add(text):
                continue
            if turn == self._turn and self._key and (call := shows_content(params)):
                self._shown.pop(call, None)
                self._shown[call] = Entry(raw, params)
                continue
            done += self.flush()
            if key is None:
                done.append(Entry(raw, params))
            else:
                self._turn, self._key, self._first = turn, key, Entry(raw, params)
                self._texts, self._size = [text], len(text)
                self._around = next(around_texts(raw, "text"), None) if type(key) is tuple else None
        return done

    def _continues(self, raw: bytes) -> bool:
        """Join a line if it differs from the open message's first one in its text alone.

        Returns whether it was joined. Nearly all of a long answer is such lines, and this costs a
        quarter of reading them whole.
        """
        text = self._around.text_in(raw) if self._around else None
        return text is not None and self._add(text)

    def _add(self, text: str) -> bool:
        if self._size + len(text) > MESSAGE_LIMIT:
            return False
        self._texts.append(text)
        self._size += len(text)
        return True

    def flush(self) -> list[Entry]:
        """Return the open entry, its texts joined, and the tool contents that waited for it."""
        texts, self._texts, self._key, self._around = self._texts, [], None, None
        shown, self._shown = list(self._shown.values()), {}
        if len(texts) <= 1 or self._first.params is None:
            return [self._first, *shown] if texts else []
        update = with_text(self._first.params["update"], "".join(texts))
        return [Entry(None, {**self._first.params, "update": update}), *shown]


class Row:
    """Collects the lines of one row, and joins the words of a message as they come.

    A turn of many words is recorded in few lines then, and nothing is left for `Merger` to join
    but what stands in rows beside each other.
    """

    def __init__(self) -> None:
        #: the number of lines so far, an open message's included.
        self.count = 0
        self._lines: list[bytes] = []
        #: the open message: its key, its first params and their line, and all its texts; no text:
        #: none is open.
        self._key: Key = None
        self._first: dict[str, Any] = {}
        self._line = b""
        self._texts: list[str] = []
        self._size = 0

    def append(self, line: bytes) -> None:
        """Add the params of an update, a line of JSON."""
        if self._texts:
            self._close()
        self._lines.append(line)
        self.count += 1

    def append_words(self, params: dict[str, Any], line: bytes) -> None:
        """Add an update that is perhaps a plain text chunk; `line` is its params."""
        key, text = chunk_of(params)
        if type(key) is not tuple:
            self.append(line)
            return
        if self.append_text(key, text):
            return
        if self._texts:
            self._close()
        self._key, self._first, self._line = key, params, line
        self._texts, self._size = [text], len(text)
        self.count += 1

    def append_text(self, key: Key, text: str) -> bool:
        """Add a plain chunk, by its `chunk_of`, to the message that is open.

        Returns False, and adds nothing, if it is not of that message, or the message is full.
        """
        size = self._size + len(text)
        if not self._texts or key != self._key or size > MESSAGE_LIMIT:
            return False
        self._texts.append(text)
        self._size = size
        return True

    def take(self) -> bytes:
        """Return all lines, and begin a new row."""
        if self._texts:
            self._close()
        lines, self._lines, self.count = self._lines, [], 0
        return b"".join(lines)

    def _close(self) -> None:
        line, texts, self._texts = self._line, self._texts, []
        if len(texts) > 1:
            line = dumps({"update": with_text(self._first["update"], "".join(texts))}) + b"\n"
        self._lines.append(line)


def merged(rows: Iterable[tuple[int, bytes]]) -> list[Entry]:
    """Return the merged entries of all rows, each of which is a turn and its lines."""
    merger = Merger()
    entries = [entry for turn, lines in rows for entry in merger.feed(turn, lines)]
    return entries + merger.flush()


def chunk_of(params: dict[str, Any] | None) -> tuple[Key, str]:
    """Return the key that all chunks of one message share, None for no text chunk, and the text."""
    update = params.get("update") if params else None
    if params is None or type(update) is not dict:
        return None, ""
    if update.get("sessionUpdate") == SAID_UPDATE:
        return _piece(params, update.get(SAID))
    kind, content = update.get("sessionUpdate"), update.get("content")
    if type(kind) is not str or kind not in MESSAGES or type(content) is not dict:
        return None, ""
    text = content.get("text")
    if content.get("type") != "text" or type(text) is not str:
        return None, ""
    if len(params) == 1 and len(content) == 2:  # a plain chunk
        message = update.get("messageId")
        if len(update) == 2 or (type(message) is str and len(update) == 3):
            return (kind, message), text
    # `repr`, since `==` holds 1, 1.0 and True for the same. Slower, and rarer.
    rest = {**update, "content": {**content, "text": None}}
    return repr({**params, "update": rest}), text


def _piece(params: dict[str, Any], said: object) -> tuple[Key, str]:
    """Return what `chunk_of` does for an update of version 2, which is `said`."""
    from acp_bridge.core.journal import pieces  # few sessions ever need it

    found = pieces.text_of(said) if type(said) is dict else None
    if found is None:
        return None, ""
    rest, text = found
    return repr({**params, "update": rest}), text


def shows_content(params: dict[str, Any] | None) -> str:
    """Return the id of a tool call if an update does nothing but show version 1 its whole content.

    Return an empty text for any other update.
    """
    if params is None or OF_VERSION_1 not in own_meta(params) or len(params) != 2:
        return ""
    match params["update"]:
        case {"sessionUpdate": str(kind), "toolCallId": str(call), "content": _, **rest}:
            return call if kind == TOOL_CALL_UPDATE and not rest else ""
    return ""


def with_text(update: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a chunk's update with `text` in the place of its own text."""
    if update["sessionUpdate"] != SAID_UPDATE:
        return {**update, "content": {**update["content"], "text": text}}
    from acp_bridge.core.journal import pieces

    return {**update, SAID: pieces.with_text(update[SAID], text)}
