"""`acp-bridge journal copy`: everything goes over, nothing is overwritten, the rest is named."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, SessionInfo
from acp_bridge.core.journal.reading import all_sessions
from acp_bridge.core.journal.records import file_name
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import log
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.index import CopiedIndex
from acp_bridge.terminal.cli import own_agent
from acp_bridge.terminal.commands.journal import command
from tests.core.journal.files import all_bytes, remove, tree
from tests.support.postgres import Cluster
from tests.terminal.commands.journal.conftest import Ran
from tests.terminal.commands.journal.homes import (
    DELETED,
    FIRST,
    SECOND,
    at_database,
    change,
    content,
    delete,
    fill,
    rows,
    without_index,
)

#: what the data folder of these tests has, as the command counts it.
ALL = "Sessions: 2 copied, 0 there already, 0 not copied.\nDeleted ones: 2 copied, 0 there already"


def test_a_folder_goes_into_a_database_and_another_folder_out_of_it(
    ran: Ran, home: Path, tmp_path: Path, database_url: str
) -> None:
    before, files = all_bytes(home / "sessions"), tree(home)
    code, out, err = ran(home, database_url)
    assert (code, err) == (0, "")
    assert out.startswith(ALL)
    assert all_bytes(home / "sessions") == before
    assert tree(home) == files
    elsewhere = tmp_path / "elsewhere"
    assert ran(database_url, elsewhere) == (0, out, "")
    assert content(elsewhere) == content(home)
    assert {info.session_id for info in all_sessions(elsewhere)} == {FIRST, SECOND}


def test_what_is_there_already_is_counted_and_not_copied_again(
    ran: Ran, home: Path, tmp_path: Path, database_url: str
) -> None:
    same = (
        "Sessions: 0 copied, 2 there already, 0 not copied.\n"
        "Deleted ones: 0 copied, 2 there already, 0 not copied.\n"
    )
    ran(home, database_url)
    assert ran(home, database_url) == (0, same, "")
    assert ran(database_url, home) == (0, same, "")
    without_index(home)  # it is made again, but for what was deleted
    code, out, _ = ran(database_url, home)
    assert (code, out.splitlines()[1]) == (
        0,
        "Deleted ones: 2 copied, 0 there already, 0 not copied.",
    )


def test_a_session_that_differs_stays_on_both_sides_and_is_named(
    ran: Ran, home: Path, database: DatabaseUrl, database_url: str
) -> None:
    ran(home, database_url)
    change(home, FIRST)
    kept, stored = content(home), all_of(database)
    for words in ((home, database_url), (database_url, home)):
        code, out, err = ran(*words)
        assert code == 1
        assert out.startswith("Sessions: 0 copied, 1 there already, 1 not copied.")
        assert err == (
            f"acp-bridge journal: {FIRST} is not copied: another state of it is there already,"
            " which stays\n"
        )
    assert (content(home), all_of(database)) == (kept, stored)


def all_of(database: DatabaseUrl) -> list[list[tuple[Any, ...]]]:
    tables = ("sessions", "bases", "writes")
    return [at_database(database, f"SELECT * FROM acp_bridge.{name}") for name in tables]


def test_a_session_that_was_deleted_there_is_not_brought_back(
    ran: Ran, home: Path, tmp_path: Path, database: DatabaseUrl, database_url: str
) -> None:
    other = tmp_path / "other"
    ran(home, database_url)
    ran(database_url, other)
    delete(other, FIRST)
    at_database(database, f"DELETE FROM acp_bridge.sessions WHERE session_id = '{FIRST}'")
    assert ran(other, database_url)[0] == 0
    for words in ((home, database_url), (other, database_url)):
        assert ran(*words)[0] == (1 if words[0] == home else 0)
    assert "it was deleted where it would go" in ran(home, database_url)[2]
    code, _, err = ran(database_url, home)
    assert (code, f"{FIRST} is not copied: it was deleted, and is there still" in err) == (1, True)
    assert FIRST in {info.session_id for info in all_sessions(home)}


def test_a_session_that_was_deleted_in_the_folder_is_not_brought_back_into_it(
    ran: Ran, home: Path, database_url: str
) -> None:
    ran(home, database_url)
    delete(home, FIRST)
    files = tree(home)
    code, _, err = ran(database_url, home)
    assert (code, "it was deleted where it would go" in err) == (1, True)
    assert tree(home) == files


def test_every_machine_lists_what_was_copied(
    ran: Ran, home: Path, tmp_path: Path, database: DatabaseUrl, database_url: str
) -> None:
    async def copied_rows() -> list[tuple[object, ...]]:
        async with Database(database) as opened:
            index = CopiedIndex(tmp_path / "copied.db", opened, [])
            try:
                await index.page(None, None, None)
            finally:
                await index.close()
        return sorted(rows(tmp_path / "copied.db", "sessions"), key=repr)

    assert anyio.run(copied_rows) == []
    ran(home, database_url)
    assert anyio.run(copied_rows) == content(home)["index"]


def test_what_the_database_has_dropped_is_no_session_and_hinders_none(
    ran: Ran, home: Path, tmp_path: Path, database: DatabaseUrl, database_url: str
) -> None:
    ran(home, database_url)
    at_database(
        database,
        "UPDATE acp_bridge.sessions SET deleted = true, dropped = true;"
        "DELETE FROM acp_bridge.bases",
    )
    code, out, _ = ran(database_url, tmp_path / "elsewhere")
    assert (code, out.count(" 0 copied, 0 there already, 0 not copied.")) == (0, 2)
    code, out, err = ran(home, database_url)
    assert (code, err) == (0, "")
    assert out.startswith(ALL)
    left = "SELECT 1 FROM acp_bridge.sessions WHERE dropped"
    assert at_database(database, left) == []


def test_a_session_that_was_set_aside_may_come_again(
    ran: Ran, home: Path, database: DatabaseUrl, database_url: str
) -> None:
    at_database(
        database,
        "INSERT INTO acp_bridge.sessions(name, session_id, cwd, agent, updated_at, prompted,"
        " deleted, changed)"
        f" VALUES ('{FIRST}', '{FIRST}', '/w', 'an-agent', '2026', false, true, 0)",
    )
    code, out, err = ran(home, database_url)
    assert (code, err) == (0, "")
    assert out.startswith(ALL)


def test_a_session_that_a_bridge_has_open_is_named_and_the_others_are_copied(
    ran: Ran, home: Path, tmp_path: Path, database_url: str
) -> None:
    lock = anyio.run(lease.acquire, Journal(home).lock_path(FIRST), 0)
    code, out, err = ran(home, database_url)
    assert code == 1
    assert out.startswith("Sessions: 1 copied, 0 there already, 1 not copied.")
    assert err == f"acp-bridge journal: {FIRST} is not copied: a bridge has it open\n"
    os.close(lock)
    assert ran(home, database_url)[0] == 0
    elsewhere = Journal(tmp_path / "elsewhere")
    anyio.run(elsewhere.prepare)
    lock = anyio.run(lease.acquire, elsewhere.lock_path(FIRST), 0)
    code, _, err = ran(database_url, tmp_path / "elsewhere")
    os.close(lock)
    assert (code, f"{FIRST} is not copied: a bridge has it open" in err) == (1, True)


def test_a_session_that_a_bridge_on_a_machine_has_stays_there(
    ran: Ran, home: Path, tmp_path: Path, database: DatabaseUrl, database_url: str
) -> None:
    ran(home, database_url)
    at_database(
        database,
        "INSERT INTO acp_bridge.bridges VALUES"
        " ('live', 'laptop', '/h', now() + interval '1 hour'),"
        " ('dead', 'tower', '/h', now() - interval '1 s');"
        f"UPDATE acp_bridge.sessions SET owner = 'live' WHERE session_id = '{FIRST}';"
        f"UPDATE acp_bridge.sessions SET owner = 'dead' WHERE session_id = '{SECOND}'",
    )
    code, out, err = ran(database_url, tmp_path / "elsewhere")
    assert code == 1
    assert out.startswith("Sessions: 1 copied, 0 there already, 1 not copied.")
    assert err == f"acp-bridge journal: {FIRST} is not copied: a bridge on laptop has it\n"
    assert not Journal(tmp_path / "elsewhere").lock_path(FIRST).exists()


def test_what_is_damaged_or_gone_is_named_and_hinders_no_other(
    ran: Ran, home: Path, database_url: str
) -> None:
    anyio.run(fill, Journal(home), "gone", "cut", "no session")
    journal = Journal(home)
    journal.path("gone").unlink()
    journal.path("cut").write_bytes(b"SQLite format 3\0" + b"\xaa" * 9000)
    journal.path(FIRST).rename(journal.path("no session"))
    code, out, err = ran(home, database_url)
    assert code == 1
    assert out.startswith("Sessions: 1 copied, 0 there already, 4 not copied.")
    assert "gone is not copied: its file is gone or empty" in err
    assert "cut is not copied: the journal failed: its file is damaged" in err
    assert "its file has the name of another session's" in err
    assert f"{FIRST} is not copied: its file is gone or empty" in err


def test_without_its_list_of_sessions_a_folder_is_copied_but_for_the_deleted(
    ran: Ran, home: Path, database_url: str
) -> None:
    remove(home, "index.db*")
    (home / "index.db").write_bytes(b"SQLite format 3\0" + b"\xaa" * 9000)
    code, out, err = ran(home, database_url)
    assert (code, out.splitlines()[0][:18]) == (1, "Sessions: 2 copied")
    assert "what was deleted is not known" in err


def test_what_is_read_back_otherwise_than_written_is_named(
    ran: Ran, home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = log.store

    async def store(connection: Any, info: SessionInfo, path: Path) -> int:
        fence = await stored(connection, info, path)
        name = file_name(info.session_id)
        write = '[["UPDATE session SET title = NULL", []]]'
        sql = "INSERT INTO acp_bridge.writes VALUES (%s, 1, %s, 0, NULL)"
        await connection.execute(sql, (name, write))
        return fence

    monkeypatch.setattr(log, "store", store)
    code, _, err = ran(home, database_url)
    assert (code, err.count("what was read back is not what was written")) == (1, 2)


def test_a_copy_during_which_the_database_dies_says_so_and_goes_on_later(
    ran: Ran, home: Path, server: Cluster, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = log.store
    calls = 0

    async def store(connection: Any, info: SessionInfo, path: Path) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            server.kill()
        return await stored(connection, info, path)

    monkeypatch.setattr(log, "store", store)
    files = tree(home)
    code, out, err = ran(home, database_url)
    server.start()
    assert tree(home) == files
    assert (code, out) == (1, "")
    assert err == "1 of 4\nacp-bridge journal: the journal failed: the database can't be reached\n"
    code, out, _ = ran(home, database_url)
    assert code == 0
    assert out.startswith("Sessions: 1 copied, 1 there already, 0 not copied.")


def test_json_has_a_line_for_each_session(ran: Ran, home: Path, database_url: str) -> None:
    lock = anyio.run(lease.acquire, Journal(home).lock_path(FIRST), 0)
    code, out, _ = ran("--json", home, database_url)
    os.close(lock)
    assert code == 1
    found = {line["sessionId"]: line for line in map(json.loads, out.splitlines())}
    assert found == {
        FIRST: line_of(FIRST, "refused", why="a bridge has it open"),
        SECOND: line_of(SECOND, "copied"),
        DELETED: line_of(DELETED, "copied", deleted=True),
        f"hidden:an-agent:{DELETED}": line_of(f"hidden:an-agent:{DELETED}", "copied", deleted=True),
    }


def line_of(
    session_id: str, result: str, *, deleted: bool = False, why: str | None = None
) -> dict[str, object]:
    return {"sessionId": session_id, "result": result, "deleted": deleted, "why": why}


def test_a_long_copy_says_how_far_it_is(
    ran: Ran, home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_PAUSE", 0.0)
    assert ran(home, database_url)[2] == "1 of 4\n2 of 4\n3 of 4\n4 of 4\n"


URL = "postgresql://db.invalid/sessions"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a", "b"], "one of FROM and TO is a data folder"),
        ([URL, URL], "pg_dump copies"),
        (["a", "postgresql://me:hush@db.invalid/x"], "comes from .pgpass or PGPASSWORD"),
        (["a", "postgresql:/db.invalid/hush"], "begins with postgresql://"),
        (["a", "mysql://db.invalid/hush"], "begins with postgresql://"),
        (["a"], "required: TO"),
    ],
)
def test_wrong_usage_says_what_can_be_copied_and_repeats_no_password(
    ran: Ran, words: list[str], told: str
) -> None:
    code, out, err = ran(*words)
    assert (code, out) == (2, "")
    assert told in err
    assert "hush" not in err


def test_a_folder_in_which_nothing_is_kept_is_no_source(
    ran: Ran, tmp_path: Path, database_url: str
) -> None:
    code, _, err = ran(tmp_path / "typo", database_url)
    assert (code, "nothing is kept in" in err) == (1, True)
    assert not (tmp_path / "typo").exists()


def test_without_the_extra_one_line_names_it(
    ran: Ran, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_agent, "missing", lambda packages, _: packages)
    code, _, err = ran(home, URL)
    assert (code, err.count("\n")) == (1, 1)
    assert "'acp-stdio-bridge[postgres]'" in err
