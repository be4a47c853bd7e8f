"""Two session files with the same rows have the same sum; what can't be trusted has none."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from acp_bridge.core.journal import JournalError, NewerVersion, UnknownSession
from acp_bridge.core.journal.left_queue import Went, add
from acp_bridge.postgres.digest import TABLES, digest
from acp_bridge.postgres.log import APPLIED
from tests.core.journal.files import all_bytes
from tests.postgres.session_files import INFO, ODD, as_version_2, execute, made


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return made(tmp_path / "one" / "sessions" / "s.db")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return made(tmp_path / "two" / "sessions" / "s.db")


def test_the_same_rows_have_the_same_sum_and_the_number_of_a_copy_is_none_of_them(
    one: Path, two: Path
) -> None:
    execute(two, f"INSERT INTO settings VALUES ('{APPLIED}', '7')")
    assert digest(one) == digest(two)
    assert digest(one)[0] == INFO


@pytest.mark.parametrize("table", TABLES)
def test_any_row_that_differs_changes_the_sum(one: Path, tmp_path: Path, table: str) -> None:
    less = made(tmp_path / "less" / "sessions" / "s.db", {**ODD, table: ODD[table][1:]})
    assert digest(one) != digest(less)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE session SET merged_to = 5",
        "UPDATE session SET title = NULL",
        "UPDATE updates SET lines = '' WHERE id = 2",
        "UPDATE settings SET value = '' WHERE key = ''",
    ],
)
def test_any_value_that_differs_changes_the_sum(one: Path, two: Path, change: str) -> None:
    execute(two, change)
    assert digest(one)[1] != digest(two)[1]


def test_the_sum_is_of_all_columns_that_a_session_has(one: Path) -> None:
    with closing(sqlite3.connect(one)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE sql != ''")}
        assert names == {"session", *TABLES}
        for table, columns in TABLES.items():
            there = db.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
            assert columns == ", ".join(name for (name,) in there)


def test_a_file_of_an_earlier_version_has_the_sum_that_it_will_have(one: Path, two: Path) -> None:
    as_version_2(two)
    before = all_bytes(two.parent)
    assert digest(two) == digest(one)
    assert all_bytes(two.parent) == before


def cut_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xaa" * 4096
    path.write_bytes(data)


def newer(path: Path) -> None:
    execute(path, "PRAGMA user_version=99")


def unsettled(path: Path) -> None:
    add(path, 3, Went.SENT)


def no_session(path: Path) -> None:
    execute(path, "DELETE FROM session")


@pytest.mark.parametrize(
    ("spoil", "error", "why"),
    [
        (cut_in_the_middle, JournalError, "its file is damaged"),
        (newer, NewerVersion, "99"),
        (unsettled, JournalError, "load the session once"),
        (no_session, UnknownSession, "gone or empty"),
        (Path.unlink, UnknownSession, "gone or empty"),
    ],
)
def test_a_file_that_can_not_be_trusted_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], error: type[JournalError], why: str
) -> None:
    lines = [*ODD["updates"], *((n, 0, b"x" * 999) for n in range(9, 99))]
    path = made(tmp_path / "sessions" / "s.db", {**ODD, "updates": lines})
    spoil(path)
    with pytest.raises(error, match=why):
        digest(path)
