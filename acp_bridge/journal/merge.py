"""Joining the adjacent chunks of one message, so that a replay sends messages, not tokens.

Sans-io. Invariants
- Two chunks are joined only if they are adjacent, in the same turn, of the same kind and message,
  and differ in nothing but their text: `_meta`, annotations and unknown fields included.
- What was not joined comes out as it went in, byte for byte.
- Joining what was joined already changes nothing, wherever it was cut before (HAZARDS R1).
- A line that is no JSON object hides no other (HAZARDS K2).
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

CHUNKS: Final = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})

MESSAGE_LIMIT: Final = 1_000_000
"""Characters. A message that is longer is replayed in several chunks: a line has its bounds."""


class Entry(NamedTuple):
    """One update's params: its line as it was recorded (None if joined from several) and its
    value (None if the line can't be read)."""

    raw: bytes | None
    params: dict[str, Any] | None

    def line(self) -> bytes:
        """The JSON text to keep."""
        return dumps(self.params) if self.raw is None else self.raw


def dumps(value: object) -> bytes:
    """JSON on one line, whatever text is in it."""
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # a lone surrogate
        return json.dumps(value, separators=(",", ":")).encode()


def loads(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line, or None if there is none."""
    try:
        value = from_json(line, allow_inf_nan=False)
    except ValueError:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


class Merger:
    """A stream of recorded lines in, the same transcript in fewer entries out."""

    def __init__(self) -> None:
        self._turn: int | None = None
        self._key: str | None = None
        self._first = Entry(None, None)
        self._texts: list[str] = []
        self._size = 0

    def feed(self, turn: int, lines: bytes) -> Iterator[Entry]:
        """Take one row of a turn; give what can't grow any more."""
        for raw in lines.split(b"\n"):
            if raw:
                yield from self._take(turn, Entry(raw, loads(raw)))

    def flush(self) -> Iterator[Entry]:
        """Give what is still open."""
        if self._texts:
            yield self._joined()
        self._texts, self._key, self._size = [], None, 0

    def _take(self, turn: int, entry: Entry) -> Iterator[Entry]:
        key, text = _chunk(entry.params)
        grows = (
            key is not None
            and key == self._key
            and turn == self._turn
            and self._size + len(text) <= MESSAGE_LIMIT
        )
        if not grows:
            yield from self.flush()
        if key is None:
            yield entry
            return
        if not grows:
            self._turn, self._key, self._first = turn, key, entry
        self._texts.append(text)
        self._size += len(text)

    def _joined(self) -> Entry:
        first = self._first.params
        if first is None or len(self._texts) == 1:
            return self._first
        content = {**first["update"]["content"], "text": "".join(self._texts)}
        return Entry(None, {**first, "update": {**first["update"], "content": content}})


def merged(rows: Iterable[tuple[int, bytes]]) -> Iterator[Entry]:
    """The entries of some rows (turn, lines)."""
    merger = Merger()
    for turn, lines in rows:
        yield from merger.feed(turn, lines)
    yield from merger.flush()


def _chunk(params: dict[str, Any] | None) -> tuple[str | None, str]:
    """What must be equal for two chunks to be one message (None: not a text chunk), and the text.

    The key is a `repr`, since `==` holds 1, 1.0 and True for the same.
    """
    match params:
        case {
            "update": {
                "sessionUpdate": str(kind),
                "content": {"type": "text", "text": str(text), **content},
                **update,
            },
            **rest,
        } if kind in CHUNKS:
            return repr((kind, update, content, rest)), text
    return None, ""
