"""The user changes a prompt that waits: other words, another place, or it never runs."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    Commit,
    Done,
    Queued,
    RefuseChange,
    RunHooks,
    SendPrompt,
    Steer,
    WriteChange,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    ChangeWritten,
    Close,
    Committed,
    DropWaiting,
    EditWaiting,
    HoldQueue,
    HooksDone,
    MaySteer,
    Moment,
    MoveWaiting,
    PromptReceived,
    RunLeftOver,
    SteerAnswered,
    Steered,
    SteerWaiting,
)
from tests.core.machine.bench import Bench, cancelled, replied


def held() -> Bench:
    """Two prompts that were to join the turn before have to wait, and two others behind them."""
    bench = Bench(steers=True)
    bench.prompt(1)
    for key in (2, 3):
        bench.do(PromptReceived(key, steers=True), Committed(key))
    bench.prompt(4, 5)
    bench.do(HoldQueue(), AgentAnswered(1, 1))
    assert bench.now.waiting == (2, 3, 4, 5)
    return bench


def moved(bench: Bench, key: int, before: int | None = None) -> tuple[int, ...]:
    """Let a prompt be moved, and the journal take that; returns what waits then."""
    assert bench.do(MoveWaiting(key, before)) != []
    bench.do(ChangeWritten())
    return bench.now.waiting


def test_a_prompt_that_is_moved_waits_there_when_the_journal_has_it() -> None:
    bench = Bench()
    bench.prompt(1, 2, 3, 4)
    assert bench.do(MoveWaiting(4, 2)) == [WriteChange(4, (4, 2, 3))]
    assert bench.now.waiting == (2, 3, 4)
    assert bench.do(ChangeWritten()) == []
    assert bench.now.waiting == (4, 2, 3)


def test_before_words_that_were_to_join_a_turn_it_goes_before_all_others_as_they_do() -> None:
    bench = held()
    assert moved(bench, 5, 3) == (2, 5, 3, 4)
    assert moved(bench, 5, 2) == (5, 2, 3, 4)  # once more
    bench.do(PromptReceived(6, steers=True), Committed(6))
    assert bench.now.waiting == (5, 2, 3, 6, 4)


def test_first_is_the_first_place_that_it_can_take() -> None:
    bench = Bench()
    bench.prompt(1, 2, 3, 4)
    assert bench.do(MoveWaiting(4, first=True)) == [WriteChange(4, (4, 2, 3))]
    bench.do(ChangeWritten())
    bench.do(PromptReceived(5, interrupt=True), Committed(5))
    assert bench.now.waiting == (5, 4, 2, 3)
    bench.do(MoveWaiting(3, first=True), ChangeWritten())
    assert bench.now.waiting == (5, 3, 4, 2)


def test_before_other_prompts_or_behind_all_it_waits_as_any_other() -> None:
    bench = held()
    assert moved(bench, 5, 4) == (2, 3, 5, 4)
    assert moved(bench, 2) == (3, 5, 4, 2)
    bench.do(PromptReceived(6, steers=True), Committed(6))
    assert bench.now.waiting == (3, 6, 5, 4, 2)


@pytest.mark.hazard("Q15")
def test_what_is_to_join_the_turn_by_then_keeps_its_place() -> None:
    bench = Bench(steers=True)
    bench.prompt(1, 2, 3, 4)
    bench.do(MoveWaiting(4, 2), SteerWaiting(4), SteerWaiting(2), ChangeWritten())
    assert bench.do(MaySteer(1)) == [Steer(1, 2)]


def test_a_carrier_whose_only_prompt_is_dropped_is_done() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(RunLeftOver(9, (2,)))
    assert AnswerPrompt(9, Done()) in bench.do(DropWaiting(2))


@pytest.mark.hazard("Q16")
def test_a_prompt_that_gets_other_words_is_not_sent_before_the_journal_has_them() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.do(EditWaiting(2)) == [WriteChange(2)]
    assert bench.answer() == [replied(1)]
    assert bench.do(ChangeWritten()) == [SendPrompt(1, 2)]
    assert bench.dropped == []


def test_the_hooks_about_a_prompt_are_asked_again_when_it_gets_other_words() -> None:
    bench = Bench(hooks=frozenset({Moment.PROMPT}), steers=True)
    bench.prompt(1)
    bench.hooks(1)
    bench.prompt(2, 3)
    bench.do(MaySteer(1), SteerWaiting(2), HooksDone(2), SteerAnswered(2, Steered.NOT_TAKEN))
    bench.do(EditWaiting(2), ChangeWritten())
    assert bench.answer() == [replied(1), RunHooks(2, Moment.PROMPT)]


def test_what_a_hook_has_in_its_hands_or_has_written_gets_no_other_words() -> None:
    bench = Bench(hooks=frozenset({Moment.PROMPT, Moment.TURN_END}))
    bench.prompt(1)
    assert bench.do(EditWaiting(1)) == [RefuseChange()]
    bench.hooks(1)
    bench.answer()
    assert bench.hooks(1, feedback=6) == [Commit(6)]
    assert bench.do(EditWaiting(6)) == [RefuseChange()]


def test_words_that_a_turn_did_not_take_may_be_moved_when_it_is_over() -> None:
    bench = Bench(steers=True)
    bench.prompt(1, 2)
    bench.do(MaySteer(1), PromptReceived(3, steers=True), Committed(3))
    assert bench.do(SteerAnswered(3, Steered.NOT_TAKEN)) == [Queued(3)]
    bench.do(HoldQueue())
    assert bench.answer() == [replied(1)]
    assert bench.do(MoveWaiting(3)) == [WriteChange(3, (2, 3))]


def test_a_change_of_a_session_that_ends_is_refused() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Close())
    assert bench.do(EditWaiting(1), DropWaiting(1)) == [RefuseChange(), RefuseChange()]


def test_a_dropped_prompt_is_cancelled_and_one_that_does_not_wait_is_not_dropped() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.do(DropWaiting(2), DropWaiting(1)) == [cancelled(2), RefuseChange()]
