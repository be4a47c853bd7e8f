"""A session goes from its file into a database and back, and is the same to the byte."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_bridge.core.journal import (
    Journal,
    JournalError,
    SessionExists,
    SessionInfo,
    UnknownSession,
)
from acp_bridge.core.journal.connection import connect
from acp_bridge.core.journal.file import Write
from acp_bridge.core.journal.records import file_name
from acp_bridge.core.records import replace
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import log
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.digest import digest
from tests.core.journal.files import all_bytes, mode, tree, wal
from tests.postgres.session_files import (
    INFO,
    SESSION,
    Rows,
    as_version_2,
    dumped,
    execute,
    made,
)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return made(tmp_path / "here" / "sessions" / "s.db")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "sessions" / "s.db"


@contextmanager
def bounded() -> Iterator[None]:
    with anyio.fail_after(60):
        yield


def applied_in(path: Path) -> list[str]:
    """The number of the last write that a copy knows, if it does."""
    with closing(sqlite3.connect(path)) as db:
        sql = "SELECT value FROM settings WHERE key = ?"
        return [value for (value,) in db.execute(sql, (log.APPLIED,))]


async def said(connection: log.Connection, sql: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(sql.encode())).fetchall()


# --- a whole session ------------------------------------------------------------------------------


async def test_a_session_comes_back_to_the_byte(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    before = all_bytes(here.parent)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            assert await log.store(connection, INFO, here) == 1
            assert await log.fetch(connection, SESSION, there, copy=False) == 0
            found = await log.head(connection, SESSION)
    assert found == log.Head(INFO, 0, 0, None, 1)
    assert dumped(there) == dumped(here)
    assert digest(there) == digest(here)
    assert tree(there.parent) == [there.parent, there]
    assert tree(here.parent) == [here.parent, here]
    assert (mode(there), all_bytes(here.parent)) == (0o600, before)


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
    info = session.info
    await journal.close()
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await log.store(connection, info, journal.path(SESSION))
            await log.fetch(connection, SESSION, later.path(SESSION), copy=False)
    session = await later.open(SESSION)
    assert [page async for page in session.replay()] == [
        page async for page in (await journal.open(SESSION)).replay()
    ]
    assert session.used_ids() == {"call-1"}
    assert session.accept("p2", {"prompt": []}) == 2
    await later.close()
    await journal.close()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
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
        "settings": st.lists(st.tuples(TEXT, TEXT), unique_by=lambda row: row[0], max_size=5),
        "used_ids": st.lists(st.tuples(st.binary(max_size=20)), unique=True, max_size=5),
    }
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=ROWS, texts=st.tuples(*[TEXT] * 3), lacking=st.none() | TEXT, prompted=st.booleans())
def test_any_rows_come_back_the_same(
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

    async def there_and_back() -> log.Head | None:
        with bounded():
            async with Database(database) as opened, opened.connection() as connection:
                await connection.execute("DELETE FROM acp_bridge.sessions")
                await log.store(connection, digest(here)[0], here)
                await log.fetch(connection, session_id, there, copy=False)
                return await log.head(connection, session_id)

    listed = anyio.run(there_and_back)
    assert dumped(there) == dumped(here)
    assert digest(there) == digest(here) == (info, digest(here)[1])
    assert listed is not None
    assert listed.info == SessionInfo(*log.values_of(info))


async def test_rows_of_megabytes_come_back(
    database: DatabaseUrl, tmp_path: Path, there: Path
) -> None:
    lines = [(number, 1, bytes([number]) * 900_000) for number in range(1, 9)]
    ids = [(f"{n}".encode(),) for n in range(2500)]
    here = made(tmp_path / "long" / "sessions" / "s.db", {"updates": lines, "used_ids": ids})
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await log.store(connection, INFO, here)
            await log.fetch(connection, SESSION, there)
            ((parts, longest),) = await said(
                connection, "SELECT count(*), max(length(data)) FROM acp_bridge.bases"
            )
    assert digest(there) == digest(here)
    assert (parts > 20, longest) == (True, log.PART)


async def test_a_session_is_stored_once_and_one_that_is_not_there_makes_no_file(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await log.store(connection, INFO, here)
            with pytest.raises(SessionExists):
                await log.store(connection, replace(INFO, title="another"), here)
            assert await log.head(connection, SESSION) == log.Head(INFO, 0, 0, None, 1)
            with pytest.raises(UnknownSession):
                await log.fetch(connection, "another", there)
            await connection.execute("UPDATE acp_bridge.sessions SET deleted = true")
            with pytest.raises(UnknownSession):
                await log.fetch(connection, SESSION, there)
    assert tree(here.parent) == [here.parent, here]
    assert tree(there.parent) == [there.parent]


async def test_a_session_that_was_deleted_is_made_anew_under_its_id(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await connection.execute(
                "INSERT INTO acp_bridge.sessions(name, session_id, cwd, agent, updated_at,"
                " prompted, deleted, dropped, changed, fence, base, applied)"
                " VALUES (%s, %s, '', '', '', false, true, true, 0, 7, 3, 5)",
                (file_name(SESSION), SESSION),
            )
            assert await log.store(connection, INFO, here) == 8
            assert await log.head(connection, SESSION) == log.Head(INFO, 0, 0, None, 8)
            assert await log.fetch(connection, SESSION, there) == 0
            sql = "SELECT deleted, dropped, changed, changes FROM acp_bridge.sessions, "
            rows = await said(connection, f"{sql} acp_bridge.listing")
    assert rows == [(False, False, 1, 1)]
    assert digest(there) == digest(here)


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


async def test_a_file_that_is_damaged_is_not_stored(database: DatabaseUrl, here: Path) -> None:
    cut_in_half(here)
    with bounded():
        async with Database(database) as opened:
            with pytest.raises(JournalError, match="its file is damaged"):
                async with opened.connection() as connection:
                    await log.store(connection, INFO, here)
            async with opened.connection() as connection:
                assert await said(connection, "SELECT 1 FROM acp_bridge.sessions") == []
    assert tree(here.parent) == [here.parent, here]


async def test_a_database_that_dies_leaves_no_file(
    database: DatabaseUrl, here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bounded():
        async with Database(database) as opened:
            async with opened.connection() as connection:
                await log.store(connection, INFO, here)
            begin = log._opened

            def opened_base(draft: Path, session_id: str) -> sqlite3.Connection:
                connection.pgconn.finish()
                return begin(draft, session_id)

            monkeypatch.setattr(log, "_opened", opened_base)
            with pytest.raises(JournalError):
                async with opened.connection() as connection:
                    await log.fetch(connection, SESSION, there)
    assert tree(there.parent) == [there.parent]


async def test_a_file_of_an_earlier_version_is_stored_as_it_is(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    as_version_2(here)
    before = all_bytes(here.parent)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await log.store(connection, INFO, here)
            await log.fetch(connection, SESSION, there, copy=False)
    assert (log.is_older(there), digest(there)) == (True, digest(here))
    assert all_bytes(here.parent) == before


async def test_a_file_is_stored_with_what_a_killed_bridge_has_left_in_its_wal_which_stays(
    database: DatabaseUrl, here: Path, there: Path, tmp_path: Path
) -> None:
    left = tmp_path / "left"
    with closing(connect(here, wait=1)) as db:
        db.execute("UPDATE session SET title = 'of the WAL'")
        shutil.copytree(here.parent, left)
    kept = left / here.name
    before = kept.read_bytes(), wal(kept).read_bytes()
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await log.store(connection, INFO, kept)
            await log.fetch(connection, SESSION, there)
    assert digest(there)[0].title == "of the WAL"
    assert (kept.read_bytes(), wal(kept).read_bytes()) == before


async def test_a_store_that_is_cancelled_leaves_nothing(
    database: DatabaseUrl, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bounded():
        async with Database(database) as opened:
            with anyio.CancelScope() as scope:

                async def put_base(_: log.Connection, __: str, copy: Path) -> None:
                    assert mode(copy) == 0o600
                    scope.cancel()
                    await anyio.sleep_forever()

                monkeypatch.setattr(log, "_ONE_STATEMENT", 0)
                monkeypatch.setattr(log, "_put_base", put_base)
                async with opened.connection() as connection:
                    await log.store(connection, INFO, here)
            assert scope.cancelled_caught
            async with opened.connection() as connection:
                assert await log.head(connection, SESSION) is None
    assert tree(here.parent) == [here.parent, here]


async def test_the_number_of_the_last_write_belongs_to_one_log(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    execute(here, f"INSERT INTO settings VALUES ('{log.APPLIED}', '41')")
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            fence = await log.store(connection, INFO, here, "me")
            await log.fetch(connection, SESSION, there)
            assert applied_in(there) == []
            assert await put(connection, fence, 1, [Write((), 1, (b"{}",))])
            assert await log.fetch(connection, SESSION, there) == 1
            assert applied_in(there) == ["1"]
            assert await log.fetch(connection, SESSION, there, copy=False) == 1
    assert (applied_in(there), applied_in(here)) == ([], ["41"])


# --- the log ------------------------------------------------------------------------------------


def writes() -> Iterator[Write]:
    """Some thousands of writes of all kinds."""
    for n in range(1, 3001):
        if n % 3:
            yield Write((), n, (f'{{"n":{n}}}'.encode(), b'{"ae":"\xc3\xa4"}'))
        else:
            yield Write(
                (
                    ("INSERT INTO prompts VALUES (?, ?, 'sent', NULL, ?)", (n + 10, f"p{n}", "\0")),
                    ("INSERT OR REPLACE INTO settings VALUES ('n', ?)", (str(n),)),
                    ("INSERT INTO used_ids VALUES (?)", (b"\xff%d" % n,)),
                    ("UPDATE session SET title = ?, merged_to = ?", (None, n)),
                ),
                n,
                (b"{}",) if n % 2 else (),
            )


async def put(connection: log.Connection, fence: int, first: int, some: list[Write]) -> bool:
    rows = [log.row_of(n, write) for n, write in enumerate(some, first)]
    return await log.put(connection, SESSION, "me", fence, rows, sure=False, prompted=False)


async def test_a_log_of_thousands_of_writes_makes_the_file_in_which_they_were_made(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    made_in = list(writes())
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            fence = await log.store(connection, INFO, here, "me")
            for at in range(0, len(made_in), 700):
                assert await put(connection, fence, at + 1, made_in[at : at + 700])
            assert await log.fetch(connection, SESSION, there) == 3000
    with closing(connect(here, wait=1)) as db:
        db.execute("BEGIN")
        for write in made_in:
            assert log.make(db, write.all) is None
        db.execute("COMMIT")
    assert digest(there) == digest(here)
    assert applied_in(there) == ["3000"]


async def test_long_writes_are_made_a_few_at_a_time(
    database: DatabaseUrl, here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, pages = log._make, []

    def make_page(copy: sqlite3.Connection, rows: list[log.Row]) -> None:
        pages.append(len(rows))
        make(copy, rows)

    monkeypatch.setattr(log, "_make", make_page)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            fence = await log.store(connection, INFO, here, "me")
            await put(connection, fence, 1, [Write((), n, (b"x" * 300_000,)) for n in range(10)])
            assert await log.fetch(connection, SESSION, there) == 10
    assert pages == [4, 4, 2]


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '{file}' AS other",
        "VACUUM INTO '{file}'",
        "CREATE TRIGGER one AFTER INSERT ON updates BEGIN DELETE FROM prompts; END",
        "CREATE TABLE one(a)",
        "DROP TABLE updates",
        "ALTER TABLE updates RENAME TO one",
        "PRAGMA writable_schema=ON",
        "PRAGMA user_version=99",
        "UPDATE sqlite_master SET sql = ''",
        "INSERT INTO sqlite_master VALUES ('trigger', 'one', 'updates', 0, '')",
        "no SQL",
    ],
)
@pytest.mark.parametrize("more", [(), (("DELETE FROM used_ids", ()),)])
async def test_a_statement_that_is_none_of_a_session_is_refused(
    database: DatabaseUrl,
    here: Path,
    there: Path,
    tmp_path: Path,
    statement: str,
    more: tuple[tuple[str, tuple[object, ...]], ...],
) -> None:
    file = tmp_path / "file"
    write = Write(((statement.format(file=file), ()), *more))
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            fence = await log.store(connection, INFO, here, "me")
            assert await put(connection, fence, 1, [write])
            with pytest.raises(JournalError):
                await log.fetch(connection, SESSION, there)
    assert tree(there.parent) == [there.parent]
    assert not file.exists()


@pytest.mark.parametrize("statements", ["[1]", '[["DELETE FROM updates"]]', "", "[[1, [{}]]]"])
async def test_a_row_of_the_log_that_is_no_write_is_refused(
    database: DatabaseUrl, here: Path, there: Path, statements: str
) -> None:
    row = log.Row(1, statements, 0, None)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            fence = await log.store(connection, INFO, here, "me")
            assert await log.put(connection, SESSION, "me", fence, [row], sure=True, prompted=False)
            with pytest.raises(JournalError):
                await log.fetch(connection, SESSION, there)
    assert tree(there.parent) == [there.parent]


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER one AFTER INSERT ON updates BEGIN DELETE FROM prompts; END",
        "CREATE VIEW one AS SELECT * FROM updates",
        "CREATE VIRTUAL TABLE one USING fts5(a)",
        "UPDATE session SET session_id = 'another'",
        "DELETE FROM session",
    ],
)
async def test_a_base_that_is_none_of_the_session_is_refused(
    database: DatabaseUrl, here: Path, there: Path, change: str
) -> None:
    execute(here, change)
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await log.store(connection, INFO, here)
            with pytest.raises(JournalError, match="is no session"):
                await log.fetch(connection, SESSION, there)
    assert tree(there.parent) == [there.parent]


async def test_a_write_that_the_tables_refuse_is_left_out_in_each_copy_and_the_next_are_made(
    database: DatabaseUrl, here: Path, there: Path
) -> None:
    new = ("INSERT INTO prompts VALUES (?, ?, 'sent', NULL, NULL)", (1, "one"))
    again = ("INSERT INTO prompts VALUES (?, ?, 'sent', NULL, NULL)", (2, "one"))
    setting = ("INSERT INTO settings VALUES ('of', 'the refused')", ())
    some = [Write((new,)), Write((setting, again)), Write((again,)), Write((), 1, (b"{}",))]
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            fence = await log.store(connection, INFO, here, "me")
            assert await put(connection, fence, 1, some)
            assert await log.fetch(connection, SESSION, there) == 4
    with closing(connect(here, wait=1)) as db:
        refused = [log.make(db, write.all) is not None for write in some]
    assert refused == [False, True, True, False]
    assert digest(there) == digest(here)
    assert not any("the refused" in row for row in dumped(there))


async def everything(connection: log.Connection) -> list[list[tuple[Any, ...]]]:
    tables = ("sessions", "bases", "writes", "listing")
    return [await said(connection, f"SELECT * FROM acp_bridge.{name}") for name in tables]


@pytest.mark.parametrize(("owner", "fence"), [("another", 1), ("me", 2), ("me", 0)])
async def test_who_has_not_the_session_puts_no_write_and_no_base(
    database: DatabaseUrl, here: Path, owner: str, fence: int
) -> None:
    row = log.row_of(2, Write((), 1, (b"{}",)))
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            assert await log.store(connection, INFO, here, "me") == 1
            assert await put(connection, 1, 1, [Write((), 1, (b"{}",))])
            before = await everything(connection)
            assert not await log.put(
                connection, SESSION, owner, fence, [row], sure=True, prompted=False
            )
            with pytest.raises(JournalError, match="another bridge has the session"):
                await log.rebase(connection, SESSION, here, owner, fence)
            assert await everything(connection) == before
    assert tree(here.parent) == [here.parent, here]


async def test_a_new_base_takes_the_place_of_the_writes_that_it_holds(
    database: DatabaseUrl, here: Path, there: Path, tmp_path: Path
) -> None:
    some = [Write((), n, (b"{}",)) for n in range(1, 6)]
    again = tmp_path / "again" / "sessions" / "s.db"
    with bounded():
        async with Database(database) as opened, opened.connection() as connection:
            await log.store(connection, INFO, here, "me")
            await put(connection, 1, 1, some[:3])
            await log.fetch(connection, SESSION, there)
            await put(connection, 1, 4, some[3:])
            assert await log.rebase(connection, SESSION, there, "me", 1) == 3
            kept = await said(connection, "SELECT n FROM acp_bridge.writes ORDER BY n")
            assert await log.fetch(connection, SESSION, again) == 5
            await log.fetch(connection, SESSION, there)
    assert kept == [(4,), (5,)]
    assert digest(again) == digest(there)
