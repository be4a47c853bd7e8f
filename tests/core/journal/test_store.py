"""The folder of sessions: made safely, listed in order, opened only if they are there."""

import shutil
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.journal import (
    BadCursor,
    Journal,
    JournalError,
    SessionJournal,
    UnknownSession,
)
from acp_bridge.core.journal import index as index_module
from acp_bridge.core.journal.records import file_name
from tests.core.journal.conftest import SESSION
from tests.core.journal.files import mode, remove, tree
from tests.core.journal.sayings import chunk, lines, transcript


async def add(journal: Journal, number: int, cwd: str = "/project", agent: str = "demo") -> str:
    session_id = f"{number:032x}"
    await journal.create(session_id, cwd=cwd, agent=agent)
    return session_id


async def listed(journal: Journal, cursor: str | None = None) -> list[str]:
    return [row.session_id for row in (await journal.list(cursor=cursor))[0]]


async def test_a_created_session_is_listed_and_opens_in_another_bridge(
    journal: Journal, home: Path
) -> None:
    made = await journal.create("s", cwd="/project", agent="demo", agent_session_id="0")
    await journal.touch("s", title="A title")
    await made.close()
    other = Journal(home)
    again = await other.open("s")
    assert again.info == made.info
    (row,), cursor = await other.list(cwd="/project")
    assert (row.session_id, row.title, row.updated_at) == ("s", "A title", made.info.updated_at)
    assert cursor is None
    await other.close()


@pytest.mark.hazard("R2.1")
async def test_an_unknown_session_is_an_error_and_makes_no_file(
    journal: Journal, session: SessionJournal, home: Path
) -> None:
    before = tree(home)
    with pytest.raises(UnknownSession):
        await journal.open("nobody")
    assert tree(home) == before


async def test_a_session_is_created_once(journal: Journal, session: SessionJournal) -> None:
    with pytest.raises(JournalError):
        await journal.create(SESSION, cwd="/other", agent="demo")
    await session.close()
    with pytest.raises(JournalError):
        await journal.create(SESSION, cwd="/other", agent="demo")
    assert (await journal.open(SESSION)).info.cwd == "/project"


async def test_a_file_that_a_crash_left_empty_is_no_session_and_can_become_one(
    journal: Journal, session: SessionJournal
) -> None:
    journal.path("s").touch()
    with pytest.raises(UnknownSession):
        await journal.open("s")
    await journal.create("s", cwd="/project", agent="demo")
    assert set(await listed(journal)) == {"s", SESSION}


async def test_opening_a_session_twice_at_once_gives_the_same_journal(
    journal: Journal, session: SessionJournal
) -> None:
    await session.close()
    opened: list[SessionJournal] = []

    async def open_it() -> None:
        opened.append(await journal.open(SESSION))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_it)
            tasks.start_soon(open_it)
    assert opened[0] is opened[1]


async def test_files_and_folders_are_for_their_owner_only(
    journal: Journal, session: SessionJournal, home: Path
) -> None:
    session.record(1, lines(chunk("x")))
    modes = {path.name: mode(path) for path in tree(home)}
    assert {name for name, mode in modes.items() if mode == 0o700} == {"home", "sessions"}
    private = modes.keys() - {"home", "sessions"}
    assert {modes[name] for name in private} == {0o600}
    assert {f"{SESSION}.db", f"{SESSION}.db-wal", f"{SESSION}.db-shm", "index.db"} <= private


@given(st.text(), st.text())
def test_every_session_id_has_a_safe_file_name_of_its_own(one: str, other: str) -> None:
    assert file_name(one).isascii()
    assert file_name(one).isalnum()
    assert len(file_name(one)) < 60
    assert (file_name(one) == file_name(other)) == (one == other)


@pytest.mark.parametrize("session_id", ["../../x", "", "a/b", "ä\x00", "X" * 5000, "CON"])
async def test_any_text_may_be_a_session_id(journal: Journal, session_id: str) -> None:
    made = await journal.create(session_id, cwd="/project", agent="demo")
    made.record(1, lines(chunk("x")))
    await made.close()
    assert await transcript(await journal.open(session_id)) == [chunk("x")]
    assert await listed(journal) == [session_id]


async def test_sessions_are_listed_newest_first_in_pages(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "PAGE_ROWS", 3)
    ids = [await add(journal, number) for number in range(7)]
    first, cursor = await journal.list()
    second, cursor = await journal.list(cursor=cursor)
    third, end = await journal.list(cursor=cursor)
    assert [row.session_id for row in first + second + third] == ids[::-1]
    assert end is None


async def test_a_session_made_between_two_pages_moves_none(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "PAGE_ROWS", 2)
    ids = [await add(journal, number) for number in range(4)]
    first, cursor = await journal.list()
    await add(journal, 9)
    second = await listed(journal, cursor)
    assert [row.session_id for row in first] + second == ids[::-1]


async def test_a_listing_may_be_of_one_folder_or_agent_only(journal: Journal) -> None:
    one = await add(journal, 1, cwd="/a")
    two = await add(journal, 2, cwd="/b", agent="other")
    assert [row.session_id for row in (await journal.list(cwd="/a"))[0]] == [one]
    assert [row.session_id for row in (await journal.list(agent=AgentIdentity("other")))[0]] == [
        two
    ]
    assert (await journal.list(cwd="/unused")) == ([], None)


@pytest.mark.parametrize("cursor", ["", "x", "!!!!", "W10=", "WzEsMl0=", "ä", "WyJcdWQ4MDAiXQ=="])
async def test_a_cursor_that_is_none_of_ours_is_an_error(journal: Journal, cursor: str) -> None:
    await add(journal, 1)
    with pytest.raises(BadCursor):
        await journal.list(cursor=cursor)


async def test_touching_a_session_brings_it_to_the_top_and_keeps_what_is_not_named(
    journal: Journal,
) -> None:
    old, _ = await add(journal, 1), await add(journal, 2)
    await journal.touch(old, title="New title", agent_session_id="7")
    await journal.touch(old)
    (row, _), _ = await journal.list()
    assert (row.session_id, row.title, row.agent_session_id) == (old, "New title", "7")
    await (await journal.open(old)).close()
    info = (await journal.open(old)).info
    assert (info.title, info.updated_at) == ("New title", row.updated_at)
    with pytest.raises(UnknownSession):
        await journal.touch("nobody", title="x")


async def test_the_agents_session_ids_are_known_for_that_agent(journal: Journal) -> None:
    await journal.create("a", cwd="/p", agent="one", agent_session_id="0")
    await journal.create("b", cwd="/p", agent="two", agent_session_id="0")
    await journal.create("c", cwd="/p", agent="one")
    assert await journal.known_agent_ids(AgentIdentity("one")) == {"0"}


async def test_a_deleted_session_leaves_no_file_and_deleting_again_succeeds(
    journal: Journal, session: SessionJournal, home: Path
) -> None:
    journal.lock_path(SESSION).touch()
    for _ in range(2):
        await journal.delete(SESSION, known=True)
    assert await listed(journal) == []
    assert tree(home / "sessions") == [home / "sessions"]
    with pytest.raises(UnknownSession):
        await journal.open(SESSION)
    await journal.create(SESSION, cwd="/again", agent="demo")
    assert await listed(journal) == [SESSION]


async def test_a_session_that_a_killed_bridge_left_is_deleted_with_its_log(
    session: SessionJournal, home: Path
) -> None:
    session.record(1, lines(chunk("x")))  # and `session` is never closed in order
    other = Journal(home)
    await other.delete(SESSION, known=True)
    assert tree(home / "sessions") == [home / "sessions"]
    again = await other.create(SESSION, cwd="/again", agent="demo")
    assert await transcript(again) == []
    await other.close()


@pytest.mark.hazard("R2")
async def test_a_file_under_another_sessions_name_is_not_that_session(
    journal: Journal, session: SessionJournal
) -> None:
    await session.close()
    shutil.copy(journal.path(SESSION), journal.path("other"))
    with pytest.raises(UnknownSession):
        await journal.open("other")


async def test_a_lost_index_is_made_again_from_the_sessions(
    journal: Journal, session: SessionJournal, home: Path
) -> None:
    await journal.close()
    remove(home, "index.db*")
    again = Journal(home)
    assert await listed(again) == [SESSION]
    await again.open(SESSION)
    assert await listed(again) == [SESSION]
    await again.close()


async def test_an_index_that_can_not_be_used_keeps_no_session_from_opening(
    journal: Journal, session: SessionJournal, home: Path
) -> None:
    session.record(1, lines(chunk("x")))
    await journal.close()
    remove(home, "index.db*")
    (home / "index.db").mkdir()
    again = Journal(home)
    assert await transcript(await again.open(SESSION)) == [chunk("x")]
    with pytest.raises(JournalError):
        await again.list()
    await again.close()


async def test_a_home_that_can_not_be_made_is_a_journal_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    journal = Journal(tmp_path / "file" / "home")
    with pytest.raises(JournalError):
        await journal.create("s", cwd="/p", agent="demo")
    with pytest.raises(JournalError):
        await journal.list()
    with pytest.raises(JournalError):
        await journal.prepare()
    await journal.close()


async def test_of_sessions_that_were_closed_or_deleted_nothing_stays_in_memory(
    journal: Journal,
) -> None:
    for number in range(3):
        await add(journal, number)
    await (await journal.open(f"{0:032x}")).close()
    await journal.delete(f"{1:032x}", known=True)
    with pytest.raises(UnknownSession):
        await journal.open("nobody")
    assert journal._open.keys() == {f"{2:032x}"}
    assert len(journal._locks) == 0
    await journal.close()
    assert journal._open == {}


async def test_a_replay_of_a_session_that_is_deleted_meanwhile_ends_with_an_error(
    journal: Journal, session: SessionJournal
) -> None:
    for number in range(3):
        session.record(1, lines(chunk("x" * 40_000, f"m{number}")))
    replay = session.replay()
    assert len(await anext(replay)) == 1
    await journal.delete(SESSION, known=True)
    with pytest.raises(JournalError):
        await anext(replay)
