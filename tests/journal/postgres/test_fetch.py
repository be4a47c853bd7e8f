"""A session goes from its file into a database and back, and is the same to the byte."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_bridge.journal import (
    Journal,
    JournalError,
    NewerVersion,
    SessionExists,
    SessionInfo,
    UnknownSession,
)
from acp_bridge.journal.connection import connect
from acp_bridge.journal.files import Draft, make_folders
from acp_bridge.journal.left_queue import Went, add
from acp_bridge.journal.postgres.connection import Database
from acp_bridge.journal.postgres.fetch import fetch, store, sum_of_database, sum_of_file
from acp_bridge.journal.postgres.rows import TABLES
from acp_bridge.settings import DatabaseUrl
from tests.journal.files import all_bytes, tree

SESSION = "3f2a" * 8
Rows = dict[str, list[Any]]

INFO = SessionInfo(SESSION, "/w", "an-agent", "at the agent", "Tïtle", "2026-11-27T10:00:00Z")
#: a row of each table that is as odd as it may be.
ODD: Rows = {
    "prompts": [(3, "p", "done", '{"a":1}', None), (7, "q", "held", None, '{ "b" : 2 }')],
    "prompt_params": [(3, '{"prompt":[],"ä":"\U0001f600"}'), (9, "no JSON")],
    "updates": [(2, 0, b""), (5, 3, b'{"a":"\\u0000"}\n{"b":1}'), (1 << 40, -1, bytes(range(256)))],
    "settings": [("order", "[7, 3]"), ("", " "), ('promptKey:"k"', '{"seq":3}')],
    "used_ids": [(b"\xff\x00",), (b"",), (b"tool" * 5000,)],
}


def made(path: Path, rows: Rows, info: SessionInfo = INFO) -> Path:
    """A session's file with these rows."""
    make_folders(path.parent.parent)
    draft = Draft(path)
    draft.insert(info, 4)
    for table in TABLES:
        draft.fill(table.insert, rows.get(table.name, []))
    draft.take_name()
    return path


def dumped(path: Path, nul: str = "\0") -> list[tuple[object, ...]]:
    """All that the tables of a session's file have, with this in the place of NUL."""
    names = ("session", *(table.name for table in TABLES))
    with closing(sqlite3.connect(path)) as db:
        rows = [row for name in names for row in db.execute(f"SELECT * FROM {name} ORDER BY 1")]
    return [tuple(v.replace("\0", nul) if isinstance(v, str) else v for v in row) for row in rows]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here" / "sessions" / "s.db"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "sessions" / "s.db"


@contextmanager
def bounded() -> Iterator[None]:
    with anyio.fail_after(60):
        yield


async def test_a_session_comes_back_to_the_byte(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    made(here, ODD)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await store(connection, here)
            assert await fetch(connection, SESSION, there) == INFO
            assert await sum_of_database(connection, SESSION) == sum_of_file(here)
    assert dumped(there) == dumped(here)
    assert tree(there.parent) == [there.parent, there]


async def test_a_session_of_the_journal_goes_on_in_the_file_that_was_fetched(
    database: DatabaseUrl, tmp_path: Path
) -> None:
    journal, later = Journal(tmp_path / "here"), Journal(tmp_path / "there")
    session = await journal.create(SESSION, cwd="/w", agent="an-agent", prompted=False)
    session.start_turn(session.accept("p", {"prompt": [{"type": "text", "text": "please"}]}))
    session.record(1, b'{"update":{"sessionUpdate":"plan","entries":[]}}')
    session.add_ids(["call-1"])
    session.end_prompt(1, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})
    await journal.touch(SESSION, title="please")
    await journal.close()
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await store(connection, journal.path(SESSION))
            await fetch(connection, SESSION, later.path(SESSION))
    session = await later.open(SESSION)
    assert [page async for page in session.replay()] == [
        page async for page in (await journal.open(SESSION)).replay()
    ]
    assert session.used_ids() == {"call-1"}
    assert session.accept("p2", {"prompt": []}) == 2
    await later.close()
    await journal.close()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEY = TEXT.filter(lambda text: "\0" not in text)
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.fixed_dictionaries(
    {
        "prompts": st.lists(
            st.tuples(
                WHOLE,
                st.uuids().map(str),
                st.sampled_from(["waiting", "held", "sent", "done"]),
                st.none() | TEXT,
                st.none() | TEXT,
            ),
            unique_by=(lambda row: row[0], lambda row: row[1]),
            max_size=5,
        ),
        "prompt_params": st.lists(st.tuples(WHOLE, TEXT), unique_by=lambda row: row[0], max_size=5),
        "updates": st.lists(
            st.tuples(WHOLE, WHOLE, st.binary(max_size=50)),
            unique_by=lambda row: row[0],
            max_size=9,
        ),
        "settings": st.lists(st.tuples(KEY, TEXT), unique_by=lambda row: row[0], max_size=5),
        "used_ids": st.lists(st.tuples(st.binary(max_size=20)), unique=True, max_size=5),
    }
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=ROWS, texts=st.tuples(*[TEXT] * 3), lacking=st.none() | TEXT, prompted=st.booleans())
def test_any_rows_come_back_the_same_but_for_nul(
    database: DatabaseUrl,
    tmp_path_factory: pytest.TempPathFactory,
    rows: Rows,
    texts: tuple[str, str, str],
    lacking: str | None,
    prompted: bool,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    cwd, agent, session_id = texts
    session_id = "s" + session_id.replace("\0", "")
    info = SessionInfo(session_id, cwd, agent, lacking, lacking, "2026", lacking, prompted)
    here = made(folder / "here" / "sessions" / "s.db", rows, info)
    there = folder / "there" / "sessions" / "s.db"

    async def there_and_back() -> str | None:
        with bounded():
            async with Database(database) as opened, opened.connection() as connection:
                await connection.execute("DELETE FROM acp_bridge.sessions")
                await store(connection, here)
                await fetch(connection, session_id, there)
                return await sum_of_database(connection, session_id)

    assert anyio.run(there_and_back) == sum_of_file(here) == sum_of_file(there)
    assert dumped(there) == dumped(here, "\ufffd")


async def test_rows_of_megabytes_come_in_pages(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    lines = [(number, 1, bytes([number]) * 900_000) for number in range(1, 9)]
    made(here, {"updates": lines, "used_ids": [(f"{n}".encode(),) for n in range(2500)]})
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await store(connection, here)
            await fetch(connection, SESSION, there)
    assert sum_of_file(there) == sum_of_file(here)


@pytest.mark.parametrize("table", [table.name for table in TABLES])
def test_any_row_that_differs_changes_the_sum(tmp_path: Path, table: str) -> None:
    whole = made(tmp_path / "one" / "sessions" / "s.db", ODD)
    less = made(tmp_path / "two" / "sessions" / "s.db", {**ODD, table: ODD[table][1:]})
    assert sum_of_file(whole) != sum_of_file(less)


async def test_a_session_is_stored_once_and_no_file_is_overwritten(
    database: DatabaseUrl, here: Path
) -> None:
    made(here, ODD)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await store(connection, here)
            with pytest.raises(SessionExists):
                await store(connection, here)
            with pytest.raises(SessionExists):
                await fetch(connection, SESSION, here)
            with pytest.raises(UnknownSession):
                await fetch(connection, "another", here)
            await connection.execute("UPDATE acp_bridge.sessions SET deleted = true")
            with pytest.raises(UnknownSession):
                await fetch(connection, SESSION, here)
            with pytest.raises(SessionExists):
                await store(connection, here)
            assert await sum_of_database(connection, SESSION) is None
    assert tree(here.parent) == [here.parent, here]


async def test_a_session_that_was_set_aside_is_made_anew_under_its_id(
    database: DatabaseUrl, here: Path
) -> None:
    made(here, ODD)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await connection.execute(
                "INSERT INTO acp_bridge.sessions(session_id, cwd, agent, updated_at, prompted,"
                " deleted, fence) VALUES (%s, '', '', '', false, true, 7)",
                (SESSION,),
            )
            await store(connection, here)
            assert await sum_of_database(connection, SESSION) == sum_of_file(here)
            cursor = await connection.execute("SELECT fence FROM acp_bridge.sessions")
            assert await cursor.fetchone() == (7,)


def cut_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xaa" * 4096
    path.write_bytes(data)


def other_kinds(path: Path) -> None:
    with closing(connect(path, wait=1)) as db:
        db.execute("UPDATE updates SET lines = 'a text' WHERE id = 5")


def newer(path: Path) -> None:
    with closing(connect(path, wait=1)) as db:
        db.execute("PRAGMA user_version=99")


def unsettled(path: Path) -> None:
    add(path, 3, Went.SENT)


def no_session(path: Path) -> None:
    with closing(connect(path, wait=1)) as db:
        db.execute("DELETE FROM session")


@pytest.mark.parametrize(
    ("spoil", "error", "why"),
    [
        (cut_in_the_middle, JournalError, "its file is damaged"),
        (other_kinds, JournalError, "its file is damaged"),
        (newer, NewerVersion, "99"),
        (unsettled, JournalError, "load the session once"),
        (no_session, UnknownSession, "gone or empty"),
        (Path.unlink, UnknownSession, "gone or empty"),
    ],
)
async def test_a_file_that_can_not_be_trusted_is_refused_and_nothing_of_it_is_stored(
    database: DatabaseUrl,
    here: Path,
    spoil: Callable[[Path], None],
    error: type[JournalError],
    why: str,
) -> None:
    made(here, {**ODD, "updates": [*ODD["updates"], *((n, 0, b"x" * 999) for n in range(9, 99))]})
    spoil(here)
    with bounded():
        async with Database(database) as opened:
            with pytest.raises(error, match=why):
                async with opened.connection() as connection:
                    await store(connection, here)
            async with opened.connection() as connection:
                for table in ("sessions", *(table.name for table in TABLES)):
                    cursor = await connection.execute(f"SELECT * FROM acp_bridge.{table}".encode())
                    assert await cursor.fetchall() == []


async def test_a_database_that_dies_leaves_no_file(
    database: DatabaseUrl, here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(here, ODD)
    with bounded():
        async with Database(database) as opened:
            async with opened.connection() as connection:
                await store(connection, here)
            filled = Draft.fill

            def fill(self: Draft, sql: str, rows: list[tuple[object, ...]]) -> None:
                connection.pgconn.finish()
                filled(self, sql, rows)

            monkeypatch.setattr(Draft, "fill", fill)
            with pytest.raises(JournalError):
                async with opened.connection() as connection:
                    await fetch(connection, SESSION, there)
    assert tree(there.parent) == [there.parent]


async def test_a_file_of_an_earlier_version_is_stored_as_it_would_be_read(
    database: DatabaseUrl, here: Path
) -> None:
    made(here, ODD)
    with closing(connect(here, wait=1)) as db:
        db.executescript(
            "ALTER TABLE session DROP COLUMN agent_info;"
            "ALTER TABLE session DROP COLUMN prompted;"
            "PRAGMA user_version=2"
        )
    before = all_bytes(here.parent)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await store(connection, here)
            assert await sum_of_database(connection, SESSION) == sum_of_file(here)
            cursor = await connection.execute(
                "SELECT agent_info, prompted FROM acp_bridge.sessions"
            )
            assert await cursor.fetchone() == (None, True)
    assert all_bytes(here.parent) == before
