"""fsync: off the event loop, shared, and never reported before it is done."""

import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.journal import Journal, JournalError, SessionJournal
from acp_bridge.core.journal import file as file_module
from acp_bridge.core.journal.connection import WAL_LIMIT_BYTES, connect, in_thread
from tests.core.journal import files
from tests.core.journal.conftest import SESSION
from tests.core.journal.files import inode, size, tree
from tests.core.journal.sayings import chunk, lines, transcript


class Disk:
    """Does fsync, but lets each one wait to be let through, and notes the size of the WAL."""

    def __init__(self, session: SessionJournal) -> None:
        self._session = session
        self.began: list[int] = []
        self.ended = 0
        self.threads: set[int] = set()
        self._through = threading.Semaphore(0)
        self._begun = threading.Semaphore(0)

    def sync(self, descriptor: int) -> None:
        self.threads.add(threading.get_ident())
        self.began.append(os.fstat(descriptor).st_size)
        self._begun.release()
        assert self._through.acquire(timeout=5)
        os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)
        self.ended += 1

    def let_through(self, count: int = 1) -> None:
        for _ in range(count):
            self._through.release()

    async def begun(self) -> None:
        assert await anyio.to_thread.run_sync(lambda: self._begun.acquire(timeout=5))


@pytest.fixture
def disk(session: SessionJournal, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(session)
    monkeypatch.setattr(file_module, "sync_file", disk.sync)
    return disk


@pytest.fixture
def wal(journal: Journal) -> Path:
    return files.wal(journal.path(SESSION))


@pytest.mark.hazard("K1.1")
async def test_sync_returns_only_after_an_fsync_that_began_after_the_write(
    session: SessionJournal, disk: Disk, wal: Path
) -> None:
    done: list[str] = []

    async def accept(prompt_id: str) -> None:
        session.accept(prompt_id, {})
        await session.sync()
        done.append(prompt_id)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept, "first")
            await disk.begun()
            tasks.start_soon(accept, "during 1")
            tasks.start_soon(accept, "during 2")
            await anyio.wait_all_tasks_blocked()
            assert done == []
            disk.let_through()
            await disk.begun()
            assert done == ["first"]
            assert disk.began[1] == size(wal) > disk.began[0]
            disk.let_through()
    assert done == ["first", "during 1", "during 2"]
    assert disk.ended == 2  # the two that came during the first fsync shared the second


async def test_nothing_new_to_sync_costs_no_fsync(session: SessionJournal, disk: Disk) -> None:
    session.accept("id", {})
    disk.let_through(5)
    with anyio.fail_after(5):
        for _ in range(3):
            await session.sync()
    assert disk.ended == 1


async def test_the_event_loop_goes_on_during_an_fsync(session: SessionJournal, disk: Disk) -> None:
    session.accept("id", {})
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.sync)
            await disk.begun()
            session.record(1, lines(chunk("meanwhile")))
            assert await transcript(session) == [chunk("meanwhile")]
            disk.let_through()
    assert threading.get_ident() not in disk.threads


async def test_a_cancelled_sync_keeps_nobody_else_waiting(
    session: SessionJournal, disk: Disk
) -> None:
    session.accept("id", {})
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            cancelled = anyio.CancelScope()

            async def sync_in_scope() -> None:
                with cancelled:
                    await session.sync()

            tasks.start_soon(sync_in_scope)
            await disk.begun()
            tasks.start_soon(session.sync)
            cancelled.cancel()
            disk.let_through(2)
    assert disk.ended >= 1


async def test_after_a_failed_fsync_none_is_believed(
    session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    session.accept("id", {})
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "sync_file", fail)
        with pytest.raises(JournalError):
            await session.sync()
    with pytest.raises(JournalError):
        await session.sync()
    session.record(1, lines(chunk("still")))
    assert await transcript(session) == [chunk("still")]


@pytest.mark.hazard("K1", "Q13")
async def test_after_a_failed_fsync_a_checkpoint_makes_the_next_ones_believed(
    journal: Journal, session: SessionJournal, wal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    session.accept("id", {})
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "sync_file", fail)
        with pytest.raises(JournalError):
            await session.sync()
    assert session.broken
    path = journal.path(SESSION)
    with closing(sqlite3.connect(path)) as reader:  # it holds up the checkpoint
        reader.execute("BEGIN").close()
        reader.execute("SELECT count(*) FROM updates").fetchone()
        session.record(1, lines(chunk("later")))
        await session.checkpoint()
        assert session.broken
        with pytest.raises(JournalError):
            await session.sync()
    await session.checkpoint()
    assert not session.broken
    await session.sync()
    alone = path.with_name("alone.db")
    alone.write_bytes(path.read_bytes())  # all is in the file itself
    with closing(sqlite3.connect(alone)) as copy:
        assert copy.execute("SELECT prompt_id FROM prompts").fetchall() == [("id",)]
    session.accept("next", {})
    await session.sync()


async def test_a_checkpoint_starts_the_wal_again_in_the_same_file(
    session: SessionJournal, wal: Path
) -> None:
    text = "x" * 1000
    count = 0
    while size(wal) <= WAL_LIMIT_BYTES + 500_000:
        session.record(1, lines(chunk(text, f"m{count}")))
        count += 1
    before = inode(wal)
    await session.checkpoint()
    assert size(wal) <= WAL_LIMIT_BYTES  # begun again already, not by the next write on the loop
    session.record(1, lines(chunk("after")))
    assert inode(wal) == before == os.fstat(session._file._wal).st_ino
    assert len(await transcript(session)) == count + 1


async def test_what_one_pass_of_a_checkpoint_leaves_is_copied_by_the_next_one(
    session: SessionJournal, wal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wal.with_name(wal.name.removesuffix("-wal"))
    with closing(sqlite3.connect(path, check_same_thread=False)) as reader:

        class Connected:
            """Lets the reader end behind the first pass, which could not copy what it lacks."""

            def __init__(self, path: Path, *, wait: float) -> None:
                self._real = connect(path, wait=wait)
                self.close = self._real.close

            def execute(self, statement: str) -> sqlite3.Cursor:
                rows = self._real.execute(statement)
                if "checkpoint" in statement:
                    reader.rollback()
                return rows

        monkeypatch.setattr(file_module, "connect", Connected)
        session.record(1, lines(chunk("before")))
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM prompts").fetchall()
        while size(wal) <= WAL_LIMIT_BYTES + 500_000:
            session.record(1, lines(chunk("x" * 100_000)))
        await session.checkpoint()
    assert size(wal) <= WAL_LIMIT_BYTES


async def test_a_short_wal_is_not_worth_a_checkpoint(
    journal: Journal, session: SessionJournal
) -> None:
    session.record(1, lines(chunk("x")))
    before = journal.path(SESSION).read_bytes()
    await session.checkpoint()
    assert journal.path(SESSION).read_bytes() == before


async def test_a_closed_journal_refuses_and_closing_again_is_fine(
    session: SessionJournal, wal: Path
) -> None:
    session.record(1, lines(chunk("x")))
    await session.close()
    await session.close()
    assert wal not in tree(wal.parent)
    with pytest.raises(JournalError):
        session.record(1, lines(chunk("y")))
    with pytest.raises(JournalError):
        await session.sync()
    await session.checkpoint()
    await session.compact(1)


async def test_close_waits_for_a_running_fsync(session: SessionJournal, disk: Disk) -> None:
    session.accept("id", {})
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.sync)
            await disk.begun()
            tasks.start_soon(session.close)
            await anyio.wait_all_tasks_blocked()
            assert not session.closed
            disk.let_through()
    assert session.closed


@pytest.mark.hazard("P6")
async def test_a_journal_that_is_being_closed_refuses_and_its_connection_is_not_touched(
    session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A connection that one thread uses while another closes it crashes the process.
    closing, may_close = anyio.Event(), anyio.Event()

    async def slow(work: Callable[..., object], *args: object) -> object:
        closing.set()
        await may_close.wait()
        return await in_thread(work, *args)

    session.record(1, lines(chunk("x")))
    monkeypatch.setattr(file_module, "in_thread", slow)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.close)
            await closing.wait()
            uses: dict[str, Callable[[], object]] = {
                "get": lambda: session.get("key"),
                "set": lambda: session.set("key", 1),
                "record": lambda: session.record(1, lines(chunk("y"))),
                "accept": lambda: session.accept("id", {}),
                "prompts": lambda: session.prompts(),
                "add_ids": lambda: session.add_ids(["id"]),
                "used_ids": lambda: session.used_ids(),
                "change_info": lambda: session.change_info(title="t"),
            }
            taken = [name for name, use in uses.items() if not refuses(use)]
            may_close.set()
    assert taken == []


def refuses(use: Callable[[], object]) -> bool:
    try:
        use()
    except JournalError:
        return True
    return False
