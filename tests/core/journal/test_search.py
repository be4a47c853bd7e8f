"""What was said is found by an index beside the sessions, which no bridge waits for."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal, JournalError, SessionJournal, history, search
from acp_bridge.core.journal.connection import connect
from acp_bridge.core.journal.index import locked
from acp_bridge.core.protocol import with_own_meta
from tests.core.journal.conftest import SESSION
from tests.core.journal.files import all_bytes, mode
from tests.core.journal.sayings import chunk, lines

OTHER = "0" * 31 + "2"


def prompt(text: str) -> dict[str, Any]:
    return {"prompt": [{"type": "text", "text": text}]}


def find(home: Path, text: str) -> dict[str, str]:
    journal = Journal(home)
    stems = [path.stem for path in (home / "sessions").glob("*.db")]
    paths = {stem: journal.path(stem) for stem in stems}
    return search.search(home, paths, text, lambda *_: None)


def say(session: SessionJournal, *texts: str) -> int:
    """A turn that has ended, with a message for each text."""
    seq = session.accept(f"p{session.prompts()}", prompt("please"))
    session.start_turn(seq)
    for number, text in enumerate(texts):
        session.record(seq, lines(chunk(text, f"m{seq}-{number}")))
    session.end_prompt(seq, {}, {})
    return seq


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("empty parser", True),
        ("EMPT pars", True),
        ('"on empty lines"', True),
        ('"on lines"', False),
        ('"empty lin"', False),
        ('fails "empty lines" parser', True),
        ("parser nothing", False),
        ("cafe", True),
        ('fails "empty', True),
        ("parser.py", True),
        ("-fails", True),
        ("said:fails", False),
        ("fails NOT parser", False),
        ("fails OR nothing", False),
        ("NEAR(parser fails)", False),
        ("^parser ++ (", True),
        ("*", False),
        ("", False),
        ("fails\udce9", True),
    ],
)
def test_words_and_phrases_are_found_and_no_text_is_a_syntax(text: str, found: bool) -> None:
    asked = search.Asked.read(text)
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(search._TABLES)
        db.execute("INSERT INTO said(text) VALUES ('parser.py fails on empty lines, at the café')")
        sql = "SELECT 1 FROM said WHERE said MATCH ?"
        assert bool(asked.query and db.execute(sql, (asked.query,)).fetchall()) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("検索", True),
        ("検", True),
        ("テキスト", True),
        ("索検", False),
        ('"テキストを検索"', True),
        ("parserを", True),
        ("parse", True),
        ("する", True),
        ("ไทย", True),
        ("ทยไ", False),
    ],
)
async def test_words_are_found_where_a_script_has_no_spaces(
    home: Path, session: SessionJournal, text: str, found: bool
) -> None:
    said = "日本語のテキストを検索するparserを, ภาษาไทย"
    say(session, said)
    assert find(home, text) == ({session.info.session_id: said} if found else {})


async def test_a_place_in_a_script_without_spaces_is_shown_as_it_was_said(
    home: Path, session: SessionJournal
) -> None:
    say(session, "前 " * 50 + "これは検索" + "です。" * 50)
    (place,) = find(home, "検索").values()
    assert place.startswith("...前 前")
    assert "前 これは検索です。です。" in place
    assert "\u200b" not in place


async def test_a_place_is_shown_with_the_words_around_it(
    home: Path, session: SessionJournal
) -> None:
    say(session, "word " * 50 + "then the Parser\nfailed on " + "line " * 50)
    (place,) = find(home, '"parser failed"').values()
    assert place.startswith("...word word")
    assert "word then the Parser\nfailed on line" in place
    assert place.endswith("line...")


async def test_what_a_bridge_writes_is_found_at_once_and_no_write_waits(
    home: Path, session: SessionJournal
) -> None:
    say(session, "one")
    assert [*find(home, "one")] == [SESSION]
    with locked(home / "search.db"):
        say(session, "two")  # a search holds its file
    session.accept("waits", prompt("then this"))
    with closing(connect(Journal(home).path(SESSION), wait=0)) as other:
        other.execute("BEGIN IMMEDIATE")  # a bridge writes
        assert [*find(home, "two")] == [*find(home, '"then this"')] == [SESSION]
    assert {mode(home / name) for name in ("search.db", "search.lock")} == {0o600}


async def test_a_session_is_read_again_from_where_it_was(
    home: Path, session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def snapshot(path: Path, after: int = 0) -> Any:
        read.append(after)
        return whole(path, after)

    whole = history.snapshot
    monkeypatch.setattr(search, "snapshot", snapshot)
    seq = say(session, "first", "half of a mess")
    assert [*find(home, "mess")] == [SESSION]
    session.record(seq, lines(chunk("age", f"m{seq}-1")))
    assert [*find(home, '"half of a message"')] == [SESSION]
    await session.compact(seq)
    say(session, "second")
    assert [*find(home, "second first")] == []
    assert [*find(home, "first")] == [*find(home, "second")] == [SESSION]
    assert read[:3] == [0, 0, 0]
    assert len({*read[3:]}) == 1
    assert read[3] > 0
    with closing(sqlite3.connect(home / "search.db")) as db:
        said = [text for (text,) in db.execute("SELECT text FROM said ORDER BY rowid")]
    assert said == ["please", "first", "half of a message", "please", "second"]


async def test_a_session_that_has_not_changed_is_not_read(
    home: Path, session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(session, "first")
    path = Journal(home).path(SESSION)
    await session.close()
    os.utime(path, (1, 1))
    assert [*find(home, "first")] == [SESSION]
    monkeypatch.setattr(search, "snapshot", None)
    assert [*find(home, "first")] == [SESSION]


async def test_what_a_deleted_session_said_leaves_the_file_at_once(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    other = await journal.create(OTHER, cwd="/project", agent="demo")
    say(session, "xylophone", "zanzibar")
    say(other, "kept")
    assert [*find(home, "zanzi")] == [SESSION]
    assert b"zanzibar" in all_bytes(home)
    await journal.delete(SESSION, known=False)
    for word in (b"zanzibar", b"xylophone", b"anzibar"):
        assert word not in all_bytes(home)
    assert [*find(home, "kept")] == [OTHER]


async def test_what_a_session_said_whose_file_was_removed_leaves_with_the_next_search(
    home: Path, session: SessionJournal
) -> None:
    say(session, "zanzibar")
    assert [*find(home, "zanzi")] == [SESSION]
    await session.close()
    Journal(home).path(SESSION).unlink()
    assert find(home, "zanzi") == {}
    assert b"zanzibar" not in (home / "search.db").read_bytes()


async def test_a_session_that_is_deleted_while_it_is_read_does_not_come_back(
    home: Path, journal: Journal, session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(session, "zanzibar")
    await session.close()
    path = journal.path(SESSION)

    def deleted(*given: Any) -> Any:
        read = whole(*given)
        path.unlink()
        return read

    whole = search._read
    monkeypatch.setattr(search, "_read", deleted)
    assert find(home, "zanzi") == {}
    assert b"zanzibar" not in (home / "search.db").read_bytes()


async def test_words_that_were_edited_away_leave_the_file(
    home: Path, session: SessionJournal
) -> None:
    seq = session.accept("p1", prompt("zanzibar first"))
    assert [*find(home, "zanzi")] == [SESSION]
    session.edit(seq, prompt("madagascar first"))
    assert find(home, "zanzi") == {}
    assert [*find(home, "madagascar")] == [SESSION]
    assert b"zanzibar" not in (home / "search.db").read_bytes()


async def test_words_that_were_sent_taken_back_and_edited_leave_the_file(
    home: Path, session: SessionJournal
) -> None:
    turn = say(session, "one")
    seq = session.accept("p1", prompt("zanzibar first"))
    session.start_steering(seq, turn)
    await session.compact(turn)
    assert [*find(home, "zanzi")] == [SESSION]
    session.return_to_queue(seq)
    session.edit(seq, prompt("madagascar first"))
    assert find(home, "zanzi") == {}
    assert b"zanzibar" not in (home / "search.db").read_bytes()


async def test_what_only_the_agent_was_given_is_not_found(
    home: Path, session: SessionJournal
) -> None:
    session.record(1, lines(with_own_meta(chunk("zanzibar"), {"context": True})))
    say(session, "one")
    assert find(home, "zanzi") == {}


async def test_a_session_whose_file_was_replaced_is_read_anew(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    seq = say(session, "zanzibar")
    await session.compact(seq)
    other = await journal.create(OTHER, cwd="/project", agent="demo")
    await other.compact(say(other, "madagascar"))
    await session.close()
    await other.close()
    assert [*find(home, "zanzi")] == [SESSION]
    journal.path(SESSION).write_bytes(journal.path(OTHER).read_bytes())
    assert find(home, "zanzi") == {}
    assert {*find(home, "madagascar")} == {SESSION, OTHER}
    assert b"zanzibar" not in (home / "search.db").read_bytes()


@pytest.mark.parametrize("content", [b"", b"nothing of SQLite's" * 100, b"version", b"damage"])
async def test_an_index_that_is_damaged_or_of_another_version_is_made_again(
    home: Path, session: SessionJournal, content: bytes
) -> None:
    say(session, "one")
    find(home, "one")
    file = home / "search.db"
    if content == b"version":
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA user_version=77")
    elif content == b"damage":
        with closing(sqlite3.connect(file, isolation_level=None)) as db:
            db.execute("DELETE FROM said_data")
    else:
        file.write_bytes(content)
    assert [*find(home, "one")] == [SESSION]
    assert mode(file) == 0o600


async def test_an_index_that_cannot_be_used_is_said_and_hinders_no_delete(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    say(session, "one")
    (home / "search.db").mkdir()
    with pytest.raises(JournalError, match="can't be searched"):
        find(home, "one")
    await journal.delete(SESSION, known=False)
    assert not journal.path(SESSION).exists()


async def test_a_damaged_session_hides_no_other(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    say(session, "one")
    (home / "sessions" / f"{OTHER}.db").write_bytes(b"nothing of SQLite's" * 100)
    assert [*find(home, "one")] == [SESSION]
