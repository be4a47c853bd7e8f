"""Keeps the beginning and the end of output of any length, in bounded memory."""

from __future__ import annotations

from collections import deque

from agent.secrets import Secrets

#: bytes by which a cut may move to the end of a line, since half a line says little
_NEAR = 4096


class Bounded:
    """Keeps `keep` bytes of the beginning of a stream of bytes, and as many of its end.

    A little more is kept, so that secrets can be masked with `secrets` where the output is cut.
    """

    def __init__(self, keep: int, secrets: Secrets | None = None) -> None:
        self._keep = keep
        self._secrets = secrets or Secrets()
        self._held = keep + self._secrets.longest
        self._size = 0
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        room = self._held - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._held:
            self._tail_size -= len(self._tail.popleft())

    @property
    def size(self) -> int:
        """How many bytes were added."""
        return self._size

    @property
    def truncated(self) -> bool:
        return self._size > 2 * self._keep

    def text(self) -> str:
        """Returns the whole output, or both ends and a line that says how much is missing."""
        if not self.truncated:
            return self._all_held().decode("utf-8", "replace")
        head, tail = bytes(self._head), self._last_held()
        first = _whole_lines(head[: self._keep])
        last = last_lines(tail, self._keep)
        left_out = self._size - len(first) - len(last)
        note = f"[{left_out} bytes left out; {2 * self._keep} can be shown]\n"
        begin = self._secrets.mask_part(_text(head), 0, len(_text(head[: len(first)])))
        begin += "" if begin.endswith("\n") else "\n"
        return begin + note + self._from(tail, len(tail) - len(last))

    def end(self, size: int) -> str:
        """Returns the last lines of the output, `size` bytes at most."""
        held = self._all_held()
        if self.truncated:
            held, size = self._last_held(), min(size, self._keep)
        return self._from(held, len(held) - len(last_lines(held, size)))

    def _all_held(self) -> bytes:
        """Returns all bytes of an output that is not truncated."""
        return bytes(self._head) + b"".join(self._tail)

    def _last_held(self) -> bytes:
        """Returns the kept end of a truncated output, and the bytes before it, for masking."""
        tail = b"".join(self._tail)
        if len(tail) < self._held:  # the rest of the end is in the beginning
            tail = bytes(self._head[max(0, self._size - self._held) :]) + tail
        return tail

    def _from(self, held: bytes, start: int) -> str:
        return self._secrets.mask_part(_text(held), len(_text(held[:start])))


def last_lines(data: bytes, size: int) -> bytes:
    if len(data) <= size:
        return data
    data = data[-size:]
    line_end = data.find(b"\n", 0, _NEAR)
    return data[line_end + 1 :]


def _whole_lines(data: bytes) -> bytes:
    line_end = data.rfind(b"\n", max(0, len(data) - _NEAR))
    return data[: line_end + 1] if line_end >= 0 else data


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
