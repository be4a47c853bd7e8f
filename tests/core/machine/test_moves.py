"""A prompt that waits is moved: when the journal has that, and before or behind which others."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import AnswerPrompt, Done, Steer, WriteChange
from acp_bridge.core.machine.events import (
    AgentAnswered,
    ChangeWritten,
    Committed,
    DropWaiting,
    HoldQueue,
    MaySteer,
    MoveWaiting,
    PromptReceived,
    RunLeftOver,
    SteerWaiting,
)
from tests.core.machine.bench import Bench


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
