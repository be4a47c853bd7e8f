"""Real descriptors: nothing blocks, nothing is lost, nothing shared is changed."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.wire.claim import claim_stdio
from acp_bridge.core.wire.stdio import Reader, Writer
from tests.core.wire.descriptors import Fds, fds

__all__ = ["fds"]
MEGABYTE = 1 << 20


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


@pytest.mark.hazard("P4.1")
@pytest.mark.usefixtures("standard")
def test_stray_prints_land_on_stderr_and_the_protocol_keeps_its_pipes(fds: Fds) -> None:
    in_r, in_w = fds.pipe()
    out_r, out_w = fds.pipe()
    err_r, err_w = fds.pipe()
    for end in (in_r, out_r, err_r):
        os.set_blocking(end, False)  # what is not there fails the test instead of holding it up
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
    os.set_blocking(out_r, False)
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
