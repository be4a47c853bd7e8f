"""A stream that nobody reads: it holds up nothing, and goes on when somebody does."""

import os
import threading
from collections.abc import Iterator

import pytest

from acp_bridge.core.wire.lossy import LossyWriter, text_stream


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    readable, writable = os.pipe()
    yield readable, writable
    for fd in (readable, writable):
        os.close(fd)


def written(work: threading.Thread) -> bool:
    """Return True when the work ends; else it waits for ever."""
    work.daemon = True
    work.start()
    work.join(5)
    return not work.is_alive()


@pytest.mark.hazard("C4")
def test_prints_of_several_threads_end_though_nobody_reads(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    stream = text_stream(writable)

    def write() -> None:
        for number in range(200):
            print(number, "x" * 5000, "é", file=stream)

    others = [threading.Thread(target=write, daemon=True) for _ in range(4)]
    for each in others:
        each.start()
    assert written(threading.Thread(target=write))
    for each in others:
        each.join(5)
    assert not any(each.is_alive() for each in others)
    assert len(os.read(readable, 1 << 20)) <= 1 << 16
    print("read again", file=stream)
    assert os.read(readable, 1 << 16).decode().splitlines() == ["", "read again"]


def test_what_has_room_is_written_as_it_is(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    stream = text_stream(writable)
    assert (stream.fileno(), stream.isatty()) == (writable, False)
    print("one", "two", file=stream)
    assert os.read(readable, 100) == b"one two\n"


def test_nobody_at_the_other_end_is_no_error() -> None:
    readable, writable = os.pipe()
    os.close(readable)
    assert LossyWriter(writable).write(b"gone\n") == 5
    os.close(writable)
