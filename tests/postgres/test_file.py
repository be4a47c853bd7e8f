"""A session's writes while its database is away, and when it is there again."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import psycopg
import pytest
from psycopg.errors import DiskFull

from acp_bridge.core.journal import Journal, JournalError, SessionJournal
from acp_bridge.core.journal.errors import TAKEN, DatabaseAway
from acp_bridge.core.journal.reading import transcript
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import log
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.failures import failure
from acp_bridge.postgres.files import opened
from tests.support.waiting import until

SESSION = "s"
#: seconds of a lease of which half is soon over; a renewal still comes before that.
SHORT = 10


class Way:
    """The way of writes into the log, which can be cut and barred."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._put = log.put
        self.cut = False
        #: how often it was tried while it was cut.
        self.tried = 0
        #: what becomes of a write whose answer is lost.
        self.loses: Literal["nothing", "answers", "writes"] = "nothing"
        self.bar = anyio.Event()
        self.bar.set()
        self.waits = 0
        #: the disk of the database is.
        self.full = False
        #: what was to be put last.
        self.last: list[Any] = []
        monkeypatch.setattr(log, "put", self.put)
        monkeypatch.setattr(Database, "_kept", self.kept)

    async def kept(self, *_: Any) -> None:
        if self.cut:
            self.tried += 1
            raise DatabaseAway("cut")

    async def put(self, *args: Any, **how: Any) -> bool:
        _, *self.last = args
        if self.full:
            raise failure(DiskFull("full")) from DiskFull("full")
        if self.loses != "nothing":
            self.cut = True
            if self.loses == "answers":
                assert await self._put(*args, **how)
            raise DatabaseAway("lost")
        self.waits += 1
        await self.bar.wait()
        self.waits -= 1
        return await self._put(*args, **how)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    return Way(monkeypatch)


@asynccontextmanager
async def bridge(
    url: DatabaseUrl, home: Path, lease: float = 60, memories: Path | None = None
) -> AsyncIterator[Journal]:
    def follow(until: float | None) -> None:
        pass

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            async with opened(url, home, lease, tasks, follow, memories) as journal:
                yield journal
                await journal.close()
            tasks.cancel_scope.cancel()


async def began(journal: Journal) -> SessionJournal:
    """A session with one prompt, whose turn has begun."""
    session = await journal.create(SESSION, cwd="/x", agent="a")
    await session.sync()
    return session


def says(text: str) -> bytes:
    """What the agent says, as the journal records it."""
    head = '{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":'
    return f'{head}"{text}"}}}}}}'.encode()


async def said(url: DatabaseUrl, home: Path) -> str:
    """What the session says on another machine."""
    async with bridge(url, home) as journal:
        await journal.open(SESSION)
        return said_in(home)


def said_in(home: Path) -> str:
    """What its copy in a data folder says."""
    (copies,) = home.glob("databases/*")
    return "".join(each["update"]["content"]["text"] for each in transcript(copies, SESSION))


async def is_true(look: Callable[[], object]) -> None:
    await until(look, 10)


async def test_what_is_said_while_what_was_kept_is_made_is_made_too(
    database: DatabaseUrl, tmp_path: Path, way: Way
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        session.record(1, says("one "))
        await is_true(lambda: not session.in_flight)
        way.cut = True
        session.record(1, says("two "))
        await is_true(lambda: session.behind)
        way.cut, way.bar = False, anyio.Event()
        await is_true(lambda: way.waits)
        session.record(1, says("three "))
        way.bar.set()
        await is_true(lambda: not session.behind)
        session.record(1, says("four "))
        await session.sync()
    assert await said(database, tmp_path / "there") == "one two three four "


async def test_each_write_that_is_on_its_way_is_told_of_once(
    database: DatabaseUrl, tmp_path: Path
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session, told = await began(journal), list[bool]()
        session.on_late = lambda: told.append(session.in_flight)
        seq = session.accept("id", {"prompt": []})
        session.start_turn(seq)
        session.record(seq, says("one "))
        assert told == [True, True, True]
        await session.sync()


async def test_a_write_that_has_no_answer_holds_nothing_up_and_is_made_once_when_it_has(
    database: DatabaseUrl, tmp_path: Path, way: Way
) -> None:
    async with bridge(database, tmp_path / "here", SHORT) as journal:
        session = await began(journal)
        way.bar = anyio.Event()
        session.record(1, says("one "))
        await is_true(lambda: way.waits)
        way.cut = True
        session.record(1, says("two "))
        await is_true(lambda: session.behind)
        assert not session.in_flight
        with pytest.raises(JournalError):
            session.accept("id", {"prompt": []})
        session.record(1, says("three "))
        way.cut = False
        way.bar.set()
        await is_true(lambda: not session.behind)
        session.record(1, says("four "))
        await session.sync()
    assert said_in(tmp_path / "here") == "one two three four "
    assert await said(database, tmp_path / "there") == "one two three four "


@pytest.mark.parametrize("loses", ["answers", "writes"])
async def test_a_write_whose_answer_was_lost_past_the_lease_is_looked_up_and_made_once(
    database: DatabaseUrl, tmp_path: Path, way: Way, loses: Literal["answers", "writes"]
) -> None:
    async with bridge(database, tmp_path / "here", SHORT) as journal:
        session = await began(journal)
        way.loses = loses
        session.record(1, says("one "))
        await is_true(lambda: session.behind)
        session.record(1, says("two "))
        way.loses, way.cut = "nothing", False
        await is_true(lambda: not session.behind)
        session.record(1, says("three "))
        await session.sync()
    assert said_in(tmp_path / "here") == "one two three "
    assert await said(database, tmp_path / "there") == "one two three "


async def test_a_prompt_is_refused_in_time_while_another_locks_the_table_and_the_lease_holds(
    database: DatabaseUrl, tmp_path: Path
) -> None:
    async with bridge(database, tmp_path / "here", SHORT) as journal:
        session = await began(journal)
        with psycopg.connect(database.conninfo) as other:
            other.execute("LOCK TABLE acp_bridge.sessions")
            session.accept("id", {"prompt": []})
            with anyio.fail_after(20), pytest.raises(DatabaseAway):
                await session.sync()
            session.record(1, says("one "))
        await is_true(lambda: not session.behind)
        await session.sync()
    assert await said(database, tmp_path / "there") == "one "


async def test_a_statement_that_comes_after_its_write_was_looked_up_changes_nothing(
    database: DatabaseUrl, tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, came = log.fence, []

    async def then_it_comes(connection: log.Connection, *args: Any) -> Any:
        found = await fence(connection, *args)
        way.loses = "nothing"
        came.append(await way.put(connection, *late, sure=False, prompted=False))
        return found

    monkeypatch.setattr(log, "fence", then_it_comes)
    async with bridge(database, tmp_path / "here", SHORT) as journal:
        session = await began(journal)
        way.loses = "writes"
        session.record(1, says("one "))
        await is_true(lambda: session.behind)
        late, way.cut = way.last, False
        await is_true(lambda: not session.behind)
    assert came == [False]
    assert await said(database, tmp_path / "there") == "one "


async def test_what_the_database_refuses_for_want_of_room_is_kept_at_once(
    database: DatabaseUrl, tmp_path: Path, way: Way
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        way.full = True
        session.record(1, says("one "))
        await is_true(lambda: session.behind)
        way.full = False
        await is_true(lambda: not session.behind)
    assert await said(database, tmp_path / "there") == "one "


async def test_a_prompt_whose_answer_was_lost_is_told_of_once_a_later_commit_is_on_all_disks(
    database: DatabaseUrl, tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, asked, go_on = log.fence, anyio.Event(), anyio.Event()

    async def waits_for_copies(*args: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await fence(*args)

    monkeypatch.setattr(log, "fence", waits_for_copies)
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        way.loses = "answers"
        session.accept("id", {"prompt": []})
        told: list[JournalError | None] = []
        session.then(told.append)
        await is_true(lambda: way.cut)
        way.loses, way.cut = "nothing", False
        await asked.wait()
        assert told == []
        go_on.set()
        await is_true(lambda: told)
        assert told == [None]


async def test_who_had_a_write_refused_is_told_when_the_database_takes_writes_again(
    database: DatabaseUrl, tmp_path: Path, way: Way
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session, told = await began(journal), list[JournalError | None]()
        session.on_back = told.append
        way.cut = True
        session.accept("id", {"prompt": []})
        with pytest.raises(DatabaseAway):
            await session.sync()
        assert not session.behind  # there is nothing to be made up for
        await is_true(lambda: way.tried > 1)
        way.cut = False
        await is_true(lambda: told)
        assert session.accept("id", {"prompt": []})
        await session.sync()
    assert told == [None]


async def test_it_is_told_after_what_was_kept_is_made(
    database: DatabaseUrl, tmp_path: Path, way: Way
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session, behind = await began(journal), list[bool]()
        session.on_back = lambda lost: behind.append(session.behind)
        way.cut = True
        session.record(1, says("one "))
        await is_true(lambda: session.behind)
        with pytest.raises(DatabaseAway):
            session.accept("id", {"prompt": []})
        way.cut = False
        await is_true(lambda: behind)
    assert behind == [False]


async def test_who_waits_for_the_database_is_told_that_another_has_the_session(
    database: DatabaseUrl, tmp_path: Path, way: Way
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session, told = await began(journal), list[JournalError | None]()
        session.on_back = told.append
        way.cut = True
        session.accept("id", {"prompt": []})
        await is_true(lambda: not session.in_flight)
        way.cut = False
        with psycopg.connect(database.conninfo, autocommit=True) as connection:
            connection.execute("UPDATE acp_bridge.sessions SET owner = 'another'")
        await is_true(lambda: told)
    assert [str(lost) for lost in told] == [TAKEN]


@pytest.mark.hazard("N4")
@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_copy_that_lacks_some_of_an_agents_memory_is_given_all_of_it(
    database: DatabaseUrl, tmp_path: Path, goes_on: bool
) -> None:
    own, elsewhere = (tmp_path / name / "s.jsonl" for name in ("own", "elsewhere"))
    own.parent.mkdir()

    async def turn(session: SessionJournal, text: str) -> None:
        seq = session.accept(text, {"prompt": []})
        session.start_turn(seq)
        with own.open("a") as file:
            file.write(text)
        session.end_prompt(seq, {}, None)
        await session.sync()

    async with bridge(database, tmp_path / "here", memories=own.parent) as journal:
        session = await journal.create(SESSION, cwd="/x", agent="a", agent_session_id="s")
        await turn(session, "one ")
        await turn(session, "two ")
        with psycopg.connect(database.conninfo, autocommit=True) as copy:
            copy.execute("DELETE FROM acp_bridge.memories WHERE at > 0")
            if not goes_on:
                copy.execute("DELETE FROM acp_bridge.writes WHERE n > 3")
                copy.execute("UPDATE acp_bridge.sessions SET applied = 3")
        if goes_on:
            await turn(session, "three ")
        else:
            session.record(0, says("three "))
            await is_true(lambda: not session.in_flight)
    async with bridge(database, tmp_path / "there", memories=elsewhere.parent) as journal:
        await journal.open(SESSION)
        assert elsewhere.read_text() == own.read_text()
