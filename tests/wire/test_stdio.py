"""Real descriptors: nothing blocks, nothing is lost, nothing shared is changed."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from acp_bridge.wire.stdio import Reader, Writer, claim_stdio

MEGABYTE = 1 << 20


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


# -- reading


async def test_what_was_written_is_read_and_then_the_end(fds: Fds) -> None:
    r, w = fds.pipe()
    reader = fds.reader(r)
    os.write(w, b"one")
    with anyio.fail_after(5):
        assert await reader.read() == b"one"
        fds.close(w)
        assert await reader.read() == b""
        assert await reader.read() == b""


async def test_reading_waits_for_bytes_to_come(fds: Fds) -> None:
    r, w = fds.pipe()
    reader, got = fds.reader(r), []

    async def read() -> None:
        got.append(await reader.read())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            os.write(w, b"late")
    assert got == [b"late"]


async def test_one_read_gives_at_most_a_chunk(fds: Fds) -> None:
    r, w = fds.pipe()
    reader = fds.reader(r, chunk=4)
    os.write(w, b"abcdef")
    with anyio.fail_after(5):
        assert [await reader.read(), await reader.read()] == [b"abcd", b"ef"]


async def test_reading_gives_other_tasks_a_turn_though_bytes_are_always_there(fds: Fds) -> None:
    r, w = fds.pipe()
    reader, turns = fds.reader(r, chunk=1), []
    os.write(w, b"x" * 20)

    async def other() -> None:
        for _ in range(10):
            turns.append("other")
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            for _ in range(20):
                await reader.read()
                turns.append("read")
    assert turns.index("other") < 3
    assert turns[:20].count("other") >= 8


async def test_a_cancelled_read_loses_nothing(fds: Fds) -> None:
    r, w = fds.pipe()
    reader = fds.reader(r)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.read)
            await anyio.wait_all_tasks_blocked()
            os.write(w, b"kept")
            tasks.cancel_scope.cancel()
        assert await reader.read() == b"kept"


async def test_closing_ends_a_read_that_waits(fds: Fds) -> None:
    r, _ = fds.pipe()
    reader, got = fds.reader(r), []

    async def read() -> None:
        got.append(await reader.read())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            reader.close()
        assert await reader.read() == b""
    assert got == [b""]
    reader.close()


async def test_a_regular_file_and_dev_null_are_read_to_their_end(fds: Fds, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"from a file")
    for name, expected in ((str(path), [b"from a file", b""]), (os.devnull, [b"", b""])):
        fd = os.open(name, os.O_RDONLY)
        fds.adopt(fd)
        reader = fds.reader(fd)
        with anyio.fail_after(5):
            assert [await reader.read(), await reader.read()] == expected


async def test_a_terminal_that_hung_up_is_the_end(fds: Fds) -> None:
    terminal, user = os.openpty()
    fds.adopt(terminal, user)
    shared = fds.dup(user)
    reader = fds.reader(user)
    assert os.get_blocking(shared)
    os.write(terminal, b"typed\n")
    with anyio.fail_after(5):
        assert await reader.read() == b"typed\n"
        fds.close(terminal)
        assert await reader.read() == b""


async def test_a_reset_connection_is_the_end(fds: Fds) -> None:
    ours, theirs = socket.socketpair()
    fds.adopt(ours.detach())
    fd = fds._made[-1]
    reader = fds.reader(fd)
    os.write(fd, b"never read")
    theirs.close()
    with anyio.fail_after(5):
        assert await reader.read() == b""


async def test_a_fault_that_is_no_end_is_raised(fds: Fds, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    fds.adopt(folder)
    reader = fds.reader(folder)
    with anyio.fail_after(5), pytest.raises(IsADirectoryError):
        await reader.read()


# -- whose description it is


@pytest.mark.parametrize("end", [0, 1])
async def test_a_pipe_that_others_share_stays_blocking_for_them(fds: Fds, end: int) -> None:
    ends = fds.pipe()
    shared = fds.dup(ends[end])
    (fds.reader if end == 0 else fds.writer)(ends[end])
    assert os.get_blocking(shared)


@pytest.mark.parametrize("make", ["reader", "writer"])
async def test_a_shared_socket_is_set_back_to_blocking_when_closed(fds: Fds, make: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        fd = ours.detach()
        fds.adopt(fd)
        shared = fds.dup(fd)
        end: Reader | Writer = fds.reader(fd) if make == "reader" else fds.writer(fd)
        assert not os.get_blocking(shared)
        end.close()
        assert os.get_blocking(shared)
        end.close()


async def test_a_descriptor_that_was_non_blocking_is_left_so(fds: Fds) -> None:
    r, _ = fds.pipe()
    os.set_blocking(r, False)
    shared = fds.dup(r)
    fds.reader(r).close()
    assert not os.get_blocking(shared)


async def test_a_writer_whose_reader_is_gone_already_is_made_and_found_broken(fds: Fds) -> None:
    r, w = fds.pipe()
    fds.close(r)
    writer = fds.writer(w)
    writer.write(b"x")
    assert writer.broken
    assert writer.pending == 0


def test_closing_needs_no_event_loop(fds: Fds) -> None:
    r, w = fds.pipe()
    fds.reader(r).close()
    fds.writer(w).close()


async def test_the_other_end_sees_the_close(fds: Fds) -> None:
    r, w = fds.pipe()
    writer = fds.writer(w)
    writer.close()
    assert os.read(r, 1) == b""


async def test_what_is_redirected_to_a_file_is_added_where_the_file_stands(
    fds: Fds, tmp_path: Path
) -> None:
    fd = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)
    fds.adopt(fd)
    os.write(fd, b"before ")
    writer = fds.writer(fd)
    writer.write(b"one ")
    writer.write(b"two")
    with anyio.fail_after(5):
        assert await writer.flush(5)
    assert (tmp_path / "output").read_bytes() == b"before one two"


# -- writing


async def test_a_lone_message_is_out_before_anything_is_awaited(fds: Fds) -> None:
    r, w = fds.pipe()
    reader, writer = fds.reader(r), fds.writer(w)
    os.set_blocking(reader._descriptor.fd, False)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            for _ in range(3):
                await anyio.wait_all_tasks_blocked()
                writer.write(b"now")
                assert writer.pending == 0
                assert os.read(reader._descriptor.fd, 100) == b"now"
            tasks.cancel_scope.cancel()


async def test_a_burst_is_joined_into_one_write_after_the_first(fds: Fds) -> None:
    # A SEQPACKET socket keeps the writes apart.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = ours.detach()
    fds.adopt(fd)
    with theirs, anyio.fail_after(5):
        writer = fds.writer(fd)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            await anyio.wait_all_tasks_blocked()
            for piece in (b"a", b"b", b"c", b"d"):
                writer.write(piece)
            assert writer.pending == 3
            await anyio.wait_all_tasks_blocked()
            assert [theirs.recv(100), theirs.recv(100)] == [b"a", b"bcd"]
            tasks.cancel_scope.cancel()


@pytest.mark.hazard("P5")
async def test_ten_megabytes_go_through_a_small_pipe_in_order(fds: Fds) -> None:
    r, w = fds.pipe()
    reader, writer = fds.reader(r), fds.writer(w)
    data = b"".join(b"%07d\n" % number for number in range(10 * MEGABYTE // 8))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.write(data)
            writer.write(b"end")
            assert await read_exactly(reader, len(data) + 3) == data + b"end"
            assert await writer.flush(5)
            tasks.cancel_scope.cancel()


@pytest.mark.hazard("P6")
async def test_writing_never_waits_for_a_reader_that_does_not_read(fds: Fds) -> None:
    r, w = fds.pipe()
    taken = fill(w)
    writer = fds.writer(w)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            await anyio.wait_all_tasks_blocked()
            for _ in range(100):
                writer.write(b"x" * 10_000)
                await anyio.lowlevel.checkpoint()
            assert writer.pending == 1_000_000
            reader = fds.reader(r)
            assert len(await read_exactly(reader, taken + 1_000_000)) == taken + 1_000_000
            tasks.cancel_scope.cancel()


async def test_a_producer_waits_until_little_enough_is_pending(fds: Fds) -> None:
    r, w = fds.pipe()
    reader, writer = fds.reader(r), fds.writer(w)
    drained = anyio.Event()

    async def produce() -> None:
        await writer.drain_below(MEGABYTE)
        assert writer.pending < MEGABYTE
        drained.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.write(b"x" * 2 * MEGABYTE)
            await writer.drain_below(3 * MEGABYTE)
            tasks.start_soon(produce)
            await anyio.wait_all_tasks_blocked()
            assert not drained.is_set()
            while not drained.is_set():
                await reader.read()
            assert writer.pending > 0
            tasks.cancel_scope.cancel()


async def test_flushing_a_full_pipe_ends_in_time_and_says_so(fds: Fds) -> None:
    _, w = fds.pipe()
    fill(w)
    writer = fds.writer(w)
    writer.write(b"x")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            assert not await writer.flush(0.01)
            tasks.cancel_scope.cancel()
        assert not await writer.flush(0.01)
    assert writer.pending == 1


async def test_flushing_works_when_the_flusher_was_cancelled_before(fds: Fds) -> None:
    r, w = fds.pipe()
    taken = fill(w)
    reader, writer = fds.reader(r), fds.writer(w)
    writer.write(b"last words")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):  # none may stand in another's way
                tasks.start_soon(writer.drain_below, 1)
            data = await read_exactly(reader, taken + 10)
    assert data.endswith(b"last words")


async def test_a_reader_that_goes_away_breaks_the_writer_and_its_owner_is_told(fds: Fds) -> None:
    r, w = fds.pipe()
    fill(w)
    told: list[str] = []
    writer = fds.writer(w, on_broken=lambda: told.append("broken"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.write(b"x" * 2 * MEGABYTE)
            tasks.start_soon(writer.drain_below, 1)
            await anyio.wait_all_tasks_blocked()
            fds.close(r)
        assert not await writer.flush(5)
    assert told == ["broken"]
    assert writer.broken
    writer.write(b"dropped")
    assert writer.pending == 0


async def test_a_lone_write_to_a_reader_that_is_gone_tells_the_owner_too(fds: Fds) -> None:
    r, w = fds.pipe()
    told: list[str] = []
    writer = fds.writer(w, on_broken=lambda: told.append("broken"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            await anyio.wait_all_tasks_blocked()
            fds.close(r)
            writer.write(b"x")
            assert told == []  # never from inside of write
    assert told == ["broken"]


async def test_closing_releases_everybody_who_waits_and_is_no_break(fds: Fds) -> None:
    _, w = fds.pipe()
    fill(w)
    told: list[str] = []
    writer = fds.writer(w, on_broken=lambda: told.append("broken"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.write(b"x" * MEGABYTE)
            tasks.start_soon(writer.drain_below, 1)
            await anyio.wait_all_tasks_blocked()
            writer.close()
    assert told == []
    writer.write(b"dropped")
    assert writer.pending == 0


async def test_a_full_disk_behind_stdout_breaks_the_writer(fds: Fds) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    fds.adopt(full)
    writer = fds.writer(full)
    writer.write(b"x")
    assert writer.broken


# -- claiming


@pytest.fixture
def standard() -> Iterator[None]:
    """Give descriptors 0, 1 and 2 back as they were."""
    kept = [os.dup(fd) for fd in (0, 1, 2)]
    yield
    for fd, copy in enumerate(kept):
        os.dup2(copy, fd)
        os.close(copy)


def put(fd: int, standard_fd: int) -> None:
    os.dup2(fd, standard_fd)


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.hazard("P4")
@pytest.mark.usefixtures("standard")
def test_stray_prints_land_on_stderr_and_the_protocol_keeps_its_pipes(fds: Fds) -> None:
    in_r, in_w = fds.pipe()
    out_r, out_w = fds.pipe()
    err_r, err_w = fds.pipe()
    for end, fd in ((in_r, 0), (out_w, 1), (err_w, 2)):
        put(end, fd)
    claimed_in, claimed_out = claim_stdio()
    fds.adopt(claimed_in, claimed_out)
    os.write(1, b"stray")
    os.write(claimed_out, b"protocol")
    os.write(in_w, b"request")
    assert os.read(err_r, 100) == b"stray"
    assert os.read(out_r, 100) == b"protocol"
    assert os.read(claimed_in, 100) == b"request"
    assert os.read(0, 100) == b""


@pytest.mark.hazard("P4")
@pytest.mark.usefixtures("standard")
def test_children_inherit_the_harmless_descriptors_only(fds: Fds) -> None:
    claimed = claim_stdio()
    fds.adopt(*claimed)
    assert min(claimed) > 2
    assert [os.get_inheritable(fd) for fd in (*claimed, 0, 1, 2)] == [False] * 2 + [True] * 3


@pytest.mark.parametrize(("fd", "name"), [(0, "standard input"), (1, "standard output")])
@pytest.mark.usefixtures("standard")
def test_a_closed_stream_is_a_clear_error_and_leaks_nothing(fd: int, name: str) -> None:
    os.close(fd)
    before = open_fds()
    with pytest.raises(OSError, match=f"{name} is closed") as raised:
        claim_stdio()
    assert raised.value.errno == errno.EBADF
    assert open_fds() == before


@pytest.mark.hazard("P4")
@pytest.mark.usefixtures("standard")
def test_without_stderr_stray_prints_go_nowhere_and_no_file_takes_its_place(
    fds: Fds, tmp_path: Path
) -> None:
    out_r, out_w = fds.pipe()
    put(out_w, 1)
    os.close(2)
    claimed = claim_stdio()
    fds.adopt(*claimed)
    with (tmp_path / "database").open("wb") as file:
        assert file.fileno() > 2
    os.write(1, b"stray")
    os.write(2, b"stray")
    assert stat.S_ISCHR(os.fstat(2).st_mode)
    os.write(claimed[1], b"protocol")
    assert os.read(out_r, 100) == b"protocol"
