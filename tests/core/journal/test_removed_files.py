"""Nothing counts as written once the session's file has been removed, moved or replaced."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_bridge.core.journal import (
    GONE,
    WAL_GONE,
    Journal,
    JournalError,
    PromptState,
    SessionJournal,
    left_queue,
)
from tests.core.journal.conftest import SESSION
from tests.core.journal.files import tree
from tests.core.journal.sayings import chunk, lines, transcript
from tests.core.journal.test_unwritten import END, HELLO, full

Remove = Callable[[Path], object]


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    return on_disk


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


def move_the_file(home: Path) -> None:
    _file(home).rename(home / "elsewhere")


def remove_the_wal(home: Path) -> None:
    _file(home, "-wal").unlink()


def _told(remove: Remove) -> str:
    return re.escape(WAL_GONE if remove is remove_the_wal else GONE)


REMOVALS = [
    remove_home,
    remove_home_and_make_it_anew,
    move_sessions_away,
    restore_a_backup,
    remove_the_file,
    remove_the_wal,
]


@pytest.mark.hazard("K1.2", "Q13.11", "Q13.12")
@pytest.mark.parametrize("remove", REMOVALS)
async def test_no_prompt_is_taken_sent_or_shown_from_another_file(
    home: Path, session: SessionJournal, remove: Remove
) -> None:
    first = session.accept("a", HELLO)
    await session.sync()
    remove(home)
    there = files(home)
    with pytest.raises(JournalError, match=_told(remove)):
        session.accept("b", HELLO)
    with pytest.raises(JournalError):
        session.start_turn(first)
    with pytest.raises(JournalError):
        await transcript(session)
    assert files(home) == there


@pytest.mark.hazard("K1.2")
@pytest.mark.parametrize("remove", REMOVALS)
async def test_a_prompt_whose_file_goes_before_it_is_on_the_disk_is_not_taken(
    home: Path, session: SessionJournal, remove: Remove
) -> None:
    session.accept("a", HELLO)
    remove(home)
    with pytest.raises(JournalError, match=_told(remove)):
        await session.sync()
    assert not session.broken


@pytest.mark.hazard("Q13.12")
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


@pytest.mark.hazard("Q13.12")
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


@pytest.mark.hazard("Q13", "K1")
@pytest.mark.parametrize("removed", [move_sessions_away, move_the_file, remove_the_wal])
async def test_what_a_bridge_leaves_is_whole_once_its_files_are_put_back(
    home: Path, journal: Journal, session: SessionJournal, removed: Remove
) -> None:
    first = session.accept("a", HELLO)
    session.start_turn(first)
    session.record(first, lines(chunk("one", "m")))
    removed(home)
    session.record(first, lines(chunk("two", "n")))
    session.end_prompt(first, END, END)
    await journal.close()
    if removed is move_sessions_away:
        (home / "elsewhere").rename(home / "sessions")
    elif removed is move_the_file:
        (home / "elsewhere").rename(_file(home))
    later = await Journal(home).open(SESSION)
    assert [row.state for row in later.prompts()] == [PromptState.DONE]
    assert (await transcript(later))[1:] == [chunk("one", "m"), chunk("two", "n")]
    await later.close()


@pytest.mark.hazard("Q13.12", "Q13.13", "K2")
@pytest.mark.parametrize("how", ["the file alone", "the folder"])
@pytest.mark.parametrize("by", ["the same bridge", "the next one"])
async def test_a_backup_that_was_restored_meanwhile_is_opened_as_it_was_saved(
    home: Path, journal: Journal, session: SessionJournal, how: str, by: str
) -> None:
    session.set("mode", "ask")
    await session.close()
    shutil.copytree(home, home.with_name("saved"))
    session = await journal.open(SESSION)
    session.set("mode", "auto")
    if how == "the folder":
        shutil.rmtree(home)
        shutil.copytree(home.with_name("saved"), home)
    else:
        home.with_name("saved").joinpath("sessions", f"{SESSION}.db").replace(_file(home))
    left_queue.add(_file(home), 9, left_queue.Went.SENT)
    session.set("mode", "auto")
    await session.close()
    assert left_queue.read(_file(home))
    if by == "the next one":
        await journal.close()
        journal = Journal(home)
    later = await journal.open(SESSION)
    assert later.get("mode") == "ask"
    assert later.prompts() == []
    await journal.close()


@pytest.mark.hazard("Q13.13")
async def test_what_no_file_could_take_goes_into_no_backup_either(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    session.set("mode", "ask")
    await session.close()
    session = await journal.open(SESSION)
    restore_a_backup(home)
    with full(session):
        session.set("mode", "auto")
        await session.close()
    assert (await journal.open(SESSION)).get("mode") == "ask"


@pytest.mark.hazard("Q13.12")
async def test_of_a_removed_wal_it_is_said_that_a_new_load_helps_and_not_that_it_can_be_put_back(
    home: Path, session: SessionJournal
) -> None:
    remove_the_wal(home)
    with pytest.raises(JournalError, match="Close the session, or start your editor again"):
        session.accept("a", HELLO)


@pytest.mark.parametrize("prompted", [True, False])
async def test_a_session_that_is_touched_or_ends_does_not_make_a_removed_folder_again(
    home: Path, journal: Journal, prompted: bool
) -> None:
    session = await journal.create(SESSION, cwd="/project", agent="demo", prompted=prompted)
    remove_home(home)
    await journal.touch(SESSION, title="title")
    await journal.end(SESSION)
    await journal.close()
    assert session.closed
    assert home not in tree(home.parent)


async def test_the_end_of_a_session_without_a_prompt_leaves_a_file_that_was_restored(
    home: Path, journal: Journal
) -> None:
    await journal.create(SESSION, cwd="/project", agent="demo", prompted=False)
    restore_a_backup(home)
    await journal.end(SESSION)
    assert _file(home).is_file()
