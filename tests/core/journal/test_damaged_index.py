"""A damaged or a lost listing is made again from the sessions, whoever else has it open."""

import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.journal import Journal, JournalError
from tests.core.journal.files import remove, wal

NAMES = [f"{number:032x}" for number in range(20)]


def zeros_in_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(2048)
        file.write(bytes(path.stat().st_size - 4096))


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def another_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE x(y); PRAGMA user_version=1")


def overwritten(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def content(path: Path) -> bytes:
    return path.read_bytes()


DAMAGES: list[Callable[[Path], object]] = [
    zeros_in_the_middle,
    truncated,
    another_database,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:50]),
    lambda path: path.write_bytes(bytes(100) + path.read_bytes()[100:]),
    overwritten,
]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with twenty sessions, which each test gets a copy of."""

    async def make() -> None:
        journal = Journal(folder)
        for name in NAMES:
            await journal.create(name, cwd="/project", agent="demo")
            await journal.touch(name, title="some words " * 100)
        await journal.close()

    folder = tmp_path_factory.mktemp("sessions")
    anyio.run(make)
    return folder


@pytest.fixture
def index(home: Path, sessions: Path) -> Path:
    """The index of twenty sessions that nobody has open."""
    shutil.copytree(sessions, home, dirs_exist_ok=True)
    path = home / "index.db"
    assert path.stat().st_size > 10_000
    assert not wal(path).exists()
    return path


async def listed(journal: Journal) -> list[str]:
    rows, _ = await journal.list()
    return sorted(row.session_id for row in rows)


@pytest.mark.hazard("K2.3")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_index_is_put_aside_and_made_again(
    index: Path,
    damage: Callable[[Path], object],
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(index)
    damaged = content(index)
    assert await listed(journal) == NAMES
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "index.db is damaged" in record.getMessage()
    assert content(index.with_name("index.db.damaged")) == damaged


@pytest.mark.hazard("K2")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_session_can_be_made_though_the_index_is_damaged(
    index: Path, damage: Callable[[Path], object], journal: Journal
) -> None:
    damage(index)
    await journal.create("f" * 32, cwd="/project", agent="demo")
    assert await listed(journal) == [*NAMES, "f" * 32]


async def test_a_wal_of_the_damaged_file_never_meets_its_successor(
    index: Path, home: Path, journal: Journal
) -> None:
    writer = Journal(home)
    await writer.open(NAMES[0])
    assert content(wal(index))
    overwritten(index)
    overwritten(wal(index))
    assert await listed(journal) == NAMES
    assert content(wal(index.with_name("index.db.damaged"))).startswith(b"no database")
    await writer.close()
    await journal.close()
    with closing(sqlite3.connect(index)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.hazard("K2")
async def test_bridges_that_have_it_open_go_over_to_the_new_one(
    index: Path, home: Path, journal: Journal
) -> None:
    first, second = Journal(home), Journal(home)
    assert await listed(first) == await listed(second) == NAMES
    overwritten(index)
    assert await listed(journal) == NAMES  # it finds the damage
    await first.create("e" * 32, cwd="/project", agent="demo")
    await second.create("f" * 32, cwd="/project", agent="demo")
    assert await listed(journal) == [*NAMES, "e" * 32, "f" * 32]
    for each in (first, second):
        await each.close()
    assert await listed(journal) == [*NAMES, "e" * 32, "f" * 32]


@pytest.mark.hazard("K2")
async def test_damage_that_comes_while_it_is_open_is_found_where_it_is_read(
    index: Path, home: Path, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    other = Journal(home)
    assert await listed(journal) == NAMES
    await other.open(NAMES[0])
    await other.touch(NAMES[0], title="so that nobody's cache is good any more")
    zeros_in_the_middle(index)
    assert await listed(journal) == NAMES
    assert await listed(other) == NAMES
    assert caplog.text.count("index.db is damaged") == 1
    await other.close()


async def test_an_index_that_can_not_be_opened_is_not_taken_for_a_damaged_one(
    index: Path, journal: Journal
) -> None:
    replaced_by_a_folder(index)
    with pytest.raises(JournalError):
        await journal.list()
    assert list(index.parent.glob("index.db*")) == [index]


async def test_an_index_of_a_newer_version_is_refused_and_left_as_it_is(
    index: Path, journal: Journal
) -> None:
    with closing(sqlite3.connect(index)) as connection:
        connection.execute("PRAGMA user_version=99")
    before = content(index)
    with pytest.raises(JournalError, match="newer"):
        await journal.list()
    assert content(index) == before


async def keep_sessions(home: Path) -> None:
    journal = Journal(home)
    await journal.create("a" * 32, cwd="/a", agent="one", agent_session_id="0")
    await journal.create("b" * 32, cwd="/b", agent="one")
    await journal.create("any id", cwd="/c", agent="two")
    await journal.touch("a" * 32, title="first")
    await journal.close()


@pytest.mark.hazard("K2.2", "K2.3")
async def test_a_lost_index_is_made_again_and_a_damaged_session_hides_no_other(
    tmp_path: Path,
) -> None:
    await keep_sessions(tmp_path)
    journal = Journal(tmp_path)
    before = await journal.list()
    known = await journal.known_agent_ids(AgentIdentity("one"))
    await journal.close()
    remove(tmp_path, "index.db*")
    (tmp_path / "sessions" / "damaged.db").write_bytes(b"no database" * 1000)
    (tmp_path / "sessions" / "empty.db").touch()
    journal = Journal(tmp_path)
    assert await journal.list() == before
    assert await journal.known_agent_ids(AgentIdentity("one")) == known == {"0"}
    await journal.close()


async def test_an_index_made_again_has_the_session_that_is_just_being_made(
    tmp_path: Path,
) -> None:
    await keep_sessions(tmp_path)
    remove(tmp_path, "index.db*")
    journal = Journal(tmp_path)
    await journal.create("c" * 32, cwd="/d", agent="one")
    rows, _ = await journal.list()
    assert [row.cwd for row in rows] == ["/d", "/a", "/c", "/b"]
    await journal.close()
