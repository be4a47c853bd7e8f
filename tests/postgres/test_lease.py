"""What a bridge does when its lease was found over, or another one has a session of its."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from acp_bridge.core.journal import Journal, JournalError, SessionJournal, SessionTaken
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres.files import opened
from acp_bridge.postgres.lease import Lease
from tests.support.waiting import until

#: seconds; with the longer one no renewal comes in the time of a test.
SHORT, LONG = 15, 300
OVER = "UPDATE acp_bridge.bridges SET until = clock_timestamp()"
#: one row for each session, and whether its owner's lease is not over.
OWNED = (
    "SELECT coalesce(until > clock_timestamp(), false) FROM acp_bridge.sessions"
    " LEFT JOIN acp_bridge.bridges USING (owner)"
)


class Base:
    """The database, as somebody else uses it."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url.conninfo, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def base(database: DatabaseUrl) -> Base:
    return Base(database)


@asynccontextmanager
async def bridge(
    url: DatabaseUrl, home: Path, lease: float, happened: list[object] | None = None
) -> AsyncIterator[Journal]:
    """A bridge's journal; each new deadline of its guards is added to `happened`."""
    happened = [] if happened is None else happened
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            async with opened(url, home, lease, tasks, happened.append) as journal:
                yield journal
                await journal.close()
            tasks.cancel_scope.cancel()


async def made(journal: Journal, name: str = "s") -> SessionJournal:
    session = await journal.create(name, cwd="/x", agent="a")
    await session.sync()
    return session


async def is_true(look: Any) -> None:
    await until(look, 12)


@pytest.mark.hazard("N3.9")
@pytest.mark.parametrize(
    "takes",
    [
        "UPDATE acp_bridge.sessions SET owner = 'another', fence = fence + 1",
        "UPDATE acp_bridge.sessions SET owner = NULL",
        "UPDATE acp_bridge.sessions SET deleted = true",
        "DELETE FROM acp_bridge.sessions",
    ],
)
async def test_a_bridge_that_writes_nothing_learns_that_a_session_is_not_its_own(
    database: DatabaseUrl, tmp_path: Path, base: Base, takes: str
) -> None:
    async with bridge(database, tmp_path, LONG) as journal:
        session, told = await made(journal), list[JournalError | None]()
        session.on_back = told.append
        base.execute(takes)
        await is_true(lambda: told)
        assert [type(each) for each in told] == [SessionTaken]
        with pytest.raises(SessionTaken):
            session.accept("id", {"prompt": []})
        with pytest.raises(SessionTaken):
            session.look()


@pytest.mark.hazard("N3.11")
async def test_each_open_session_is_taken_again_when_the_lease_was_found_over(
    database: DatabaseUrl, tmp_path: Path, base: Base
) -> None:
    async with bridge(database, tmp_path, SHORT) as journal:
        names, told = ("s", "t", "u"), list[str]()
        for name in names:
            session = await made(journal, name)
            session.on_back = partial(lambda name, lost: told.append(name), name)
        base.execute(f"{OVER}; UPDATE acp_bridge.sessions SET owner = 'x' WHERE session_id = 't'")
        await is_true(lambda: sorted(base.execute(OWNED)) == [(False,), (True,), (True,)])
        assert told == ["t"]
        assert base.execute("SELECT count(*) FROM acp_bridge.bridges") == [(2,)]


@pytest.mark.hazard("N3.11", "P1")
async def test_guards_get_no_later_deadline_before_it_is_known_who_has_each_session(
    database: DatabaseUrl, tmp_path: Path, base: Base
) -> None:
    happened = list[object]()
    async with bridge(database, tmp_path, SHORT, happened) as journal:
        session = await made(journal)
        session.on_back = lambda lost: happened.append("lost")
        with psycopg.connect(database.conninfo) as another:
            another.execute("SELECT 1 FROM acp_bridge.sessions FOR UPDATE")
            base.execute(OVER)
            before = len(happened)
            await is_true(lambda: base.execute("SELECT 1 FROM acp_bridge.bridges OFFSET 1"))
            another.execute("UPDATE acp_bridge.sessions SET owner = 'another'")
            assert happened[before:] == []
        await is_true(lambda: len(happened) > before + 1)
        assert happened[before] == "lost"


@pytest.mark.hazard("N3", "R12")
@pytest.mark.parametrize("again", [False, True])
async def test_a_closed_session_is_free_whatever_its_fence_has_become_meanwhile(
    database: DatabaseUrl, tmp_path: Path, base: Base, again: bool
) -> None:
    async with bridge(database, tmp_path, LONG) as journal:
        await made(journal)
        base.execute("UPDATE acp_bridge.sessions SET fence = fence + 1")  # whose answer was lost
        await journal.end("s")
        assert base.execute("SELECT owner FROM acp_bridge.sessions") == [(None,)]
        if again:
            await journal.open("s")
            assert base.execute(OWNED) == [(True,)]


@pytest.mark.hazard("N3")
async def test_a_claim_whose_answer_was_lost_keeps_no_session_from_others(
    database: DatabaseUrl, tmp_path: Path, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge(database, tmp_path, SHORT) as journal:
        await made(journal)
        await journal.end("s")
        claim = Lease._claim

        async def loses(lease: Lease, session_id: str) -> Any:
            await claim(lease, session_id)
            raise JournalError("lost")

        monkeypatch.setattr(Lease, "_claim", loses)
        with pytest.raises(JournalError):
            await journal.open("s")
        assert base.execute(OWNED) == [(True,)]
        await is_true(lambda: base.execute(OWNED) == [(False,)])
