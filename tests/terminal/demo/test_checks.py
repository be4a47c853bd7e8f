"""The demo's checks: each passes on a good recording and fails on every broken one."""

import re
from collections.abc import Callable
from contextlib import suppress
from inspect import getmembers, isfunction
from typing import Any

import pytest

from acp_bridge.terminal.demo import checks
from acp_bridge.terminal.demo.recording import Finding, Unexpected
from tests.terminal.demo.tapes import (
    Break,
    Tape,
    again,
    deaf,
    drop,
    earlier,
    edit,
    first_bridge,
    interrupted,
    killed,
    late,
    move,
    over,
    second_bridge,
    stopped,
    three,
)

TEXTS = ["word 1", "word 2", "word 3"]
HOLD = (3, second_bridge(), 1, 2, 3)

#: check -> (good recording, call, {how it is broken: break}). Places: see demo_tapes.py.
CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Finding], dict[str, Break]]] = {
    "answered_in_order": (
        three,
        lambda tape: checks.answered_in_order(tape, [1, 2, 3]),
        {
            "the answers come in another order": move(5, to=8),
            "one is not answered": drop(8),
            "one is answered twice": again(5),
            "one is answered with an error too": lambda tape: tape.fail(2),
            "one is cancelled": edit(8, "end_turn", "cancelled"),
            "they were not asked at once": move(2, to=3),
        },
    ),
    "streamed": (
        three,
        lambda tape: checks.streamed(tape, [1, 2, 3], TEXTS),
        {
            "an update is missing": drop(6),
            "an update comes twice": again(7, at=7),
            "an update comes after the answer of its turn": move(4, to=5),
            "an update comes in the turn before": move(6, to=5),
            "an update comes after all of them": move(10, to=11),
            "two updates are swapped": move(9, to=10),
            "another turn's words are in it": edit(7, "2", "1"),
            "a turn comes in one piece": lambda tape: (
                edit(6, "word ", "word 2")(tape),
                tape.pop(7),
            ),
        },
    ),
    "cancelled": (
        stopped,
        lambda tape: checks.cancelled(tape, 1),
        {
            "it is answered end_turn": edit(5, "cancelled", "end_turn"),
            "it is answered with an error": lambda tape: (tape.pop(5), tape.fail(1)),
            "it is answered twice": again(5),
            "it is not answered": drop(5),
            "no cancel was sent": drop(3),
            "it was answered before the cancel": move(5, to=3),
            "nothing had been shown before": move(3, to=1),
        },
    ),
    "cancelled, after a drain": (
        deaf,
        lambda tape: checks.cancelled(tape, 2, drained=1.0),
        {"it is answered too early": earlier(9, 0.5)},
    ),
    "nothing_follows": (
        stopped,
        lambda tape: checks.nothing_follows(tape, 1),
        {
            "an update follows the answer": late("was", at=6),
            "one without a message id does": late("was", at=6, id=None),
            "one comes in the next turn": late("was", at=8),
            "one comes after all": late("was"),
            "the last of the turn comes after it": move(4, to=5),
        },
    ),
    "recalls": (
        stopped,
        lambda tape: checks.recalls(tape, 2, ["boat", "story"]),
        {
            "words told before are missing": drop(8),
            "all memory is lost": edit(8, "boat; ", "nothing yet"),
            "the dead turn leaks into it": late("once ", at=7, id=None),
            "it ends with an error": lambda tape: (tape.pop(10), tape.fail(2)),
            "it is cancelled as well": edit(10, "end_turn", "cancelled"),
            "it is not answered": drop(10),
        },
    ),
    "recalls, after an interrupt": (
        interrupted,
        lambda tape: checks.recalls(tape, 2, ["sing"]),
        {"the turn before goes on in it": late("la ", at=6, id=None)},
    ),
    "superseded": (
        interrupted,
        lambda tape: checks.superseded(tape, 1, 2),
        {
            "the old one is answered end_turn": edit(4, "cancelled", "end_turn"),
            "the new one is cancelled too": edit(7, "end_turn", "cancelled"),
            "the new one is answered first": move(7, to=4),
            "the new one shows nothing": lambda tape: tape.__delitem__(slice(5, 7)),
            "the old one is answered twice": again(4),
        },
    ),
    "cancels_counted": (
        interrupted,
        lambda tape: checks.cancels_counted(tape, 3, 1),
        {
            "the agent got two": edit(11, "once.", "2 times."),
            "the agent got none": edit(11, "once.", "0 times."),
            "the agent didn't say": drop(10),
        },
    ),
    "replaced": (
        deaf,
        lambda tape: checks.replaced(tape, 2, 1, 3),
        {
            "the same process goes on": edit(11, "12", "11"),
            "the old process lives": edit(10, "false", "true"),
            "nobody looked whether it lives": drop(10),
        },
    ),
    "failed": (
        killed,
        lambda tape: checks.failed(tape, 1),
        {
            "it is answered end_turn": lambda tape: (tape.pop(3), tape.answer(1)),
            "it is answered twice": again(3),
            "it is not answered": drop(3),
            "it was answered before the kill": move(3, to=2),
            "nobody was killed": drop(2),
        },
    ),
    "replayed": (
        second_bridge,
        lambda tape: checks.replayed(first_bridge(), tape, 1),
        {
            "words are missing": edit(3, "once there", "once"),
            "the last words shown are missing": edit(5, "once upon a ", "once "),
            "a prompt is missing": drop(1),
            "a thought is missing": drop(2),
            "a thought became speech": edit(2, "agent_thought_chunk", "agent_message_chunk"),
            "something comes twice": again(3, at=4),
            "two turns are swapped": lambda tape: (move(4, to=1)(tape), move(5, to=2)(tape)),
            "the end comes after the answer to the load": move(7, to=5),
            "the waiting prompt looks as if it had run": edit(6, "agent_message", "user_message"),
            "the load fails": lambda tape: (tape.pop(7), tape.fail(1)),
            "nothing is replayed": lambda tape: tape.__delitem__(slice(1, 7)),
        },
    ),
    "left_over": (
        second_bridge,
        lambda tape: checks.left_over(first_bridge(), *HOLD[:1], tape, *HOLD[2:]),
        {
            "the prompt is lost": edit(7, "waits", "another"),
            "nothing is held": edit(7, '"held"', '"other"'),
            "the prompt runs by itself after the load": late("You told me: story", at=8),
            "the prompt runs by itself after the list": late("You told me: story", at=11),
            "the list doesn't show it": edit(9, "- 2: waits", ""),
            "the list says that it waits for a turn": edit(
                9, "Left over since a restart", "1 waiting"
            ),
        },
    ),
    "left_over, if it was accepted": (
        first_bridge,
        lambda tape: checks.left_over(tape, *HOLD),
        {"it was not accepted": drop(7), "another one was": edit(7, "3", "2")},
    ),
    "each_answered_once": (
        over,
        checks.each_answered_once,
        {
            "an answer comes twice, later": lambda tapes: again(5)(tapes[0]),
            "an answer is missing": lambda tapes: drop(10)(tapes[0]),
            "an answer of a killed bridge came twice": lambda tapes: again(4)(tapes[1]),
            "an answer is missing and no bridge was killed": lambda tapes: drop(10)(tapes[1]),
        },
    ),
    "nothing_left": (
        over,
        checks.nothing_left,
        {
            "a process is left": lambda tapes: edit(-1, "[]", "[11]")(tapes[1]),
            "nobody looked after one bridge": lambda tapes: drop(-1)(tapes[0]),
            "nobody looked at all": lambda tapes: [drop(-1)(tape) for tape in tapes],
            "there was no bridge": lambda tapes: tapes.clear(),
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_check_passes_on_a_good_recording(name: str) -> None:
    good, check, _ = CASES[name]
    assert check(good()).seconds >= 0


@pytest.mark.parametrize(
    ("name", "how"), [(name, how) for name, (_, _, broken) in CASES.items() for how in broken]
)
def test_a_check_fails_on_a_broken_recording(name: str, how: str) -> None:
    good, check, breaks = CASES[name]
    broken = good()
    breaks[how](broken)
    with pytest.raises(Unexpected) as caught:
        check(broken)
    assert caught.value.expected
    assert caught.value.seen


def test_every_check_that_the_demo_has_is_seen_to_fail() -> None:
    known = {
        name
        for name, function in getmembers(checks, isfunction)
        if function.__annotations__.get("return") == "Finding"
    }
    assert known == {name.partition(",")[0] for name in CASES}


@pytest.mark.parametrize("good", [three, stopped, interrupted, deaf, killed])
def test_a_recording_without_any_one_line_from_the_bridge_fails_somewhere(
    good: Callable[[], Tape],
) -> None:
    """Each answer and each update of a good recording is needed by some check."""
    own = [check for factory, check, _ in CASES.values() if factory is good]
    for place, line in enumerate(good()):
        if line.direction == "in" and not _of_a_cut_turn(good(), place):
            tape = good()
            del tape[place]
            assert any(_fails(check, tape) for check in own), f"{place} {line.raw!r}"


def _of_a_cut_turn(tape: Tape, place: int) -> bool:
    """Return whether a line is an update of a turn that was stopped; no check counts those."""
    text = tape[place].raw
    return bool(re.search(rb'"(once |there |was |la )"', text))


def _fails(check: Callable[[Any], Finding], tape: Tape) -> bool:
    with suppress(Unexpected):
        check(tape)
        return False
    return True


def test_a_measured_time_is_that_of_the_lines_concerned() -> None:
    assert checks.cancelled(deaf(), 2, drained=1.0).seconds == pytest.approx(1.02)
    assert checks.failed(killed(), 1).seconds == pytest.approx(0.01)
