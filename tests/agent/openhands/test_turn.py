"""A prompt's turn: sent once, ended with its run, whatever is cut, late or lost."""

import pytest

from agent.openhands import turn_words as words
from agent.openhands.problems import Kind
from agent.openhands.turn_words import End, Fail, Phase, Run, Say, SendMessage, Sync
from tests.agent.openhands import events as told
from tests.agent.openhands.playing import PROMPT, Play

DONE = End("end_turn")
NEVER_TAKEN = (Kind.UNREACHED, Kind.NOT_ALLOWED, Kind.GONE, Kind.REFUSED)


def test_a_turn_ends_with_the_snapshot_after_its_run_and_not_before() -> None:
    play = Play()
    assert play.effects == [SendMessage()]
    play.running()
    assert play.live(told.status("finished")) == []
    assert play.live(told.snapshot("finished", "u1")) == [DONE]


def test_finished_between_two_messages_of_one_run_is_no_end() -> None:
    play = Play().running()
    assert play.live(told.status("finished"), told.status("running")) == []
    assert play.finish() == [DONE]


@pytest.mark.parametrize("status", ["idle", "finished", "error", "paused", "stuck"])
def test_a_snapshot_from_before_the_message_says_nothing(status: str) -> None:
    play = Play()
    assert play.live(told.snapshot(status, "u0")) == []
    play.sent()
    assert play.live(told.snapshot("running", "u0")) == []
    play.running()
    assert play.end is None
    assert play.finish() == [DONE]


def test_a_run_that_ends_before_the_message_was_answered_ends_the_turn() -> None:
    play = Play()
    play.live(PROMPT, told.status("running"), told.status("finished"))
    assert play.live(told.snapshot("finished", "u1")) == [DONE]
    assert play.sent() == []


def test_a_message_that_is_known_by_its_id_alone_counts_once_the_server_has_taken_it() -> None:
    play = Play()
    play.live(told.user("do it, said otherwise", "u1"))
    play.live(told.field("last_user_message_id", "u1"), told.status("running"))
    play.sent()
    assert play.finish() == [DONE]


# its answer is lost


def test_a_message_whose_answer_is_lost_is_looked_for_and_not_sent_again() -> None:
    play = Play()
    assert play.sent(Kind.UNSURE) == [Sync()]
    play.stored(PROMPT, told.status("running"))
    assert play.synced("running") == []
    assert play.finish() == [DONE]
    assert play.all.count(SendMessage()) == 1


def test_a_message_that_is_not_found_is_an_error_and_never_sent_again() -> None:
    play = Play()
    play.sent(Kind.UNSURE)
    while play.end is None:
        assert play.synced("idle") != []
    assert play.end == Fail(words.NOT_KNOWN)
    assert play.all.count(SendMessage()) == 1
    assert play.turn.uncertain


def test_a_message_that_was_taken_without_a_run_gets_its_run_alone() -> None:
    play = Play()
    play.sent(Kind.UNSURE)
    play.stored(PROMPT)
    assert play.synced("idle") == [Run()]
    assert play.started() == []
    play.live(told.status("running"))
    assert play.finish() == [DONE]


def test_a_run_from_before_the_message_is_not_its_run() -> None:
    play = Play()
    play.sent(Kind.UNSURE)
    play.stored(told.status("running"), told.status("finished"), PROMPT)
    assert play.synced("idle") == [Run()]


def test_its_run_may_have_ended_while_nobody_was_connected() -> None:
    play = Play()
    play.sent(Kind.UNSURE)
    play.stored(PROMPT, told.status("running"), told.status("finished"))
    assert play.synced("finished") == []
    assert play.live(told.snapshot("finished", "u1")) == [DONE]


@pytest.mark.parametrize("kind", NEVER_TAKEN)
def test_a_message_that_the_server_did_not_take_is_an_error_at_once(kind: Kind) -> None:
    play = Play()
    play.sent(kind)
    assert isinstance(play.end, Fail)
    assert play.end.auth == (kind is Kind.NOT_ALLOWED)


def test_without_room_for_a_run_only_the_run_is_asked_for_again_and_that_is_said_once() -> None:
    play = Play()
    assert play.sent(Kind.BUSY) == [Say(words.BUSY), Run(1)]
    assert play.started(Kind.BUSY) == [Run(2)]
    assert [play.started(Kind.BUSY) for _ in range(5)][-1] == [Run(30)]
    assert play.started() == []
    play.live(PROMPT, told.status("running"))
    assert play.finish() == [DONE]
    assert play.all.count(SendMessage()) == 1


def test_a_run_that_is_going_already_is_waited_for() -> None:
    play = Play()
    play.sent(Kind.BUSY)
    play.live(PROMPT)
    assert play.started(Kind.RUNNING) == []
    assert play.finish() == [DONE]


def test_a_run_whose_answer_is_lost_is_looked_for() -> None:
    play = Play()
    play.sent(Kind.BUSY)
    play.live(PROMPT)
    assert play.started(Kind.UNSURE) == [Sync(1.0)]
    assert play.synced("idle") == [Run()]
    assert play.started(Kind.UNREACHED) == [Sync(1.0)]
    assert play.synced("running") == []
    assert play.finish() == [DONE]


def test_a_server_that_never_begins_a_run_ends_in_an_error() -> None:
    play = Play()
    play.sent()
    play.live(PROMPT, told.snapshot("idle", "u1"))
    for _ in range(20):
        if play.end is not None:
            break
        play.started() if Run() in play.effects else play.synced("idle")
        play.live(told.snapshot("idle", "u1"))
    assert play.end == Fail(words.NOT_STARTED)


def test_a_server_that_neither_runs_nor_lets_run_ends_in_an_error() -> None:
    """It says that a run is going (409) and that it is idle."""
    play = Play()
    play.sent()
    play.live(PROMPT, told.snapshot("idle", "u1"))
    for _ in range(20):
        if play.end is not None:
            break
        play.started(Kind.RUNNING) if Run() in play.effects else play.synced("idle")
        play.live(told.snapshot("idle", "u1"))
    assert play.end == Fail(words.NOT_STARTED)


def test_while_the_server_can_not_be_reached_it_is_asked_again_and_that_is_said_once() -> None:
    play = Play()
    play.sent(Kind.UNSURE)
    assert play.synced(kind=Kind.UNREACHED) == [Say(words.LOST), Sync(1)]
    assert play.synced(kind=Kind.UNREACHED) == [Sync(2)]
    play.synced(kind=Kind.GONE)
    assert isinstance(play.end, Fail)


# the server is started again


def test_a_message_that_the_server_took_before_it_died_gets_a_run_when_it_is_back() -> None:
    play = Play()
    play.live(PROMPT)
    play.sent()
    play.live(told.snapshot("idle", "u1"))
    assert play.effects == [Sync(1.0)]
    assert play.synced("idle") == [Run()]


def test_a_run_that_died_with_the_server_is_an_error() -> None:
    play = Play().running()
    play.stored(told.status("error"))
    assert play.live(told.snapshot("error", "u1")) == [Fail(words.NO_REASON)]


# how runs end


def test_a_failure_is_one_error_with_code_and_detail_masked_and_of_500_characters() -> None:
    play = Play().running()
    detail = "no: api_key=abcdefgh1234567 " + "x" * 900
    play.live(told.status("error"), told.failure("LLMBadRequestError", detail))
    play.live(told.snapshot("error", "u1"))
    assert isinstance(play.end, Fail)
    assert play.end.sentence.startswith("LLMBadRequestError: no: api_key=*** xxx")
    assert len(play.end.sentence) == 500


def test_a_failure_of_an_earlier_run_is_not_this_turn_s() -> None:
    play = Play()
    play.stored(told.failure("Old", "of before"))
    play.running()
    assert play.finish("error") == [Fail(words.NO_REASON)]


def test_the_most_calls_of_one_run_is_a_stop_reason_of_its_own() -> None:
    play = Play().running()
    play.live(told.failure("MaxIterationsReached", "500"))
    assert play.finish("error") == [End("max_turn_requests")]


def test_an_agent_that_repeats_itself_and_a_stop_by_others_are_said() -> None:
    play = Play().running()
    assert play.finish("stuck") == [Say(words.STUCK), DONE]
    play = Play().running()
    assert play.finish("paused") == [Sync(1.0)]
    assert play.synced("paused") == [Say(words.STOPPED_ELSEWHERE), DONE]


def test_a_stop_because_the_conversation_is_deleted_is_an_error() -> None:
    play = Play().running()
    play.finish("paused")
    play.synced(kind=Kind.GONE)
    assert isinstance(play.end, Fail)


@pytest.mark.parametrize("kind", [Kind.GONE, Kind.NOT_ALLOWED])
def test_a_feed_that_has_ended_for_good_ends_the_turn_with_its_reason(kind: Kind) -> None:
    play = Play().running()
    play.gone(kind)
    assert play.end == Fail(f"it is {kind.name}", auth=kind is Kind.NOT_ALLOWED)


def test_nothing_that_comes_after_the_end_says_anything() -> None:
    play = Play().running()
    play.finish()
    assert play.turn.phase is Phase.ENDED
    for status in ("running", "error", "waiting_for_confirmation"):
        assert play.finish(status) == []
    assert play.cancel() == play.gone(Kind.GONE) == play.answered(True) == []
