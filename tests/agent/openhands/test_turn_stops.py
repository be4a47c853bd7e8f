"""A cancel at every moment of a turn: one end, nothing started after it, nothing left running."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from agent.openhands import turn_words as words
from agent.openhands.problems import Kind
from agent.openhands.turn_words import (
    Confirm,
    End,
    Fail,
    Interrupt,
    Pause,
    Paused,
    Phase,
    Run,
    Say,
    SendMessage,
    Sync,
    Withdraw,
)
from tests.agent.openhands import events as told
from tests.agent.openhands.playing import PROMPT, Play

STATUSES = ("idle", "running", "finished", "paused", "waiting_for_confirmation")
CANCELLED = End("cancelled")
DONE = End("end_turn")


def stopped(play: Play, status: str = "paused") -> list[object]:
    play.interrupted()
    return list(play.synced(status))


def test_a_run_is_interrupted_and_looked_at_before_cancelled_is_said() -> None:
    play = Play().running()
    assert play.cancel() == [Interrupt()]
    assert play.interrupted() == [Sync()]
    assert play.synced("running") == [Interrupt(0.25)]
    assert stopped(play) == [CANCELLED]
    assert not play.turn.uncertain


def test_a_second_cancel_changes_nothing() -> None:
    play = Play().running()
    play.cancel()
    assert play.cancel() == []


def test_before_the_message_was_sent_nothing_is() -> None:
    play = Play()
    assert play.cancel() == [CANCELLED]


@pytest.mark.parametrize("kind", [None, Kind.UNSURE, Kind.BUSY])
def test_while_the_message_is_on_its_way_its_fate_is_waited_for_and_stopped(
    kind: Kind | None,
) -> None:
    play = Play()
    assert play.cancel(under_way=True) == []
    assert play.sent(kind) == [Interrupt()]
    assert stopped(play) == [CANCELLED]
    assert play.turn.uncertain == (kind is Kind.UNSURE)


def test_a_message_that_was_never_taken_leaves_nothing_to_stop() -> None:
    play = Play()
    play.cancel(under_way=True)
    assert play.sent(Kind.UNREACHED) == [CANCELLED]


def test_a_message_that_is_seen_before_it_is_answered_is_stopped_without_its_answer() -> None:
    play = Play()
    play.live(PROMPT, told.status("running"))
    assert play.cancel(under_way=True) == [Interrupt()]


def test_actions_that_wait_are_refused_and_that_is_seen_before_cancelled_is_said() -> None:
    play = Play().running().asking()
    assert play.cancel() == [Withdraw(), Confirm(False)]
    assert play.confirmed() == [Sync()]
    assert play.synced("waiting_for_confirmation") == [Confirm(False)]
    play.confirmed()
    play.stored(told.refusal("a1"))
    assert play.synced("idle") == [CANCELLED]


def test_actions_that_another_client_allowed_meanwhile_are_interrupted() -> None:
    play = Play().running().asking()
    play.cancel()
    play.confirmed()
    assert play.synced("running") == [Interrupt(0.25)]
    assert stopped(play) == [CANCELLED]


def test_while_consent_is_told_its_fate_is_waited_for_and_stopped() -> None:
    play = Play().running().asking()
    play.answered(True)
    assert play.cancel(under_way=True) == []
    assert play.confirmed() == [Sync()]
    assert play.synced("running") == [Interrupt(0.25)]


def test_a_server_that_does_not_answer_is_asked_some_times_and_then_told_of() -> None:
    play = Play().running()
    play.cancel()
    while play.end is None:
        play.interrupted(Kind.UNREACHED)
        play.synced(kind=Kind.UNREACHED)
    assert play.end == CANCELLED
    assert play.said == [words.MAY_GO_ON]
    assert play.turn.uncertain


def test_a_server_that_does_not_stop_is_told_of() -> None:
    play = Play().running()
    play.cancel()
    while play.end is None:
        play.interrupted()
        play.synced("running")
    assert (play.end, play.said) == (CANCELLED, [words.STILL_RUNS])
    assert play.turn.uncertain


def test_a_conversation_that_is_gone_runs_nothing() -> None:
    play = Play().running()
    play.cancel()
    assert play.interrupted(Kind.GONE) == [CANCELLED]
    assert not play.turn.uncertain


def test_a_turn_that_only_stops_sends_nothing_and_starts_nothing() -> None:
    play = Play(stops=True)
    assert play.effects == [Sync()]
    assert play.synced("running") == [Interrupt(0.25)]
    assert stopped(play) == [CANCELLED]


def test_what_waits_when_only_a_stop_is_wanted_is_refused() -> None:
    play = Play(stops=True)
    play.stored(told.action("a1"))
    assert play.synced("waiting_for_confirmation") == [Confirm(False)]
    play.confirmed()
    play.stored(told.refusal("a1"))
    assert play.synced("idle") == [CANCELLED]


# a pause


def test_a_pause_lets_the_call_end_and_then_waits() -> None:
    play = Play().running()
    assert play.pause() == [Pause()]
    assert play.live(told.status("paused"), told.snapshot("paused", "u1")) == []
    assert play.paused() == []
    assert play.live(told.snapshot("paused", "u1")) == [Paused(True)]
    assert play.turn.phase is Phase.PAUSED
    assert play.go() == [Paused(False), Run()]
    assert play.started() == []
    play.live(told.status("running"))
    assert play.finish() == [DONE]


def test_a_call_that_was_the_last_ends_the_turn_in_spite_of_a_pause() -> None:
    play = Play().running()
    play.pause()
    play.live(told.status("paused"), told.snapshot("paused", "u1"))
    assert play.finish() == [DONE]


def test_a_pause_that_is_ended_before_its_call_goes_on_without_a_stop() -> None:
    play = Play().running()
    play.pause()
    play.live(told.status("paused"), told.snapshot("paused", "u1"))
    play.paused()
    assert play.go() == [Paused(False), Run()]
    assert play.started(Kind.RUNNING) == [Run(0.5)]
    play.live(told.snapshot("paused", "u1"))
    assert play.started() == []
    play.live(told.status("running"))
    assert play.finish() == [DONE]
    assert play.said == []


def test_a_run_that_has_ended_while_it_was_asked_to_go_on_ends_the_turn() -> None:
    play = Play().running()
    play.pause()
    play.live(told.status("paused"), told.snapshot("paused", "u1"))
    play.go()
    play.finish()
    assert play.started(Kind.RUNNING) == [DONE]


def test_an_answer_during_a_pause_waits_for_its_end() -> None:
    play = Play().running().asking()
    assert play.pause() == [Paused(True)]
    assert play.answered(True) == []
    assert play.go() == [Paused(False), Confirm(True)]


def test_a_pause_before_the_run_begins_is_told_when_it_does() -> None:
    play = Play()
    assert play.pause() == []
    assert play.live(PROMPT) == [Pause()]


def test_a_stop_ends_a_paused_turn_at_once() -> None:
    play = Play().running()
    play.pause()
    play.live(told.status("paused"), told.snapshot("paused", "u1"), told.snapshot("paused", "u1"))
    assert play.cancel() == [Interrupt()]
    assert stopped(play) == [CANCELLED]
    assert play.go() == []


# any moment


def moments(play: Play) -> list[Callable[[], object]]:
    """What may happen next: answers of the server in any order, right and wrong, and the feed's."""
    last = play.effects[-1] if play.effects else None
    kinds = (None, Kind.UNSURE, Kind.BUSY, Kind.RUNNING, Kind.UNREACHED)
    by_request: dict[type, list[Callable[[], object]]] = {
        SendMessage: [partial(play.sent, kind) for kind in kinds],
        Run: [partial(play.started, kind) for kind in kinds],
        Confirm: [partial(play.confirmed, kind) for kind in kinds],
        Interrupt: [partial(play.interrupted, kind) for kind in (None, Kind.UNSURE)],
        Sync: [partial(play.synced, status) for status in STATUSES],
    }
    events: list[Callable[[], object]] = [
        lambda: play.live(PROMPT),
        lambda: play.live(told.status("running")),
        lambda: play.live(told.snapshot("running", "u1")),
        lambda: play.live(told.action("a1")),
        lambda: play.asking("a1"),
        lambda: play.live(told.result("a1")),
        lambda: play.finish(),
        lambda: play.finish("error"),
        lambda: play.answered(True),
        lambda: play.answered(False),
    ]
    return [*by_request.get(type(last), []) * 2, *events]


@pytest.mark.parametrize("seed", range(300))
def test_after_a_cancel_at_any_moment_nothing_is_started_and_there_is_one_end(seed: int) -> None:
    chosen = random.Random(seed)
    play = Play()
    for _ in range(chosen.randint(0, 12)):
        if play.end is None:
            chosen.choice(moments(play))()
    if play.end is not None:
        return
    under_way = play.turn.phase is Phase.SENDING
    before = len(play.all)
    play.cancel(under_way=under_way)
    if under_way:
        play.sent(chosen.choice((None, Kind.UNSURE, Kind.BUSY)))
    for _ in range(200):
        if play.end is not None:
            break
        if chosen.random() < 0.3:
            chosen.choice((lambda: play.live(told.status("running")), play.finish))()
        requests = [e for e in play.all if not isinstance(e, Withdraw | Say | Paused)]
        match requests[-1]:
            case Interrupt():
                play.interrupted()
            case Confirm():
                play.confirmed()
                play.stored(told.refusal("a1"))
            case Sync():
                play.synced(chosen.choice(("running", "paused", "idle")))
            case Run():
                play.started()
            case _:
                play.synced("idle")
    assert play.end == CANCELLED
    started = [e for e in play.all[before:] if isinstance(e, SendMessage | Run)]
    assert started == []
    assert Confirm(True) not in play.all[before:]
    assert not isinstance(play.end, Fail)
