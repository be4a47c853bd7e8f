"""Actions that wait: one question for all of them, and an answer that means exactly those."""

import pytest

from agent.openhands import turn_words as words
from agent.openhands.problems import Kind
from agent.openhands.turn_words import Ask, Confirm, End, Fail, Phase, Run, Sync, Withdraw
from tests.agent.openhands import events as told
from tests.agent.openhands.playing import Play

DONE = End("end_turn")


def asked(play: Play) -> list[list[str]]:
    return [[a.id for a in effect.actions] for effect in play.all if isinstance(effect, Ask)]


def test_a_run_that_ended_because_actions_wait_has_not_ended_the_turn() -> None:
    play = Play().running().asking("a1", "a2")
    assert play.end is None
    assert asked(play) == [["a1", "a2"]]


def test_consent_is_told_and_the_turn_goes_on_to_its_end() -> None:
    play = Play().running().asking()
    assert play.answered(True) == [Confirm(True)]
    assert play.confirmed() == []
    play.live(told.status("running"), told.result("a1"))
    assert play.finish() == [DONE]


def test_a_run_that_ends_before_the_consent_was_answered_ends_the_turn() -> None:
    play = Play().running().asking()
    play.answered(True)
    play.live(told.status("running"), told.result("a1"))
    assert play.finish() == []
    assert play.confirmed() == [DONE]


def test_the_next_actions_are_asked_about_again() -> None:
    play = Play().running().asking("a1")
    play.answered(True)
    play.confirmed()
    play.live(told.status("running"), told.result("a1"))
    play.asking("a2")
    assert asked(play) == [["a1"], ["a2"]]


def test_a_snapshot_that_still_shows_them_waiting_asks_no_second_time() -> None:
    """The feed was cut and came back between the consent and the run."""
    play = Play().running().asking()
    play.answered(True)
    play.confirmed()
    assert play.live(told.snapshot("waiting_for_confirmation", "u1")) == [Sync(1.0)]
    assert play.synced("waiting_for_confirmation") == [Sync(1.0)]
    play.live(told.status("running"))
    assert play.synced("running") == []
    play.live(told.result("a1"))
    assert play.finish() == [DONE]
    assert asked(play) == [["a1"]]


def test_consent_to_others_than_were_asked_about_is_asked_for_anew() -> None:
    play = Play().running().asking("a1")
    play.stored(told.action("a2", command="more"))
    play.answered(True)
    assert asked(play) == [["a1"], ["a1", "a2"]]
    assert Confirm(True) not in play.all


def test_what_another_client_has_answered_is_taken_back() -> None:
    play = Play().running().asking()
    play.live(told.status("running"))
    assert play.live(told.result("a1")) == [Withdraw()]
    assert play.answered(True) == []
    assert play.finish() == [DONE]


def test_a_refusal_is_told_and_seen_before_the_run_goes_on() -> None:
    play = Play().running().asking()
    assert play.answered(False) == [Confirm(False)]
    assert play.confirmed() == [Sync()]
    play.stored(told.status("idle"), told.refusal("a1"))
    assert play.synced("idle") == [Run()]
    play.started()
    play.live(told.status("running"))
    assert play.finish() == [DONE]


@pytest.mark.parametrize("kind", [None, Kind.UNSURE, Kind.UNREACHED])
def test_a_refusal_that_is_not_seen_is_told_again_and_nothing_else_is_sent(
    kind: Kind | None,
) -> None:
    play = Play().running().asking()
    play.answered(False)
    for _ in range(20):
        if play.end is not None:
            break
        if isinstance(play.effects[0], Confirm):
            play.confirmed(kind)
        else:
            play.synced("waiting_for_confirmation")
    assert play.end == Fail(words.NOT_REJECTED)
    assert not [effect for effect in play.all if effect == Run() or effect == Confirm(True)]


def test_without_room_for_a_run_the_consent_is_told_again_later() -> None:
    play = Play().running().asking()
    play.answered(True)
    assert play.confirmed(Kind.BUSY) == [Confirm(True, 1)]
    assert play.confirmed(Kind.BUSY) == [Confirm(True, 2)]


def test_consent_whose_answer_is_lost_is_looked_for_and_asked_again_if_it_was_not_taken() -> None:
    play = Play().running().asking()
    play.answered(True)
    assert play.confirmed(Kind.UNSURE) == [Sync(1.0)]
    play.synced("waiting_for_confirmation")
    assert asked(play) == [["a1"], ["a1"]]
    play = Play().running().asking()
    play.answered(True)
    play.confirmed(Kind.UNSURE)
    play.stored(told.status("running"))
    assert play.synced("running") == []
    assert play.turn.phase is Phase.RUNNING


def test_a_snapshot_before_its_actions_are_known_reads_the_log_first() -> None:
    play = Play().running()
    play.live(told.status("waiting_for_confirmation"))
    play.live(told.snapshot("waiting_for_confirmation", "u1"))
    assert play.effects == [Sync(1.0)]
    play.stored(told.action("a1"))
    play.synced("waiting_for_confirmation")
    assert asked(play) == [["a1"]]


def test_a_question_that_the_client_took_for_cancelled_is_a_cancel() -> None:
    play = Play().running().asking()
    assert play.answered(None) == [Withdraw(), Confirm(False)]
    assert play.turn.cancelled
