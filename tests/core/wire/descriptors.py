"""Descriptors for the tests of stdio: made in pairs, closed at the end of a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from acp_bridge.core.wire.stdio import Reader, Writer


class Fds:
    """Makes descriptors for a test, and closes what the test left open."""

    def __init__(self) -> None:
        self._made: list[int] = []
        self._closers: list[Callable[[], None]] = []

    def pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._made += ends
        return ends

    def dup(self, fd: int) -> int:
        copy = os.dup(fd)
        self._made.append(copy)
        return copy

    def adopt(self, *fds: int) -> None:
        self._made += fds

    def reader(self, fd: int, **options: int) -> Reader:
        reader = Reader(self._given_away(fd), **options)
        self._closers.append(reader.close)
        return reader

    def writer(self, fd: int, on_broken: Callable[[], None] | None = None) -> Writer:
        writer = Writer(self._given_away(fd), on_broken=on_broken)
        self._closers.append(writer.close)
        return writer

    def close(self, fd: int) -> None:
        os.close(self._given_away(fd))

    def clean_up(self) -> None:
        for close in self._closers:
            close()
        for fd in self._made:
            os.close(fd)

    def _given_away(self, fd: int) -> int:
        self._made.remove(fd)
        return fd


@pytest.fixture
def fds() -> Iterator[Fds]:
    made = Fds()
    yield made
    made.clean_up()


def fill(fd: int) -> int:
    """Fill a pipe from outside, without changing the description under test."""
    own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    total = 0
    try:
        while True:
            total += os.write(own, b"." * 65536)
    except BlockingIOError:
        return total
    finally:
        os.close(own)


async def read_exactly(reader: Reader, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = await reader.read()
        assert piece, f"ended after {len(data)} bytes"
        data += piece
    assert len(data) == size
    return bytes(data)
