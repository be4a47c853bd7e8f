"""What prompts did while nothing could be written is known after a kill of the bridge (Q13)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal, JournalError, SessionJournal, left_queue
from acp_bridge.core.journal.left_queue import Went
from tests.core.journal.conftest import SESSION
from tests.core.journal.sayings import chunk, lines, transcript
from tests.core.journal.test_unwritten import END, HELLO, SAID, full, states

pytestmark = pytest.mark.hazard("Q13", "Q5", "Q6")
CANCELLED = {"stopReason": "cancelled"}
INTERRUPTED = {"interrupted": True}
UNRECORDED = {"unrecorded": True}


async def killed(home: Path) -> SessionJournal:
    """Return the session as the next bridge finds it when the one before was killed."""
    return await Journal(home).open(SESSION)


def links(home: Path) -> list[str]:
    return [path.name for path in (home / "sessions").iterdir() if path.is_symlink()]


def started(session: SessionJournal) -> None:
    session.start_turn(1)


def ended(session: SessionJournal) -> None:
    session.end_prompt(1, END, END)


def cancelled(session: SessionJournal) -> None:
    session.end_prompt(1, CANCELLED, None)


def interrupted(session: SessionJournal) -> None:
    session.end_prompt(1, INTERRUPTED, None)


@pytest.mark.hazard("Q13.8", "Q13.9")
@pytest.mark.parametrize(
    ("before", "meanwhile", "outcome", "words"),
    [
        ([], [started], INTERRUPTED, True),
        ([], [started, ended], UNRECORDED, True),
        ([], [started, cancelled, ended], UNRECORDED, True),
        ([], [started, interrupted], INTERRUPTED, True),
        ([], [cancelled], UNRECORDED, False),
        ([started], [ended], UNRECORDED, True),
        ([started], [interrupted], INTERRUPTED, True),
        ([started, cancelled], [ended], CANCELLED, True),
    ],
)
async def test_it_is_not_offered_again_and_its_words_are_shown_if_the_agent_got_them(
    home: Path,
    session: SessionJournal,
    before: list[Callable[[SessionJournal], None]],
    meanwhile: list[Callable[[SessionJournal], None]],
    outcome: dict[str, Any],
    words: bool,
) -> None:
    session.accept("a", HELLO)
    session.accept("waits", HELLO)
    for step in before:
        step(session)
    with full(session):
        for step in meanwhile:
            step(session)
        seen = await killed(home)
        held = await seen.recover()
    assert [row.seq for row in held] == [2]
    assert seen.prompts()[0].outcome == outcome
    assert await transcript(seen) == ([SAID] if words else [])
    assert links(home) == []
    await seen.close()


async def test_nothing_is_named_while_all_can_be_written_and_nothing_once_it_is(
    home: Path, session: SessionJournal
) -> None:
    for name in ("a", "b"):
        session.accept(name, HELLO)
    session.start_turn(1)
    session.end_prompt(1, END, END)
    assert links(home) == []
    with full(session):
        session.start_turn(2)
        assert links(home) == [f"{SESSION}.left"]
    session.catch_up()
    assert links(home) == []
    assert states(session) == ["done", "sent"]


@pytest.mark.hazard("Q13.10")
async def test_what_cannot_be_named_either_must_not_be_sent_and_an_end_is_kept_all_the_same(
    session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, seq: int, went: Went) -> None:
        raise OSError(30, "read-only")

    monkeypatch.setattr(left_queue, "add", refuse)
    session.accept("a", HELLO)
    session.accept("b", HELLO)
    session.start_turn(1)
    with full(session):
        with pytest.raises(JournalError):
            session.start_turn(2)
        assert not session.behind
        session.end_prompt(1, END, END)
    session.record(0, lines(chunk("after")))
    assert states(session) == ["done", "waiting"]


async def test_what_the_same_bridge_kept_in_memory_is_written_once(
    journal: Journal, home: Path, session: SessionJournal
) -> None:
    session.accept("a", HELLO)
    with full(session):
        session.start_turn(1)
        session.end_prompt(1, END, END)
        await session.close()
        assert links(home) != []
    again = await journal.open(SESSION)
    await again.recover()
    assert again.prompts()[0].outcome == END
    assert await transcript(again) == [SAID]
    assert links(home) == []


async def test_a_deleted_session_leaves_no_names(
    journal: Journal, home: Path, session: SessionJournal
) -> None:
    session.accept("a", HELLO)
    with full(session):
        session.start_turn(1)
        left_queue.draft_of(journal.path(SESSION)).symlink_to("1")  # left by a kill
        await journal.delete(SESSION, known=True)
    assert [*(home / "sessions").iterdir()] == []


@pytest.mark.parametrize("target", ["", "x", "1", "1s,,", "-1", "9" * 40 + "1", "17"])
def test_names_that_cannot_be_read_name_nothing(tmp_path: Path, target: str) -> None:
    path = tmp_path / "s.db"
    if target:
        left_queue.link_of(path).symlink_to(target)
    assert left_queue.read(path) == {}
    left_queue.add(path, 2, Went.SENT)
    left_queue.add(path, 3, Went.ENDED)
    left_queue.add(path, 2, Went.ENDED)
    assert left_queue.read(path) == {2: Went.SENT | Went.ENDED, 3: Went.ENDED}
    left_queue.clear(path)
    left_queue.clear(path)
    assert [*tmp_path.iterdir()] == []
