"""Keeps the beginning and the end of output of any length, in bounded memory."""

from __future__ import annotations

from collections import deque

#: bytes by which a cut may move to be at the end of a line. Half a line says little, and half a
#: secret is not recognised as one
_NEAR = 4096


class Bounded:
    """Keeps `keep` bytes of the beginning of a stream of bytes, and as many of its end."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._size = 0
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        room = self._keep - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._keep:
            self._tail_size -= len(self._tail.popleft())

    @property
    def size(self) -> int:
        """The bytes of everything that was added."""
        return self._size

    @property
    def truncated(self) -> bool:
        return self._size > 2 * self._keep

    def text(self) -> str:
        """Returns the whole output, or both ends and a line that says how much is missing."""
        tail = b"".join(self._tail)
        if not self.truncated:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        first = _whole_lines(bytes(self._head))
        last = last_lines(tail, self._keep)
        left_out = self._size - len(first) - len(last)
        note = f"[{left_out} bytes left out; {2 * self._keep} can be shown]\n"
        first += b"" if first.endswith(b"\n") else b"\n"
        return first.decode("utf-8", "replace") + note + last.decode("utf-8", "replace")

    def end(self, size: int) -> str:
        """Returns the last lines that are kept, of `size` bytes at most."""
        kept = b"".join(self._tail)
        if len(kept) < size and not self.truncated:
            kept = bytes(self._head) + kept
        return last_lines(kept, size).decode("utf-8", "replace")


def last_lines(data: bytes, size: int) -> bytes:
    if len(data) <= size:
        return data
    data = data[-size:]
    line_end = data.find(b"\n", 0, _NEAR)
    return data[line_end + 1 :]


def _whole_lines(data: bytes) -> bytes:
    line_end = data.rfind(b"\n", max(0, len(data) - _NEAR))
    return data[: line_end + 1] if line_end >= 0 else data
