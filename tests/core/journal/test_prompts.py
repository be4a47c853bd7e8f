"""Prompts: accepted once, sent once, ended once, whatever is repeated or interrupted."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_bridge.core.journal import Journal, JournalError, PromptState, SessionJournal, sum_of_words
from acp_bridge.core.protocol import without_prompt_id
from tests.core.journal import files
from tests.core.journal.conftest import SESSION
from tests.core.journal.sayings import chunk, lines, transcript
from tests.core.journal.test_unwritten import full

PARAMS = {"prompt": [{"type": "text", "text": "Hello"}], "_meta": {"unknown": [1, None]}}
END = {"stopReason": "end_turn"}
CANCELLED = {"stopReason": "cancelled"}


async def reopened(journal: Journal, session: SessionJournal) -> SessionJournal:
    await session.close()
    return await journal.open(session.info.session_id)


def states(session: SessionJournal) -> list[str]:
    return [str(prompt.state) for prompt in session.prompts()]


@pytest.mark.hazard("K1.1")
async def test_an_accepted_prompt_is_there_after_a_restart_equal_in_every_field(
    journal: Journal, session: SessionJournal
) -> None:
    seq = session.accept("id", PARAMS)
    await session.sync()
    again = await reopened(journal, session)
    (prompt,) = again.prompts()
    assert (prompt.seq, prompt.prompt_id, prompt.params) == (seq, "id", PARAMS)
    assert (prompt.state, prompt.outcome, prompt.agent_outcome) == ("waiting", None, None)


async def test_prompts_are_numbered_in_the_order_of_their_accepting(
    session: SessionJournal,
) -> None:
    seqs = [session.accept(f"id{number}", PARAMS) for number in range(5)]
    assert seqs == sorted(seqs)
    assert [prompt.prompt_id for prompt in session.prompts()] == [f"id{n}" for n in range(5)]


@pytest.mark.hazard("X2.2", "Q7.1")
async def test_a_key_is_bound_to_one_prompt_with_its_acceptance_for_good(
    journal: Journal, session: SessionJournal
) -> None:
    keyed = {**PARAMS, "_meta": {"acp_bridge": {"promptKey": "k"}}}
    assert session.receipt("k") is None
    seq = session.accept("id", keyed)
    with pytest.raises(JournalError):
        session.accept("other", keyed)
    session.accept("third", PARAMS)
    assert [row.prompt_id for row in session.prompts()] == ["id", "third"]
    session.edit(seq, {**keyed, "prompt": [{"type": "text", "text": "Other"}]})
    again = await reopened(journal, session)
    receipt = again.receipt("k")
    assert receipt is not None
    assert (receipt.seq, receipt.words) == (seq, sum_of_words(PARAMS))
    assert again.receipt("K") is None


@pytest.mark.hazard("X2", "Q13")
async def test_an_end_that_is_not_written_yet_is_known_of_a_prompt(session: SessionJournal) -> None:
    seq = session.accept("id", PARAMS)
    session.start_turn(seq)
    with full(session):
        session.end_prompt(seq, END, END)
        found = session.prompt(seq)
        assert found is not None
        assert (found.state, found.outcome) == (PromptState.DONE, END)
    assert session.prompt(seq + 1) is None


@pytest.mark.hazard("Q7.1")
async def test_an_id_is_accepted_once_and_refused_when_it_comes_again(
    session: SessionJournal,
) -> None:
    session.accept("id", PARAMS)
    session.accept("other", PARAMS)
    for _ in range(5):  # so that the last row of another table has a number of no prompt
        session.record(1, lines(chunk("shown", "m")))
    with pytest.raises(JournalError):
        session.accept("id", {"prompt": "another"})
    assert [prompt.params for prompt in session.prompts()] == [PARAMS, PARAMS]


@pytest.mark.hazard("Q7.1", "Q7.2")
async def test_a_prompt_is_taken_once_and_its_words_are_shown_once(
    session: SessionJournal,
) -> None:
    seq = session.accept("id", PARAMS)
    said = [chunk("Hello", kind="user_message_chunk")]
    session.start_turn(seq)
    with pytest.raises(RuntimeError):
        session.start_turn(seq)
    assert states(session) == ["sent"]
    assert await transcript(session) == said


@pytest.mark.hazard("Q5.2", "Q4.2")
async def test_a_prompt_with_an_outcome_can_neither_be_sent_nor_wait_again(
    session: SessionJournal,
) -> None:
    seq = session.accept("id", PARAMS)
    session.end_prompt(seq, CANCELLED, None)
    with pytest.raises(RuntimeError):
        session.start_turn(seq)
    with pytest.raises(RuntimeError):
        session.release(seq)
    assert states(session) == ["done"]


@pytest.mark.hazard("Q4.3")
async def test_an_unknown_prompt_can_not_be_started(session: SessionJournal) -> None:
    with pytest.raises(RuntimeError):
        session.start_turn(7)
    assert await transcript(session) == []


@pytest.mark.hazard("C13.1")
async def test_the_first_outcome_stays_and_the_agents_own_may_come_later(
    session: SessionJournal,
) -> None:
    seq = session.accept("id", PARAMS)
    session.start_turn(seq)
    session.end_prompt(seq, CANCELLED, None)
    assert session.turns_finished() == 0
    session.end_prompt(seq, END, END)
    session.end_prompt(seq, {"error": {"code": -1}}, {"stopReason": "refusal"})
    (prompt,) = session.prompts(PromptState.DONE)
    assert (prompt.outcome, prompt.agent_outcome) == (CANCELLED, END)
    assert session.turns_finished() == 1


@pytest.mark.hazard("R10")
@pytest.mark.parametrize(
    ("outcome", "finished"),
    [
        ({"stopReason": "end_turn"}, 1),
        ({"stopReason": "refusal"}, 1),
        ({"stopReason": "max_tokens"}, 1),
        ({}, 1),
        ({"stopReason": "cancelled"}, 0),
        ({"error": {"code": -32603, "message": "no"}}, 0),
        (None, 0),
    ],
)
async def test_only_a_turn_that_the_agent_ended_well_counts_as_finished(
    session: SessionJournal, outcome: dict[str, Any] | None, finished: int
) -> None:
    seq = session.accept("id", PARAMS)
    session.start_turn(seq)
    session.end_prompt(seq, CANCELLED, outcome)
    assert session.turns_finished() == finished


@pytest.mark.hazard("Q6.1", "R12.1")
async def test_after_a_death_sent_prompts_are_interrupted_and_waiting_ones_left_over(
    journal: Journal, session: SessionJournal
) -> None:
    seqs = [session.accept(f"id{number}", PARAMS) for number in range(4)]
    session.start_turn(seqs[0])
    session.end_prompt(seqs[0], END, END)
    session.start_turn(seqs[1])
    again = await reopened(journal, session)
    assert [prompt.seq for prompt in await again.recover()] == seqs[2:]
    assert states(again) == ["done", "done", "held", "held"]
    outcomes = [prompt.outcome for prompt in again.prompts(PromptState.DONE)]
    assert outcomes == [END, {"interrupted": True}]


@pytest.mark.hazard("Q6.1", "R12")
async def test_recovering_again_finds_the_same_left_over_prompts_and_interrupts_no_more(
    journal: Journal, session: SessionJournal
) -> None:
    seqs = [session.accept(f"id{number}", PARAMS) for number in range(2)]
    session.start_turn(seqs[0])
    again = await reopened(journal, session)
    held, before = await again.recover(), again.prompts()
    again = await reopened(journal, again)
    assert await again.recover() == held == before[1:]
    assert again.prompts() == before


@pytest.mark.hazard("R12")
async def test_a_left_over_prompt_waits_again_when_it_is_released_and_never_when_dropped(
    session: SessionJournal,
) -> None:
    first, second, third = (session.accept(f"id{number}", PARAMS) for number in range(3))
    for seq in (first, second, third):
        session.leave_over(seq)
    session.release(first)
    session.drop(second)
    assert states(session) == ["waiting", "done", "held"]
    assert session.prompts(PromptState.DONE)[0].outcome == {"dropped": True}
    with pytest.raises(RuntimeError):
        session.release(second)
    with pytest.raises(RuntimeError):
        session.release(first)
    with pytest.raises(RuntimeError):
        session.start_turn(third)


async def test_no_transition_writes_the_prompts_images_again(
    journal: Journal, session: SessionJournal
) -> None:
    seq = session.accept("id", {"prompt": [{"type": "image", "data": "x" * 4_000_000}]})
    wal = files.wal(journal.path(SESSION))
    before = files.size(wal)
    session.start_turn(seq)
    session.end_prompt(seq, END, END)
    assert files.size(wal) - before < 100_000


@pytest.mark.hazard("R1", "R6")
async def test_a_prompts_words_are_stored_once_and_replayed_where_they_were_said(
    journal: Journal, session: SessionJournal
) -> None:
    image = {"type": "image", "data": "x" * 1_000_000, "mimeType": "image/png"}
    text = {"type": "text", "text": "Look", "_meta": {"kept": 1}}
    for name, blocks in (("a", [text, image]), ("b", [text]), ("c", [])):
        seq = session.accept(name, {"prompt": blocks})
        session.start_turn(seq)
        for word in ("one ", "two"):
            session.record(seq, lines(chunk(word, name)))
        session.end_prompt(seq, END, END)
    said = [
        {"update": {"sessionUpdate": "user_message_chunk", "content": b}} for b in (text, image)
    ]
    whole = [*said, chunk("one two", "a"), said[0], chunk("one two", "b"), chunk("one two", "c")]
    assert await transcript(session) == whole
    for turn in (1, 2, 3):
        await session.compact(turn)
    assert await transcript(session) == whole
    of_turn = [p async for page in session.replay(turn=2) for p in page]
    assert [without_prompt_id(each) for each in of_turn] == whole[3:5]
    await session.close()
    assert files.size(journal.path(SESSION)) < 1_300_000
    assert await transcript(await journal.open(SESSION)) == whole


@pytest.mark.hazard("K2.2")
@pytest.mark.parametrize("params", ["no JSON", "[]", '{"prompt": 7}', None])
async def test_words_that_are_damaged_hide_nothing_else(
    session: SessionJournal, params: str | None
) -> None:
    for name in ("a", "b"):
        seq = session.accept(name, PARAMS)
        session.start_turn(seq)
        session.record(seq, lines(chunk(name)))
    if params is None:
        session._file.db.execute("DELETE FROM prompt_params WHERE seq = 1")
    else:
        session._file.db.execute("UPDATE prompt_params SET params = ? WHERE seq = 1", (params,))
    hello = chunk("Hello", kind="user_message_chunk")
    assert await transcript(session) == [chunk("a"), hello, chunk("b")]


OPERATIONS = ("accept", "start", "end", "drop", "release", "leave_over", "die")


class Reference:
    """The prompts as a list of [state, outcome]."""

    def __init__(self) -> None:
        self.prompts: list[list[Any]] = []

    def do(self, what: str, index: int) -> bool:
        """Do one operation; returns whether it is allowed."""
        if what == "accept":
            new = index == len(self.prompts)
            if new:
                self.prompts.append(["waiting", None])
            return new
        if what == "die":
            for prompt in self.prompts:
                if prompt[0] == "waiting":
                    prompt[0] = "held"
                elif prompt[0] == "sent":
                    prompt[:] = ["done", {"interrupted": True}]
            return True
        prompt = self.prompts[index]
        if what in ("end", "drop"):
            if prompt[1] is None:
                prompt[:] = ["done", END if what == "end" else {"dropped": True}]
            return True
        moves = {
            "start": ("waiting", "sent"),
            "release": ("held", "waiting"),
            "leave_over": ("waiting", "held"),
        }
        before, after = moves[what]
        if prompt[0] != before:
            return False
        prompt[0] = after
        return True


@pytest.mark.hazard("Q4", "Q5", "Q7")
@settings(max_examples=25)
@given(history=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3)), max_size=25))
def test_any_history_of_prompts_ends_as_a_list_of_states_does(
    history: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    anyio.run(play, history, tmp_path_factory.mktemp("home"))


async def play(history: list[tuple[str, int]], home: Path) -> None:
    journal, reference = Journal(home), Reference()
    session = await journal.create(SESSION, cwd="/project", agent="demo")
    for what, index in history:
        count = len(reference.prompts)
        index = min(index, count if what == "accept" else count - 1)
        if index < 0:
            continue
        allowed = reference.do(what, index)
        try:
            session = await apply(journal, session, what, index)
        except (RuntimeError, JournalError):
            assert not allowed
        else:
            assert allowed
        assert [[str(p.state), p.outcome] for p in session.prompts()] == reference.prompts
    await journal.close()


async def apply(journal: Journal, session: SessionJournal, what: str, index: int) -> SessionJournal:
    seq = index + 1
    match what:
        case "accept":
            assert session.accept(f"id{index}", PARAMS) == seq
        case "start":
            session.start_turn(seq)
        case "end":
            session.end_prompt(seq, END, None)
        case "die":
            session = await reopened(journal, session)
            await session.recover()
        case _:
            getattr(session, what)(seq)
    return session
