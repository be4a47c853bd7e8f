"""The listing follows the sessions' files, also when it could not be written for a while."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acp_bridge.core.journal import Journal, JournalError, days_ago
from tests.core.journal.files import all_bytes, remove

pytestmark = pytest.mark.hazard("K2", "Q13")
A, B = "a" * 32, "b" * 32


@contextmanager
def full_index(journal: Journal) -> Iterator[None]:
    """No row can be written inside the block."""
    file = journal.index._file
    assert file is not None
    file.db.execute("PRAGMA query_only=1")
    try:
        yield
    finally:
        file.db.execute("PRAGMA query_only=0")


async def titles(journal: Journal) -> list[str | None]:
    return [row.title for row in (await journal.list())[0]]


async def prompted(journal: Journal, session_id: str) -> None:
    """A session gets its first prompt, and the listing can't be told."""
    session = await journal.create(session_id, cwd="/p", agent="demo", prompted=False)
    with full_index(journal):
        session.accept(session_id, {"prompt": []})
        await journal.touch(session_id, title=f"of {session_id[0]}")


@pytest.mark.hazard("Q13.2")
async def test_a_row_that_could_not_be_written_is_written_with_the_next_one(
    journal: Journal, home: Path
) -> None:
    await prompted(journal, A)
    await journal.create(B, cwd="/p", agent="demo")
    other = Journal(home)
    other._rows._looked = True
    assert await titles(other) == [None, "of a"]
    await other.close()


@pytest.mark.hazard("Q13.2", "Q13.3")
async def test_it_is_written_before_the_next_listing_and_at_the_end(
    journal: Journal, home: Path
) -> None:
    await prompted(journal, A)
    assert await titles(journal) == ["of a"]
    await prompted(journal, B)
    await journal.close()
    other = Journal(home)
    other._rows._looked = True
    assert await titles(other) == ["of b", "of a"]
    await other.close()


async def test_after_a_kill_the_first_listing_finds_a_session_that_had_its_first_prompt(
    journal: Journal, home: Path
) -> None:
    await journal.create(B, cwd="/p", agent="demo", prompted=False)
    await prompted(journal, A)
    other = Journal(home)
    assert await titles(other) == ["of a"]
    await other.close()


async def test_a_row_that_waits_does_not_bring_back_a_session_that_was_deleted(
    journal: Journal,
) -> None:
    await prompted(journal, A)
    await journal.delete(A, known=True)
    assert await titles(journal) == []


async def test_a_row_that_is_written_late_does_not_bring_back_what_another_bridge_deleted(
    journal: Journal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await journal.create(B, cwd="/p", agent="demo", prompted=False)
    session.accept("b", {"prompt": []})
    await prompted(journal, A)
    other = Journal(home)

    async def as_before() -> list[str]:
        return [B]

    await other.delete(A, known=True)
    await other.index.remove(B, known=True)  # and its file is about to be removed
    monkeypatch.setattr(other.index, "without_prompt", as_before)
    assert (await titles(journal), await titles(other)) == ([], [])
    await other.close()


async def test_a_session_that_was_set_aside_and_is_made_again_is_listed_late(
    journal: Journal,
) -> None:
    await journal.create(A, cwd="/p", agent="demo", prompted=False)
    await journal.set_aside(A)
    with full_index(journal):
        session = await journal.create(A, cwd="/p", agent="demo", prompted=False)
        session.accept("a", {"prompt": []})
        await journal.touch(A, title="again")
    assert await titles(journal) == ["again"]


async def test_a_session_that_is_just_being_made_is_no_damage(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    journal = Journal(home)
    await journal.create(A, cwd="/p", agent="demo")
    await journal.close()
    remove(home, "index.db*")
    (home / "sessions" / f"{B}.db").touch()
    assert len((await journal.list())[0]) == 1
    assert caplog.text == ""
    await journal.close()


async def test_a_session_that_could_not_be_made_leaves_no_file(
    journal: Journal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await journal.create(A, cwd="/p", agent="demo")
    journal.lock_path(B).touch()
    monkeypatch.setattr("acp_bridge.core.journal.files.sync_path", fail)
    for session_id in (A, B):
        with pytest.raises(JournalError):
            await journal.create(session_id, cwd="/p", agent="demo")
    assert {path.stem for path in (home / "sessions").iterdir()} == {A}


async def test_sessions_without_a_title_hide_none_that_never_had_a_prompt(
    journal: Journal,
) -> None:
    for number in range(60):
        await journal.create(f"{number:032x}", cwd="/p", agent="demo")
    await journal.create(A, cwd="/p", agent="demo", prompted=False)
    assert A in await journal.index.unprompted(days_ago(-1))
    await journal.create(B, cwd="/p", agent="demo", prompted=False)
    assert {A, B} < set(await journal.index.unprompted(days_ago(-1)))


@pytest.mark.hazard("K6.1")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("other_reads", [False, True])
async def test_the_title_of_a_deleted_session_is_nowhere_in_the_files(
    journal: Journal, home: Path, *, known: bool, other_reads: bool
) -> None:
    other = Journal(home)
    for number in range(20):
        session_id = f"{number:032x}"
        await journal.create(session_id, cwd="/p", agent="demo")
        await journal.touch(session_id, title=f"secret of {number:02}")
    for number in range(5, 15):
        if other_reads:
            await other.list()
        await journal.delete(f"{number:032x}", known=known)
    left = all_bytes(home)
    assert [number for number in range(20) if b"secret of %02d" % number in left] == [
        *range(5),
        *range(15, 20),
    ]
    await other.close()
