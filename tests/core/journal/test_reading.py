"""Commands read what is kept beside bridges that write, and change nothing of it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import IndexUnusable, Journal, SessionJournal, UnknownSession, history
from acp_bridge.core.journal.connection import connect
from acp_bridge.core.journal.reading import all_sessions, transcript, waiting_prompts
from acp_bridge.core.records import replace
from tests.core.journal.conftest import SESSION
from tests.core.journal.files import all_bytes, tree
from tests.core.journal.sayings import chunk, lines, text_of
from tests.core.journal.test_damage import closed_session, overwrite, word

PROMPT = {"prompt": [{"type": "text", "text": "hello"}]}


def texts(home: Path) -> list[str]:
    return [text_of(params) for params in transcript(home, SESSION)]


def content(home: Path) -> dict[str, bytes]:
    """The files of a home but for those that SQLite shares between processes."""
    found = [path for path in tree(home) if path.is_file() and path.suffix != ".db-shm"]
    return {str(path): path.read_bytes() for path in found}


async def test_a_session_is_listed_and_read_while_its_bridge_writes(
    home: Path, session: SessionJournal
) -> None:
    seq = session.accept("p1", PROMPT)
    session.start_turn(seq)
    session.record(seq, lines(chunk("one ", "m"), chunk("two", "m")))
    session.record(seq, lines(chunk(" three", "m")))
    (info,) = all_sessions(home)
    assert (info.session_id, info.cwd, info.agent) == (SESSION, "/project", "demo")
    assert texts(home) == ["hello", "one two three"]
    session.record(seq, lines(chunk("!", "m")))
    assert texts(home) == ["hello", "one two three!"]


async def test_reading_changes_no_file_of_a_home_that_is_at_rest(
    home: Path, journal: Journal
) -> None:
    await closed_session(journal, 3)
    await journal.close()
    before = content(home), [*tree(home)]
    assert len(all_sessions(home)) == 1
    assert texts(home) == [word(0), word(1), word(2)]
    assert waiting_prompts(home, SESSION) == []
    assert (content(home), [*tree(home)]) == before


async def test_what_a_killed_bridge_left_is_read_and_left_as_it_is(
    home: Path, session: SessionJournal, tmp_path: Path
) -> None:
    session.accept("p1", PROMPT)
    session.record(1, lines(chunk("said")))
    killed = tmp_path / "killed"
    shutil.copytree(home, killed, ignore=shutil.ignore_patterns("*-shm"))
    before = content(killed)
    assert texts(killed) == ["said"]
    assert [row.params for row in waiting_prompts(killed, SESSION)] == [PROMPT]
    assert len(all_sessions(killed)) == 1
    assert content(killed) == before


async def test_a_transcript_is_of_one_moment_though_its_rows_are_joined_meanwhile(
    home: Path, session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(600):  # several pages
        session.record(1, lines(chunk(f"{number} ", "m")))
    path, page, pages = Journal(home).path(SESSION), history._page, list[int]()

    def then_joined(*of: Any) -> Any:
        """Read a page; after the first one, do what a bridge does behind each turn."""
        found = page(*of)
        if not pages:
            with closing(connect(path, wait=5)) as bridge:
                whole = lines(chunk("".join(f"{n} " for n in range(600)), "m"))
                bridge.execute("BEGIN")
                bridge.execute("DELETE FROM updates")
                bridge.execute("INSERT INTO updates VALUES (600, 1, ?)", (whole,))
                bridge.execute("COMMIT")
        pages.append(len(found))
        return found

    monkeypatch.setattr(history, "_page", then_joined)
    assert texts(home) == ["".join(f"{n} " for n in range(600))]
    assert len(pages) > 1


@pytest.mark.hazard("K2.2")
async def test_damage_in_a_session_hides_nothing_else_of_it(home: Path, journal: Journal) -> None:
    path = await closed_session(journal, 30, size=600)
    await journal.close()
    at = all_bytes(path.parent).find(word(11).encode())
    assert at > 0
    overwrite(path, at // 1024 * 1024, b"\xa5" * 1024)
    found = texts(home)
    assert {word(0), word(29)} <= {text[:9] for text in found}
    assert len(found) >= 26


async def test_a_missing_or_damaged_index_hides_no_session(home: Path, journal: Journal) -> None:
    await closed_session(journal, 1)
    await journal.close()
    index = home / "index.db"
    for damage in (b"not a database at all" * 100, b"", None):
        if damage is None:
            index.unlink()
        else:
            index.write_bytes(damage)
        assert [info.session_id for info in all_sessions(home)] == [SESSION]
        assert index.exists() == (damage is not None)


@pytest.mark.parametrize("column", ["title", "updated_at", "cwd", "session_id"])
async def test_a_row_of_the_index_that_holds_no_text_hides_no_other(
    home: Path, journal: Journal, column: str
) -> None:
    await closed_session(journal, 1)
    await journal.index.put(replace(all_sessions(home)[0], session_id="odd"))
    await journal.close()
    with closing(sqlite3.connect(home / "index.db")) as db, db:
        db.execute(f"UPDATE sessions SET {column} = x'00ff' WHERE session_id = 'odd'")
    assert [info.session_id for info in all_sessions(home)] == [SESSION]
    again = Journal(home)
    page, _ = await again.index.page(None, None, None)
    await again.close()
    assert [info.session_id for info in page] == [SESSION]


async def test_a_session_without_a_prompt_is_listed_once_its_file_has_one(
    home: Path, journal: Journal
) -> None:
    session = await journal.create(SESSION, cwd="/w", agent="a", prompted=False)
    assert all_sessions(home) == []
    session.accept("p", PROMPT)  # the bridge is killed before the row says so
    assert [info.session_id for info in all_sessions(home)] == [SESSION]


async def test_an_index_of_a_newer_version_is_refused(home: Path, journal: Journal) -> None:
    await closed_session(journal, 1)
    await journal.close()
    data = bytearray((home / "index.db").read_bytes())
    data[60:64] = (99).to_bytes(4, "big")  # user_version
    (home / "index.db").write_bytes(data)
    with pytest.raises(IndexUnusable, match="newer"):
        all_sessions(home)


def test_a_home_in_which_nothing_was_kept_has_no_sessions(home: Path) -> None:
    assert all_sessions(home) == []
    with pytest.raises(UnknownSession):
        next(transcript(home, SESSION))
    assert not home.exists()


def test_a_home_that_is_no_folder_is_not_said_to_have_no_sessions(home: Path) -> None:
    home.write_text("no folder")
    with pytest.raises(IndexUnusable, match=r"can't be read: .*Not a directory"):
        all_sessions(home)


def test_a_damaged_list_beside_a_folder_that_can_not_be_read_is_told(home: Path) -> None:
    home.mkdir()
    (home / "index.db").write_bytes(b"no database" * 100)
    (home / "sessions").write_text("no folder")
    with pytest.raises(IndexUnusable, match=r"can't be read: .*Not a directory"):
        all_sessions(home)
