"""Nothing counts as written once the session's file has been removed, moved or replaced."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_bridge.journal import GONE, Journal, JournalError, SessionJournal
from tests.journal.conftest import SESSION
from tests.journal.sayings import chunk, lines, transcript

HELLO = {"prompt": [{"type": "text", "text": "Hello"}]}
Remove = Callable[[Path], object]


def _file(home: Path, ending: str = "") -> Path:
    return home / "sessions" / f"{SESSION}.db{ending}"


def files(home: Path) -> set[Path]:
    return {path for path in home.rglob("*") if path.is_file() or path.is_symlink()}


def remove_home(home: Path) -> None:
    shutil.rmtree(home)


def remove_home_and_make_it_anew(home: Path) -> None:
    shutil.rmtree(home)
    (home / "sessions").mkdir(parents=True)


def move_sessions_away(home: Path) -> None:
    (home / "sessions").rename(home / "elsewhere")


def restore_a_backup(home: Path) -> None:
    shutil.copy(_file(home), home / "backup")
    (home / "backup").rename(_file(home))


def remove_the_file(home: Path) -> None:
    _file(home).unlink()


def remove_the_wal(home: Path) -> None:
    _file(home, "-wal").unlink()


REMOVALS = [
    remove_home,
    remove_home_and_make_it_anew,
    move_sessions_away,
    restore_a_backup,
    remove_the_file,
    remove_the_wal,
]


@pytest.mark.hazard("K1", "Q13")
@pytest.mark.parametrize("remove", REMOVALS)
async def test_no_prompt_is_taken_sent_or_shown_from_another_file(
    home: Path, session: SessionJournal, remove: Remove
) -> None:
    first = session.accept("a", HELLO)
    await session.sync()
    remove(home)
    there = files(home)
    with pytest.raises(JournalError, match=GONE):
        session.accept("b", HELLO)
    with pytest.raises(JournalError):
        session.start_turn(first)
    with pytest.raises(JournalError):
        await transcript(session)
    assert files(home) == there


@pytest.mark.hazard("K1")
@pytest.mark.parametrize("remove", REMOVALS)
async def test_a_prompt_whose_file_goes_before_it_is_on_the_disk_is_not_taken(
    home: Path, session: SessionJournal, remove: Remove
) -> None:
    session.accept("a", HELLO)
    remove(home)
    with pytest.raises(JournalError, match=GONE):
        await session.sync()
    assert not session.broken


@pytest.mark.hazard("Q13")
@pytest.mark.parametrize("remove", REMOVALS)
async def test_a_turn_whose_file_goes_is_kept_as_one_that_can_not_be_written(
    home: Path, session: SessionJournal, remove: Remove
) -> None:
    first = session.accept("a", HELLO)
    session.start_turn(first)
    remove(home)
    session.record(first, lines(chunk("seen")))
    session.end_prompt(first, {"stopReason": "end_turn"}, None)
    assert session.behind


@pytest.mark.hazard("Q13")
async def test_a_folder_that_comes_back_is_written_as_if_it_had_never_been_away(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    first = session.accept("a", HELLO)
    session.start_turn(first)
    move_sessions_away(home)
    session.record(first, lines(chunk("seen")))
    (home / "elsewhere").rename(home / "sessions")
    session.accept("b", HELLO)
    await session.sync()
    assert not session.behind
    assert chunk("seen") in await transcript(session)


async def test_a_new_session_is_kept_in_the_folder_that_is_made_anew(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    remove_home(home)
    other = await journal.create("f" * 32, cwd="/project", agent="demo")
    other.accept("a", HELLO)
    await other.sync()
    await other.close()
    assert [row.prompt_id for row in (await journal.open("f" * 32)).prompts()] == ["a"]
    listed, _ = await journal.list()
    assert [info.session_id for info in listed] == ["f" * 32]
