"""Errors of the database, whatever they are: but for the word that another has the session, it is
away, and nothing is lost or made twice."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest

from acp_bridge.core.journal import JournalError, SessionJournal
from acp_bridge.core.journal.errors import DatabaseAway
from acp_bridge.core.journal.file import Statement
from acp_bridge.core.runtime import waits
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.core.wire.jsonrpc import loads
from acp_bridge.postgres import log
from tests.postgres.test_file import SHORT, began, bridge, is_true, said, said_in, says
from tests.support.faults import STATES, Faults, drawn


@pytest.fixture(autouse=True)
def tries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "JOURNAL_RETRY", 0.05)


async def told(session: SessionJournal, key: str) -> JournalError | None:
    """What becomes of a prompt that is accepted now: the error, if it is refused."""
    said: list[JournalError | None] = []
    session.accept(key, {"prompt": []})
    session.then(said.append)
    await is_true(lambda: said)
    return said[0]


@pytest.mark.hazard("N4", "Q13")
async def test_no_error_of_one_statement_loses_a_session_or_a_word(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session, lost = await began(journal), list[JournalError]()
        session.on_back = lambda error: lost.append(error) if error else None
        faults = Faults(database_url)
        for state in STATES:
            faults.arm(state, few=1)
            session.record(0, says(f"{state} "))
            await is_true(lambda: faults.raised and not session.in_flight and not session.behind)
            faults.over()
        assert lost == []
        await session.sync()
    assert await said(database, tmp_path / "there") == "".join(f"{each} " for each in STATES)


@pytest.mark.hazard("N4", "K1")
async def test_a_prompt_that_any_error_refuses_is_told_so_and_may_be_accepted_later(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    async with bridge(database, tmp_path / "here", SHORT) as journal:
        session, back = await began(journal), list[JournalError | None]()
        session.on_back = back.append
        faults = Faults(database_url)
        for state in STATES:
            with faults.lasting(state):
                refused = await told(session, state)
                assert isinstance(refused, DatabaseAway), state
                assert "secret" not in str(refused)
            await is_true(lambda: back)
            assert back == [None], state
            back.clear()
        for state in STATES:
            assert await told(session, state) is None


@pytest.mark.hazard("N4")
@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_prompt_that_the_database_asks_to_send_again_is_accepted(
    database: DatabaseUrl, database_url: str, tmp_path: Path, state: str
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        faults = Faults(database_url)
        faults.arm(state, few=5)
        assert await told(session, "one") is None
        assert faults.raised > 5


@pytest.mark.hazard("N4")
async def test_a_session_whose_log_is_longer_in_the_database_is_away_until_that_is_put_right(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    further = "UPDATE acp_bridge.sessions SET applied = applied"
    with psycopg.connect(database_url, autocommit=True) as other:
        async with bridge(database, tmp_path / "here") as journal:
            session = await began(journal)
            other.execute(f"{further} + 5".encode())
            assert isinstance(await told(session, "one"), DatabaseAway)
            session.record(0, says("two "))
            await is_true(lambda: session.behind)
            other.execute(f"{further} - 5".encode())
            await is_true(lambda: not session.behind)
            assert await told(session, "three") is None
    assert await said(database, tmp_path / "there") == "two "


@pytest.mark.hazard("N4", "Q13.1")
async def test_no_error_that_lasts_loses_a_word_and_what_waits_is_made_in_order(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    async with bridge(database, tmp_path / "here", SHORT) as journal:
        session = await began(journal)
        faults = Faults(database_url, leases=True)
        for state in drawn(12, seed=38):
            with faults.lasting(state):
                session.record(0, says(f"{state} "))
                await is_true(lambda: session.behind)
                session.record(0, says("and "))
            await is_true(lambda: not session.behind)
    words = "".join(f"{state} and " for state in drawn(12, seed=38))
    assert await said(database, tmp_path / "there") == words


async def test_what_a_database_refuses_for_what_it_holds_is_set_aside_and_all_else_is_made(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    poison = says("the poison ")
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        Faults(database_url).arm("22021", holding=poison.hex())
        session.record(1, says("one "))
        session.record(2, poison)
        session.record(3, says("three "))
        await is_true(lambda: session.behind)
        await is_true(lambda: not session.behind)
        session.record(3, says("four "))
        await session.sync()
    words = await said(database, tmp_path / "there")
    assert words.startswith("one ")
    assert words.endswith("three four ")
    assert "is missing here" in words
    assert "poison" not in words
    assert "the poison" in said_aside(tmp_path / "here")


async def test_a_prompt_that_the_database_refuses_for_what_it_holds_is_refused_alone(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session, told = await began(journal), dict[str, JournalError | None]()
        Faults(database_url).arm("54000", holding="poison")
        for key in ("one", "poison", "three"):
            session.accept(key, {"prompt": []})
            session.then(partial(told.__setitem__, key))
            session.record(0, says(f"{key} "))
        await is_true(lambda: len(told) == 3)
        assert [key for key, error in told.items() if error] == ["poison"]
        assert "the database refuses what is to be written" in str(told["poison"])
        await is_true(lambda: not session.behind)
    assert await said(database, tmp_path / "there") == "one poison three "


async def test_a_session_that_another_has_writes_all_that_follows_into_one_file(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session, lost = await began(journal), list[JournalError | None]()
        session.on_back = lost.append
        session.record(0, says("one "))
        await is_true(lambda: not session.in_flight)
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("UPDATE acp_bridge.sessions SET owner = 'another'")
        session.record(0, says("two "))
        await is_true(lambda: lost)
        for word in ("three ", "four "):
            session.record(0, says(word))
        with pytest.raises(JournalError, match="another machine"):
            session.accept("never", {"prompt": []})
        assert said_aside(tmp_path / "here") == "one two three four "
    assert len(lost) == 1
    assert await said(database, tmp_path / "there") == "one "


async def test_a_session_that_was_lost_is_given_back_if_the_database_says_that_it_is_ours(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(database_url, autocommit=True) as other:
        async with bridge(database, tmp_path / "here", 600) as journal:
            session, lost = await began(journal), list[JournalError | None]()
            session.on_back = lost.append
            (copy,) = (tmp_path / "here").glob("databases/*/sessions/*.db")
            copy.rename(copy.with_suffix(".moved"))
            session.record(0, says("one "))
            await is_true(lambda: lost)
            await session.close()
            assert other.execute("SELECT owner FROM acp_bridge.sessions").fetchone() == (None,)


async def test_a_copy_whose_disk_is_full_gets_what_it_lacks_when_there_is_room(
    database: DatabaseUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        full, make = True, log.make

        def made(copy: sqlite3.Connection, statements: Sequence[Statement]) -> sqlite3.Error | None:
            if full:
                error = sqlite3.OperationalError("full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            return make(copy, statements)

        monkeypatch.setattr(log, "make", made)
        session.record(0, says("one "))
        await is_true(lambda: session.behind)
        session.record(0, says("two "))
        full = False
        await is_true(lambda: not session.behind)
        session.record(0, says("three "))
        await is_true(lambda: not session.in_flight)
        assert said_in(tmp_path / "here") == "one two three "
    assert await said(database, tmp_path / "there") == "one two three "


@pytest.mark.parametrize(
    "name",
    [
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "statement_timeout = 1",
        "lock_timeout = 1",
        "idle_in_transaction_session_timeout = 1",
        "idle_session_timeout = 100",
        "array_nulls = off",
        "bytea_output = escape",
        "standard_conforming_strings = off",
        "synchronous_commit = off",
        "TimeZone = 'Asia/Kathmandu'",
        "DateStyle = 'SQL, DMY'",
        "search_path = nowhere",
    ],
)
async def test_what_a_role_or_database_has_set_changes_nothing(
    database: DatabaseUrl, database_url: str, tmp_path: Path, name: str
) -> None:
    of = database_url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute(f"ALTER DATABASE {of} SET {name}".encode())
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        for number in range(20):
            assert await told(session, str(number)) is None
            session.record(number, says(f"{number} "))
        await session.sync()
        assert not session.behind
    words = await said(database, tmp_path / "there")
    assert words == "".join(f"{number} " for number in range(20))


def said_aside(home: Path) -> str:
    """What the only file says that has what the database does not."""
    (file,) = home.glob("databases/*/sessions/*.lost-*")
    with closing(sqlite3.connect(file)) as aside:
        rows = aside.execute("SELECT lines FROM updates ORDER BY rowid").fetchall()
    lines = [loads(line) for (row,) in rows for line in row.split(b"\n")]
    return "".join(line["update"]["content"]["text"] for line in lines)
