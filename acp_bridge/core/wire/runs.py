"""Finds runs: lines of an agent in succession that differ only in one text. Sans-IO.

Most lines of a long answer are in a run. A `Decoder` reads the first line of one. From the lines
that come in later reads, only the text is read. That costs a fifth.

Invariant: with each run written out, the messages are those of the `Decoder` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from acp_bridge.core.wire.jsonrpc import Decoder, Malformed, Message, dumps, loads
from acp_bridge.core.wire.plain_json import plain_loads

#: bytes of the longest line of a run.
_LONGEST: Final = 1 << 16
#: the texts of a line that are tried.
_PLACES: Final = 8

#: The names by which the text is found in a message, from the outside in.
Path: TypeAlias = tuple[str, ...]


class Around(NamedTuple):
    """The bytes of a line before and behind one of its texts, each with that text's quote."""

    head: bytes
    tail: bytes

    def text_in(self, line: bytes) -> str | None:
        """Return the text of a line that is alike.

        None if the line differs in something else, or its text is empty.
        """
        head, tail = self
        if not line.startswith(head) or not line.endswith(tail):
            return None
        try:  # one JSON string with its quotes, or it is no such line
            text = plain_loads(line[len(head) - 1 : len(line) - len(tail) + 1])
        except ValueError:
            return None
        return text if type(text) is str and text else None

    def line(self, text: str) -> bytes:
        """Return the line that has this text."""
        return self.head[:-1] + dumps(text) + self.tail[1:]


def around_texts(line: bytes, name: str) -> Iterator[Around]:
    """Yield what is around each text in a line of JSON that may be the member `name`."""
    pattern = rb'"%b"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)"' % name.encode()
    for found in re.finditer(pattern, line):
        yield Around(line[: found.start(1)], line[found.end(1) :])


class Run(NamedTuple):
    """Notifications in succession. Each is `message` with another text at `path`."""

    message: Message
    path: Path
    texts: Sequence[str]

    def each(self) -> Iterator[Message]:
        """Yield the notifications."""
        return map(self.with_text, self.texts)

    def with_text(self, text: str) -> Message:
        """Return the notification that has this text."""
        return _with_text(self.message, self.path, text)


def _with_text(value: Message, path: Sequence[str], text: str) -> Message:
    name, *rest = path
    return {**value, name: _with_text(value[name], rest, text) if rest else text}


def _text_at(value: Any, path: Path) -> str | None:
    for name in path:
        value = value.get(name) if type(value) is dict else None
    return value if type(value) is str else None


class RunReader:
    """Reads a stream through a `Decoder`, and finds the runs in it."""

    def __init__(self, decoder: Decoder, path: Path, begins: Callable[[Message], bool]) -> None:
        """`path` leads to the text in which the notifications of a run differ.

        `begins` returns True for a notification with such a text if more like it may be a run.
        """
        self._decoder, self._path, self._begins = decoder, path, begins
        self._message: Message = {}
        self._around: Around | None = None

    def feed(self, data: bytes) -> Iterator[Message | Malformed | Run]:
        """Yield the messages that these bytes complete, in order; see `Decoder.feed`."""
        decoder = self._decoder
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and decoder.unfinished:
            yield from decoder.feed(lines.pop(0) + b"\n")
            if not lines and not rest:
                return  # an empty feed would say that nothing more comes for now
        if not lines or decoder.unfinished or decoder.heard:
            yield from decoder.feed(b"\n".join([*lines, rest]))
            return
        texts, odd = list[str](), list[bytes]()
        for line in lines:
            text = self._around.text_in(line) if self._around else None
            if text is not None and odd:
                yield from decoder.feed(b"\n".join([*odd, b""]))
                odd = []
                text = None if decoder.unfinished else text
            if text is not None:
                texts.append(text)
                continue
            if texts:
                yield Run(self._message, self._path, texts)
                texts = []
            odd.append(line)
        if texts:
            yield Run(self._message, self._path, texts)
        if odd:
            found = decoder.feed(b"\n".join([*odd, b""]))
            yield from found
            self._learn(found[-1:], odd[-1])
        if rest:
            yield from decoder.feed(rest)

    def _learn(self, found: list[Message | Malformed], line: bytes) -> None:
        """Note the message in a line as the one that a run is like, if it may be."""
        message = found[0] if found and isinstance(found[0], dict) else {}
        text = _text_at(message, self._path)
        if text is None or len(line) > _LONGEST or not self._begins(message):
            return
        probe = f"{text}x"
        expected = _with_text(message, self._path, probe)
        for near in islice(around_texts(line, self._path[-1]), _PLACES):
            if loads(near.line(probe)) == expected:
                self._message, self._around = message, near
                return
