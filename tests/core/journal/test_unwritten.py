"""What could not be written is kept, in order, and written before anything else (invariant Q13)."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal, JournalError, PromptState, SessionJournal, file
from acp_bridge.core.protocol import without_prompt_id
from tests.core.journal.conftest import SESSION
from tests.core.journal.sayings import chunk, lines, text_of, transcript

END = {"stopReason": "end_turn"}
HELLO = {"prompt": [{"type": "text", "text": "Hello"}]}
SAID = chunk("Hello", kind="user_message_chunk")


@contextmanager
def full(session: SessionJournal) -> Iterator[None]:
    """No write of any kind works inside the block."""
    db = session._file.db
    db.execute("PRAGMA query_only=1")
    try:
        yield
    finally:
        if not session.closed:
            db.execute("PRAGMA query_only=0")


async def reopened(journal: Journal, session: SessionJournal) -> SessionJournal:
    await session.close()
    again = await journal.open(session.info.session_id)
    await again.recover()
    return again


def states(session: SessionJournal) -> list[str]:
    return [str(row.state) for row in session.prompts()]


@pytest.mark.hazard("Q13.4", "Q5.2", "Q6")
async def test_a_turn_that_began_and_ended_while_nothing_could_be_written_is_answered_for_good(
    journal: Journal, session: SessionJournal
) -> None:
    seq = session.accept("a", HELLO)
    with full(session):
        session.start_turn(seq)
        session.record(seq, lines(chunk("answer")))
        session.end_prompt(seq, END, END)
        assert session.behind
        assert session.turns_finished() == 1
        with pytest.raises(JournalError):
            session.accept("b", HELLO)
    assert states(session) == ["waiting"]
    session.accept("b", HELLO)
    assert not session.behind
    assert states(session) == ["done", "waiting"]
    again = await reopened(journal, session)
    first, second = again.prompts()
    assert (first.state, first.outcome, first.agent_outcome) == (PromptState.DONE, END, END)
    assert second.state is PromptState.LEFT_OVER
    assert await transcript(again) == [SAID, chunk("answer")]


#: each way to write, or to give up writing, after the disk has space again.
NEXT: dict[str, Callable[[SessionJournal], object]] = {
    "accept": lambda session: session.accept("next", {}),
    "record": lambda session: session.record(0, lines(chunk("next"))),
    "set": lambda session: session.set("key", 1),
    "add_ids": lambda session: session.add_ids(["id"]),
    "change_info": lambda session: session.change_info(title="next"),
    "drop": lambda session: session.drop(2),
    "release": lambda session: session.release(2),
    "hold": lambda session: session.leave_over(3),
    "start_turn": lambda session: session.start_turn(3),
    "end_prompt": lambda session: session.end_prompt(3, END, None),
    "recover": lambda session: session.recover(),
    "sync": lambda session: session.sync(),
    "catch_up": lambda session: session.catch_up(),
    "close": lambda session: session.close(),
}


@pytest.mark.hazard("Q13.2")
@pytest.mark.parametrize("what", NEXT)
async def test_whatever_is_written_next_what_was_kept_is_written_before(
    journal: Journal, session: SessionJournal, what: str
) -> None:
    for name in ("a", "b", "c"):
        session.accept(name, HELLO)
    session.leave_over(2)
    with full(session):
        session.start_turn(1)
        session.end_prompt(1, END, END)
    result: Any = NEXT[what](session)
    if hasattr(result, "__await__"):
        await result
    if what != "close":
        assert not session.behind
        assert states(session)[0] == "done"
    again = await reopened(journal, session)
    assert again.prompts()[0].outcome == END
    assert (await transcript(again))[0] == SAID


@pytest.mark.hazard("Q13.1")
async def test_updates_that_are_kept_are_of_the_turn_in_which_they_were_shown(
    session: SessionJournal,
) -> None:
    turns = [session.accept(name, HELLO) for name in ("a", "b")]
    for turn in turns:
        session.start_turn(turn)
    with full(session):
        for turn in turns:
            session.record(turn, lines(chunk(f"of {turn}")))
    session.catch_up()
    for turn in turns:
        shown = [params async for page in session.replay(turn=turn) for params in page]
        assert [text_of(each) for each in shown][1:] == [f"of {turn}"]


@pytest.mark.hazard("Q13", "R10")
@pytest.mark.parametrize(
    ("said", "finished"),
    [(END, 1), ({"stopReason": "cancelled"}, 0), ({"error": {"code": -32603}}, 0), (None, 0)],
)
async def test_of_turns_that_are_not_written_yet_those_that_the_agent_ended_well_count(
    session: SessionJournal, said: dict[str, Any] | None, finished: int
) -> None:
    seq = session.accept("a", HELLO)
    with full(session):
        session.start_turn(seq)
        session.end_prompt(seq, END, said)
        assert session.behind
        assert session.turns_finished() == finished
    session.catch_up()
    assert session.turns_finished() == finished


@pytest.mark.hazard("Q13", "R10", "R15")
async def test_a_turn_whose_end_is_noted_twice_counts_once_written_or_not(
    session: SessionJournal,
) -> None:
    for name in ("a", "b"):
        session.accept(name, HELLO)
        session.start_turn(session.prompts()[-1].seq)
    session.end_prompt(1, {"stopReason": "cancelled"}, END)
    with full(session):
        session.end_prompt(1, {"stopReason": "cancelled"}, END)
        session.end_prompt(2, {"stopReason": "cancelled"}, END)
        session.end_prompt(2, {"stopReason": "cancelled"}, {"error": {"code": 1}})
        assert session.turns_finished() == 2
    session.catch_up()
    assert session.turns_finished() == 2


@pytest.mark.hazard("Q13")
async def test_while_it_is_behind_everything_reads_as_if_it_were_written(
    session: SessionJournal,
) -> None:
    seq = session.accept("a", HELLO)
    session.record(0, lines(chunk("before", "m")))
    session.set("mode", "ask")
    with full(session):
        for mode in ("edit", "plan"):
            session.set("mode", mode)
        session.start_turn(seq)
        session.record(seq, lines(chunk("one ", "n")))
        session.record(seq, lines(chunk("two", "n")))
        session.record(0, lines(chunk("after", "o")))
        session.change_info(title="A title")
        assert session.get("mode") == "plan"
        assert session.info.title == "A title"
        shown = await transcript(session)
        assert shown == [
            chunk("before", "m"),
            SAID,
            chunk("one two", "n"),
            chunk("after", "o"),
        ]
        pages = [page async for page in session.replay(turn=seq)]
        of_turn = [without_prompt_id(params) for page in pages for params in page]
        assert of_turn == shown[1:3]
        assert await transcript(session) == shown
    session.catch_up()
    assert (await transcript(session), session.get("mode")) == (shown, "plan")
    assert len(session._file.unwritten) == 0


@pytest.mark.hazard("Q13.6", "Q13.7")
async def test_updates_are_kept_up_to_a_bound_and_the_gap_is_named_where_it_is(
    session: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LIMIT_BYTES", 300)
    seq = session.accept("a", HELLO)
    with full(session):
        session.start_turn(seq)
        for number in range(20):
            session.record(seq, lines(chunk(f"{number}", f"m{number}")))
        session.record(seq, lines(chunk("x")))  # it would fit, but has no place
        session.end_prompt(seq, END, END)
    session.record(0, lines(chunk("after", "later")))
    said = [text_of(params) for params in await transcript(session)]
    assert said[:3] == ["Hello", "0", "1"]
    assert said[-1] == "after"
    assert "is missing" in said[-2]
    assert len(said) < 8
    assert states(session) == ["done"]
    with full(session):  # after that there is room again
        session.record(0, lines(chunk("more", "more")))
    session.catch_up()
    assert text_of((await transcript(session))[-1]) == "more"


@pytest.mark.hazard("Q13.1")
async def test_many_small_updates_are_kept_as_few_rows(session: SessionJournal) -> None:
    with full(session):
        for number in range(5000):
            session.record(1, lines(chunk(f"{number} ", "m")))
        assert len(session._file.unwritten) < 20
    session.catch_up()
    (whole,) = await transcript(session)
    assert text_of(whole).split() == [str(number) for number in range(5000)]


@pytest.mark.hazard("Q13.1")
async def test_settings_that_change_all_the_time_are_kept_once(session: SessionJournal) -> None:
    with full(session):
        for number in range(100):
            session.set("usage", number)
            session.change_info(title=f"{number}", updated_at="now")
        assert len(session._file.unwritten) == 2
    session.catch_up()
    assert session.get("usage") == 99


@pytest.mark.hazard("Q13")
async def test_what_never_can_be_written_is_refused_and_holds_up_nothing(
    session: SessionJournal,
) -> None:
    with pytest.raises(JournalError):
        session.change_info(title="\ud800")
    with full(session):
        session.set("first", 1)
        session.change_info(title="\ud800")  # it only shows when it is tried
        session.set("key", "value")
    session.record(0, lines(chunk("after")))
    assert not session.behind
    assert session.get("key") == "value"


@pytest.mark.hazard("Q13.1", "K2.1")
async def test_a_kill_while_it_catches_up_leaves_a_prefix(
    journal: Journal, session: SessionJournal, home: Path
) -> None:
    seq = session.accept("a", HELLO)
    with full(session):
        session.start_turn(seq)
        session.record(seq, lines(chunk("x" * 100)))
        session.end_prompt(seq, END, END)
    session._file.db.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON prompts WHEN new.state = 'done'"
        " BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    with pytest.raises(JournalError):
        session.catch_up()
    other = Journal(home)  # as another process sees the file
    seen = await other.open(SESSION)
    assert states(seen) == ["sent"]
    assert len(await transcript(seen)) == 2
    await other.close()


@pytest.mark.hazard("Q13.3", "Q6")
async def test_closed_while_nothing_can_be_written_it_is_whole_when_it_is_opened_again(
    journal: Journal, session: SessionJournal
) -> None:
    seq = session.accept("a", HELLO)
    with full(session):
        session.start_turn(seq)
        session.record(seq, lines(chunk("answer")))
        session.end_prompt(seq, END, END)
        again = await reopened(journal, session)
    assert not again.behind
    assert states(again) == ["done"]
    assert await transcript(again) == [SAID, chunk("answer")]


@pytest.mark.hazard("Q13", "K3")
async def test_what_a_closed_session_lacked_is_void_once_another_bridge_had_it(
    journal: Journal, session: SessionJournal, home: Path
) -> None:
    session.set("mode", "ask")
    with full(session):
        session.set("mode", "auto")
        await session.close()
    other = Journal(home)
    seen = await other.open(SESSION)
    seen.set("mode", "plan")
    await other.close()
    again = await journal.open(SESSION)
    assert again.get("mode") == "plan"


async def test_a_closed_journal_keeps_nothing(session: SessionJournal) -> None:
    await session.close()
    for write in ("record", "set", "hold"):
        with pytest.raises(JournalError):
            NEXT[write](session)
    assert not session.behind


def test_an_error_may_pass_unless_it_is_about_the_value() -> None:
    for passing in (sqlite3.OperationalError("full"), OSError(28, "no space")):
        assert file.may_pass(passing)
    for lasting in (UnicodeError(), sqlite3.DataError(), RuntimeError(), JournalError("closed")):
        assert not file.may_pass(lasting)


@pytest.mark.hazard("R12", "Q13")
async def test_a_prompt_whose_leaving_over_was_kept_waits_again_when_it_is_released(
    session: SessionJournal,
) -> None:
    seq = session.accept("id", HELLO)
    with full(session):
        session.leave_over(seq)
    session.release(seq)
    assert states(session) == ["waiting"]
    assert not session.behind
