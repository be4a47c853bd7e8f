"""Torn, rotten, foreign and full: what can be read is read, and nothing is made worse."""

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from acp_bridge.core.journal import (
    Journal,
    JournalError,
    PromptState,
    SessionInfo,
    SessionJournal,
)
from acp_bridge.core.journal import files as session_files
from acp_bridge.core.journal import session as session_module
from acp_bridge.core.journal.connection import connect
from acp_bridge.core.journal.errors import ForUser, told
from acp_bridge.core.journal.schema import INDEX_SCHEMA, PAGE_BYTES, SESSION_SCHEMA, Schema, migrate
from tests.core.journal import files
from tests.core.journal.conftest import SESSION
from tests.core.journal.sayings import chunk, lines, text_of, tool, transcript

END = {"stopReason": "end_turn"}


def word(number: int) -> str:
    return f"word{number:05}"


async def texts(session: SessionJournal) -> list[str]:
    return [text_of(params) for params in await transcript(session)]


async def closed_session(journal: Journal, words: int, size: int = 0) -> Path:
    """Make a session of so many messages, each in a row of its own; returns its file."""
    session = await journal.create(SESSION, cwd="/project", agent="demo")
    for number in range(words):
        session.record(1, lines(chunk(word(number) + "." * size, f"m{number}")))
    await session.close()
    return journal.path(SESSION)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.hazard("K2.1")
async def test_any_prefix_of_the_writes_loads(
    journal: Journal, session: SessionJournal, tmp_path: Path
) -> None:
    for number in range(40):
        seq = session.accept(f"id{number}", {"prompt": number})
        session.start_turn(seq)
        session.record(seq, lines(chunk(word(number), f"m{number}")))
        session.end_prompt(seq, END, END)
    copy = tmp_path / "copy"
    shutil.copytree(journal.path(SESSION).parent, copy / "sessions")
    log = files.wal(copy / "sessions" / f"{SESSION}.db")
    content = log.read_bytes()
    dice = random.Random(1)
    frame = PAGE_BYTES + 24
    cuts = {0, 31, 32, *(32 + frame * n + d for n in (1, 2, 7) for d in (-1, 0, 1))}
    cuts |= {dice.randrange(len(content)) for _ in range(40)} | {len(content)}
    before = -1
    for cut in sorted(cuts):
        assert before <= (before := await load_with(copy, content[:cut])) <= 40
    assert before == 40


async def load_with(home: Path, wal: bytes) -> int:
    """Load the session with this much of its WAL; returns how many words are there."""
    again, path = Journal(home / "again"), home / "sessions" / f"{SESSION}.db"
    folder = home / "again" / "sessions"
    shutil.rmtree(home / "again", ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(path, folder)
    files.wal(folder / path.name).write_bytes(wal)
    session = await again.open(SESSION)
    shown = await texts(session)
    assert shown == [word(number) for number in range(len(shown))]
    prompts = session.prompts()
    assert [prompt.params["prompt"] for prompt in prompts] == list(range(len(prompts)))
    assert all(prompt.state is PromptState.DONE for prompt in prompts[:-1])
    assert len(prompts) - 1 <= len(shown) <= len(prompts)
    session.record(9, lines(tool("goes on")))
    assert (await transcript(session))[-1] == tool("goes on")
    await again.close()
    return len(shown)


@pytest.mark.hazard("K2.2")
async def test_rot_inside_a_record_hides_only_that_record(journal: Journal) -> None:
    path = await closed_session(journal, 300)
    content = path.read_bytes()
    overwrite(path, content.index(word(150).encode()) - 20, b"\xff\x00}")
    shown = await texts(await journal.open(SESSION))
    assert shown == [word(number) for number in range(300) if number != 150]


@pytest.mark.hazard("K2.2")
@pytest.mark.parametrize("lost", [0, 150, 599])
async def test_a_rotten_page_hides_only_the_records_on_it(
    journal: Journal, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SALVAGED_ROWS", 2_000)
    path = await closed_session(journal, 600)
    content = path.read_bytes()
    page = content.index(word(lost).encode()) // PAGE_BYTES * PAGE_BYTES
    on_it = {n for n in range(600) if word(n).encode() in content[page : page + PAGE_BYTES]}
    assert 1 <= len(on_it) < 20
    overwrite(path, page, b"\x00" * 8)
    session = await journal.open(SESSION)
    assert await texts(session) == [word(number) for number in range(600) if number not in on_it]


async def test_rot_that_can_not_be_compacted_stays_readable(journal: Journal) -> None:
    path = await closed_session(journal, 600)
    page = path.read_bytes().index(word(300).encode()) // PAGE_BYTES * PAGE_BYTES
    overwrite(path, page, b"\x00" * 8)
    session = await journal.open(SESSION)
    shown = await texts(session)
    with pytest.raises(JournalError):
        await session.compact(1)
    assert await texts(session) == shown


@pytest.mark.hazard("K2.2", "R12")
async def test_a_rotten_prompt_or_setting_hides_no_other(
    journal: Journal, session: SessionJournal
) -> None:
    for number in range(3):
        session.accept(f"id{number}", {"prompt": number})
    session.end_prompt(1, END, END)
    session.set("a", 1)
    session.set("b", 2)
    session._file.db.execute("UPDATE prompt_params SET params = '{bad' WHERE seq = 2")
    session._file.db.execute("UPDATE prompts SET outcome = x'ff' WHERE seq = 1")
    session._file.db.execute("UPDATE settings SET value = '{bad' WHERE key = 'a'")
    assert [prompt.seq for prompt in await session.recover()] == [3]
    assert [prompt.outcome for prompt in session.prompts(PromptState.DONE)] == [None]
    assert (session.get("a"), session.get("b")) == (None, 2)


@pytest.mark.hazard("R3.2")
async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(journal: Journal) -> None:
    path = await closed_session(journal, 3)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="newer"):
        await journal.open(SESSION)
    assert path.read_bytes() == before
    assert not files.wal(path).exists()


@pytest.mark.hazard("R3.2")
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(journal: Journal) -> None:
    path = await closed_session(journal, 3)
    path.write_bytes(before := b"not a database\n" * 1000)
    with pytest.raises(JournalError):
        await journal.open(SESSION)
    assert path.read_bytes() == before


FIRST_VERSION = Schema(
    """
    CREATE TABLE session(
        id INTEGER PRIMARY KEY CHECK (id = 1), session_id TEXT NOT NULL, cwd TEXT NOT NULL,
        additional_directories TEXT NOT NULL, agent TEXT NOT NULL, agent_session_id TEXT,
        title TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
        merged_to INTEGER NOT NULL DEFAULT 0, touched INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE prompts(
        seq INTEGER PRIMARY KEY, prompt_id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
        accepted_at TEXT NOT NULL, ended_at TEXT, outcome TEXT, agent_outcome TEXT
    );
    CREATE TABLE prompt_params(seq INTEGER PRIMARY KEY, params TEXT NOT NULL);
    CREATE TABLE updates(id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, lines BLOB NOT NULL);
    CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE used_ids(id BLOB PRIMARY KEY) WITHOUT ROWID;
    """
)
ADDED = "ALTER TABLE session ADD COLUMN colour TEXT; UPDATE session SET colour = 'a;b'"


def upgraded(script: str) -> Schema:
    return Schema(SESSION_SCHEMA.tables, (*SESSION_SCHEMA.upgrades, script))


def tables(connection: sqlite3.Connection) -> dict[str, str]:
    """Return every table and index with the statement that made it, blanks apart."""
    found = connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    return {name: " ".join(sql.split()) for name, sql in found}


def test_an_upgraded_file_has_the_tables_of_a_new_one() -> None:
    with closing(sqlite3.connect(":memory:")) as old, closing(sqlite3.connect(":memory:")) as new:
        migrate(old, FIRST_VERSION)
        migrate(old, SESSION_SCHEMA)
        migrate(new, SESSION_SCHEMA)
        assert tables(old) == tables(new)


async def test_an_older_file_is_brought_forward_with_all_that_is_in_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await closed_session(journal, 3)
    monkeypatch.setattr(session_files, "SESSION_SCHEMA", upgraded(ADDED))
    session = await journal.open(SESSION)
    assert await texts(session) == [word(0), word(1), word(2)]
    assert session._file.value("SELECT colour FROM session") == "a;b"
    assert session._file.value("PRAGMA user_version") == SESSION_SCHEMA.version + 1


async def test_a_file_of_the_first_version_is_brought_forward_with_its_prompts(
    journal: Journal, session: SessionJournal
) -> None:
    await session.close()
    path = journal.path(SESSION)
    path.unlink()
    path.touch()
    with closing(connect(path, wait=1)) as first:
        migrate(first, FIRST_VERSION)
        first.execute(
            "INSERT INTO session VALUES (1, ?, '/w', '[]', 'demo', '0', 'A title', ?, ?, 7, 1)",
            (SESSION, "then", "now"),
        )
        first.execute("INSERT INTO prompts VALUES (5, 'a', 'sent', 'then', NULL, NULL, NULL)")
        first.execute("INSERT INTO prompts VALUES (6, 'b', 'waiting', 'then', NULL, NULL, NULL)")
        first.executemany("INSERT INTO prompt_params VALUES (?, '{}')", [(5,), (6,)])
    again = await journal.open(SESSION)
    assert again.info == SessionInfo(SESSION, "/w", "demo", "0", "A title", "now")
    assert [(p.seq, p.prompt_id, str(p.state)) for p in again.prompts()] == [
        (5, "a", "sent"),
        (6, "b", "waiting"),
    ]
    assert again._file.value("SELECT merged_to FROM session") == 7
    assert again.accept("c", {}) == 7


@pytest.mark.hazard("R3.2", "K2")
async def test_a_migration_that_fails_half_way_leaves_the_old_version_whole(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await closed_session(journal, 3)
    broken = f"{ADDED}; INSERT INTO nowhere VALUES (1)"
    with monkeypatch.context() as patch:
        patch.setattr(session_files, "SESSION_SCHEMA", upgraded(broken))
        with pytest.raises(JournalError):
            await journal.open(SESSION)
    session = await journal.open(SESSION)
    assert await texts(session) == [word(0), word(1), word(2)]
    assert session._file.value("PRAGMA user_version") == SESSION_SCHEMA.version


@pytest.mark.parametrize("schema", [SESSION_SCHEMA, INDEX_SCHEMA])
def test_no_statement_of_a_script_is_lost_when_it_is_divided(schema: Schema) -> None:
    with closing(sqlite3.connect(":memory:")) as whole, closing(sqlite3.connect(":memory:")) as own:
        migrate(own, schema)
        whole.executescript(schema.tables)
        assert tables(own) == tables(whole)


def words_until_behind(session: SessionJournal) -> int:
    for number in range(1000):
        session.record(1, lines(chunk(word(number) + "." * 500, f"m{number}")))
        if session.behind:
            return number
    return 1000


@pytest.mark.hazard("Q13.11")
async def test_a_full_disk_refuses_prompts_keeps_the_rest_and_hurts_nothing_else(
    journal: Journal, session: SessionJournal
) -> None:
    first = session.accept("first", {"prompt": 0})
    pages = session._file.value("PRAGMA page_count")
    session._file.db.execute(f"PRAGMA max_page_count={pages + 20}")
    number = words_until_behind(session)
    assert 10 < number < 1000
    with pytest.raises(JournalError) as full:
        session.accept("second", {"prompt": "x" * 100_000})
    folder = session._file.path.parent
    words = str(told(full.value))
    assert isinstance(told(full.value), ForUser)
    assert words.startswith(f"the disk is full: {folder} can't be written, on the disk at /")
    disk = words.rpartition(" at ")[2].removesuffix(". Free some space")
    assert os.stat(disk).st_dev == os.stat(folder).st_dev
    session.start_turn(first)
    assert [(p.prompt_id, str(p.state)) for p in session.prompts()] == [("first", "waiting")]
    await session.sync()
    session._file.db.execute("PRAGMA max_page_count=1000000")
    assert session.accept("second", {}) == first + 1
    assert [str(p.state) for p in session.prompts()] == ["sent", "waiting"]
    session.record(1, lines(chunk("after", "m")))
    await session.close()
    shown = await texts(await journal.open(SESSION))
    assert [text[:9] for text in shown] == [*map(word, range(number + 1)), "after"]
