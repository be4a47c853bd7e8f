"""Commands that read sessions, with a database: what is there is listed and shown."""

import json
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres.log import UNSUMMED
from acp_bridge.terminal import cli
from acp_bridge.terminal.commands import own_bridge
from tests.terminal.commands.journal.conftest import Ran
from tests.terminal.commands.journal.homes import FIRST, SECOND, at_database

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(
    home: Path,
    tmp_path: Path,
    ran: Ran,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Said:
    """Run a command on another machine, with a database into which the data folder was copied."""
    ran(home, database_url)
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("ACP_BRIDGE_JOURNAL", database_url)

    def said(*words: str) -> tuple[int, str, str]:
        code = cli.run(words)
        found = capsys.readouterr()
        return code, found.out, found.err

    return said


def listed(said: Said, *words: str) -> dict[str, dict[str, object]]:
    code, out, err = said(*words, "--json")
    assert (code, err) == (0, "")
    return {row["sessionId"]: row for row in map(json.loads, out.splitlines())}


def hold(database: DatabaseUrl, session_id: str, until: str = "30 seconds") -> None:
    """Let a bridge of another machine have a session."""
    at_database(
        database,
        "INSERT INTO acp_bridge.bridges VALUES ('o', 'away.example', 'h',"
        f" clock_timestamp() + interval '{until}');"
        f"UPDATE acp_bridge.sessions SET owner = 'o' WHERE session_id = '{session_id}'",
    )


def test_the_sessions_of_a_database_are_listed_and_who_has_one(
    said: Said, database: DatabaseUrl
) -> None:
    rows = listed(said, "sessions")
    assert set(rows) == {FIRST, SECOND}
    assert not any("heldBy" in row for row in rows.values())
    assert "HELD BY" not in said("sessions")[1]
    hold(database, FIRST)
    rows = listed(said, "sessions")
    held = rows[FIRST]["heldBy"]
    assert isinstance(held, dict)
    assert (held["machine"], 0 < held["lease"] <= 30) == ("away.example", True)
    assert "heldBy" not in rows[SECOND]
    _, out, _ = said("sessions")
    assert ("HELD BY" in out, "away.example (" in out) == (True, True)


def test_a_session_whose_lease_is_over_is_held_by_nobody(said: Said, database: DatabaseUrl) -> None:
    hold(database, FIRST, "-1 seconds")
    assert "heldBy" not in listed(said, "sessions")[FIRST]
    assert said("ps")[1] == "No live sessions.\n"


def write(database: DatabaseUrl, session_id: str, sql: str) -> None:
    """Let another machine make a write in a session: a statement without values."""
    statements = json.dumps([[sql, []]]).replace("'", "''")
    at_database(
        database,
        f"INSERT INTO acp_bridge.writes SELECT name, applied + 1, '{statements}', 0, NULL"
        f" FROM acp_bridge.sessions WHERE session_id = '{session_id}';"
        f"UPDATE acp_bridge.sessions SET applied = applied + 1 WHERE session_id = '{session_id}'",
    )


def delete(database: DatabaseUrl, session_id: str) -> None:
    """Let another machine delete a session."""
    at_database(
        database,
        "UPDATE acp_bridge.listing SET changes = changes + 1;"
        "UPDATE acp_bridge.sessions SET deleted = true, changed = changes FROM acp_bridge.listing"
        f" WHERE session_id = '{session_id}'",
    )


def of_model(name: str) -> str:
    """Return the statement that notes the model of the first turn."""
    return f"""INSERT OR REPLACE INTO settings VALUES ('usage:1', '{{"model": "{name}"}}')"""


def copies(tmp_path: Path) -> list[Path]:
    """The copies of sessions that commands have made on the other machine."""
    return [*tmp_path.glob("other/databases/*/read/sessions/*.db")]


def without_summaries(database: DatabaseUrl) -> None:
    """Make the sessions as a bridge leaves them that knows of no summaries, or was killed."""
    at_database(
        database,
        f"UPDATE acp_bridge.sessions SET {UNSUMMED}",
    )


def test_a_session_of_a_database_is_shown_as_it_is_there_now(
    said: Said, database: DatabaseUrl
) -> None:
    code, out, err = said("show", FIRST[:8])
    assert (code, err) == (0, "")
    assert "please" in out
    assert "then (left over)" in out
    hold(database, FIRST)
    assert "then (waiting)" in said("show", FIRST[:8])[1]
    write(database, FIRST, "UPDATE prompt_params SET params = replace(params, 'then', 'later')")
    assert "later (waiting)" in said("show", FIRST[:8])[1]


def test_what_was_deleted_in_a_database_leaves_the_copies_that_were_read(
    said: Said, tmp_path: Path, database: DatabaseUrl
) -> None:
    said("show", FIRST)
    (copy,) = tmp_path.glob("other/databases/*/read/sessions/*.db")
    delete(database, FIRST)
    assert set(listed(said, "sessions")) == {SECOND}
    assert not copy.exists()
    assert said("show", FIRST)[0] == 1


def test_what_was_said_is_found_in_the_sessions_of_a_database(said: Said) -> None:
    code, out, _ = said("sessions", "--search", "then", "--json")
    assert (code, len(out.splitlines())) == (0, 2)


def test_ps_tells_of_sessions_that_another_machine_has(said: Said, database: DatabaseUrl) -> None:
    assert said("ps")[1] == "No live sessions.\n"
    hold(database, FIRST)
    row = listed(said, "ps")[FIRST]
    assert (row["state"], row["title"]) == ("elsewhere", f"Title of {FIRST}")
    code, out, _ = said("ps")
    assert (code, "at away.example (" in out) == (0, True)


def test_what_the_sessions_of_a_database_used_is_summed_up(said: Said) -> None:
    code, out, err = said("cost", "--json")
    assert (code, err) == (0, "")
    (line,) = map(json.loads, out.splitlines())
    assert (line["name"], line["turns"]) == ("an-agent", 2)


ALL = [
    ("cost", "--by", "model", "--json"),
    ("cost", "--by", "session", "--json"),
    ("sessions", "--search", "please", "--json"),
    ("sessions", "--search", "the", "--json"),
    ("sessions", "--search", "Ünusual", "--json"),
]


@pytest.mark.parametrize("words", ALL)
def test_the_database_answers_as_the_files_do_and_no_session_is_fetched(
    said: Said,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    found = said(*words)
    assert (found[0], bool(found[1]), found[2]) == (0, True, "")
    assert not copies(tmp_path)
    monkeypatch.delenv("ACP_BRIDGE_JOURNAL")
    assert said(*words, "--home", str(home)) == found


@pytest.mark.parametrize("words", ALL)
def test_what_nobody_has_summed_up_is_summed_up_once_for_all_machines(
    said: Said,
    tmp_path: Path,
    database: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    expected = said(*words)
    without_summaries(database)
    assert said(*words) == expected
    assert len(copies(tmp_path)) == 2
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "third"))
    assert said(*words) == expected
    assert not [*tmp_path.glob("third/databases/*/read/sessions/*.db")]


@pytest.mark.parametrize("words", ALL[:3:2])
def test_what_has_been_written_since_is_found_anew(
    said: Said, tmp_path: Path, database: DatabaseUrl, words: tuple[str, ...]
) -> None:
    write(database, FIRST, of_model("opus"))
    first = said(*words)
    assert (first[0], first[1].count("\n"), first[2]) == (0, 2, "")
    assert len(copies(tmp_path)) == 1
    write(database, SECOND, of_model("sonnet"))
    write(database, SECOND, "UPDATE prompt_params SET params = replace(params, 'please', 'do')")
    assert said(*words)[1] not in ("", first[1])
    delete(database, FIRST)
    assert FIRST not in said(*words)[1]
    assert "opus" not in said(*words)[1]


def test_a_session_that_a_bridge_has_is_read_as_it_is_and_left_to_the_bridge(
    said: Said, tmp_path: Path, database: DatabaseUrl
) -> None:
    hold(database, FIRST)
    write(database, FIRST, "UPDATE prompt_params SET params = replace(params, 'please', 'do')")
    for _ in range(2):
        code, out, err = said("sessions", "--search", "please", "--json")
        assert (code, err, FIRST in out, SECOND in out) == (0, "", False, True)
        assert len(copies(tmp_path)) == 1
    summed = f"SELECT summary_of = applied FROM acp_bridge.sessions WHERE session_id = '{FIRST}'"
    assert at_database(database, summed) == [(False,)]


@pytest.mark.parametrize("words", ALL)
def test_who_may_only_read_the_database_gets_the_same_answer_of_copies(
    said: Said, tmp_path: Path, database: DatabaseUrl, database_url: str, words: tuple[str, ...]
) -> None:
    expected = said(*words)
    without_summaries(database)
    reader = f"r{tmp_path.name}"[:40].lower().replace("-", "_")
    at_database(
        database,
        f"CREATE ROLE {reader} LOGIN; GRANT USAGE ON SCHEMA acp_bridge TO {reader};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA acp_bridge TO {reader}",
    )
    as_reader = ("--journal", database_url.replace("user=tester", f"user={reader}"))
    for _ in range(2):
        assert said(*words, *as_reader) == expected
    at_database(database, f"DROP OWNED BY {reader}; DROP ROLE {reader}")


def test_cost_keeps_nothing_in_a_data_folder(
    said: Said, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACP_BRIDGE_JOURNAL")
    before = sorted(home.iterdir())
    assert said("cost", "--home", str(home))[0] == 0
    assert sorted(home.iterdir()) == before


def test_a_session_of_a_database_is_exported_with_what_the_built_in_agent_remembers(
    said: Said, tmp_path: Path, database: DatabaseUrl
) -> None:
    at_database(
        database,
        "UPDATE acp_bridge.listing SET changes = changes + 1;"
        "UPDATE acp_bridge.sessions SET agent = 'built-in', agent_session_id = 'mine',"
        f" changed = changes FROM acp_bridge.listing WHERE session_id = '{FIRST}';"
        """INSERT INTO acp_bridge.memories SELECT name, 'mine', 0, '{"remembered": 1}\n'"""
        f" FROM acp_bridge.sessions WHERE session_id = '{FIRST}'",
    )
    file = tmp_path / "session.bundle"
    assert said("export", FIRST, str(file)) == (0, "", "")
    text = file.read_text()
    assert ("please" in text, "remembered" in text) == (True, True)
    assert not [*tmp_path.glob("other/databases/*/read/agent")]


def test_chat_and_run_go_on_with_a_session_of_a_database(said: Said) -> None:
    given = Namespace(**own_bridge.none_given(home=os.environ["ACP_BRIDGE_HOME"]))
    bridge = own_bridge.own_bridge(given, ["an-agent"])
    assert own_bridge.session_to_go_on("run", bridge, FIRST[:8]).session_id == FIRST


def test_import_is_refused_where_sessions_are_kept_in_a_database(
    said: Said, tmp_path: Path
) -> None:
    code, out, err = said("import", str(tmp_path / "session.bundle"))
    assert (code, out) == (1, "")
    assert err.startswith("acp-bridge import: this works on the data folder alone")


@pytest.mark.parametrize("words", [("sessions",), ("show", FIRST), ("ps",), ("cost",)])
def test_a_database_that_cant_be_reached_is_told_in_one_sentence(
    said: Said, tmp_path: Path, words: tuple[str, ...]
) -> None:
    nowhere = f"postgresql:///sessions?host={tmp_path}"
    assert said(*words, "--journal", nowhere) == (
        1,
        "",
        f"acp-bridge {words[0]}: the journal failed: the database can't be reached\n",
    )


def test_a_url_with_a_secret_is_refused_and_not_repeated(
    said: Said,
) -> None:
    code, out, err = said("sessions", "--journal", "postgresql://me:hidden@db.example.org/sessions")
    assert (code, out, "--journal" in err, "hidden" in err) == (2, "", True, False)
