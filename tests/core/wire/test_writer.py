"""Writing to real descriptors: never waiting, in order, and knowing when nobody reads."""

from __future__ import annotations

import os
import socket
from array import array

import anyio
import pytest

from tests.core.wire.descriptors import Fds, fds, fill, read_exactly

__all__ = ["fds"]
MEGABYTE = 1 << 20


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
    data = array("Q", range(10 * MEGABYTE // 8)).tobytes()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.write(data)
            writer.write(b"end")
            assert await read_exactly(reader, len(data) + 3) == data + b"end"
            assert await writer.flush(5)
            assert writer.taken == len(data) + 3
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
