"""What the client, the journal and the log are told of a prompt's outcome."""

import logging
from typing import Any

import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.machine.effects import Cancelled, Done, Failed, Failure, Outcome, Replied
from acp_bridge.core.session.prompts.answers import as_told, for_journal, in_short, of_outcome
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, RpcError
from tests.core.session.played_agent import AUTH_REQUIRED, BUSY


def told(outcome: Outcome) -> RpcError:
    """Return the error that the client is told."""
    answer = of_outcome(outcome)
    assert isinstance(answer, Err)
    return answer.error


@pytest.mark.hazard("T3")
@pytest.mark.parametrize(
    "answer", [Ok({"stopReason": "refusal", "_x": [1]}), Ok(None), Ok([1]), Err(BUSY)]
)
def test_the_agents_own_answer_is_given_as_it_came(answer: Answer) -> None:
    assert of_outcome(Replied(answer)) is answer


@pytest.mark.hazard("X2.6")
@pytest.mark.parametrize(
    "answer",
    [
        Ok({"stopReason": "refusal", "error": {"code": 1, "message": "m"}}),
        Ok({"stopReason": "end_turn", "interrupted": True, "dropped": True}),
        Ok(None),
        Ok([1]),
        Ok({}),
    ],
)
def test_an_answer_is_the_same_from_the_journal(answer: Answer) -> None:
    assert as_told(for_journal(answer)) == answer


@pytest.mark.hazard("X2.6")
@pytest.mark.parametrize("error", [BUSY, AUTH_REQUIRED, RpcError.received(7, "m", [None])])
def test_an_error_is_the_same_from_the_journal(error: RpcError) -> None:
    again = as_told(for_journal(Err(error)))
    assert isinstance(again, Err)
    assert again.error.to_wire() == error.to_wire()


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("lost", [None, {"unrecorded": True}, {"interrupted": True}])
def test_an_answer_that_the_journal_lacks_is_an_error_that_says_that_nothing_is_sent_again(
    lost: dict[str, bool] | None,
) -> None:
    again = as_told(lost)
    assert isinstance(again, Err)
    assert (again.error.code, "not sent again" in again.error.message) == (-32603, True)


@pytest.mark.parametrize(("outcome", "reason"), [(Cancelled(), "cancelled"), (Done(), "end_turn")])
def test_an_outcome_that_the_bridge_decided_has_its_stop_reason(
    outcome: Outcome, reason: str
) -> None:
    assert of_outcome(outcome) == Ok({"stopReason": reason})


@pytest.mark.hazard("Q9.1")
@pytest.mark.parametrize("odd", [None, {"stopReason": "end_turn"}, "end_turn", BUSY])
def test_what_is_no_answer_becomes_an_error_and_never_a_success(
    odd: object, caplog: pytest.LogCaptureFixture
) -> None:
    error = told(Replied(odd))
    assert error.code == -32603
    assert "not understood (the log has more under id " in error.message
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("failure", "detail", "code", "sentence"),
    [
        (
            Failure.JOURNAL,
            "/home/me/x.db: disk full",
            -32603,
            "the prompt could not be written to the journal: not taken",
        ),
        (Failure.CLOSED, None, -32002, "unknown session"),
        (
            Failure.AGENT_DIED,
            Exit(3, None),
            -32603,
            "the agent ended during the turn (exit code 3); the session goes on, the prompt is"
            " not sent again",
        ),
        (
            Failure.AGENT_DIED,
            None,
            -32603,
            "the agent ended during the turn (it is gone); the session goes on, the prompt is not"
            " sent again",
        ),
        (
            Failure.NO_AGENT,
            Exit(None, 9),
            -32603,
            "the agent could not be made ready: it ended (signal SIGKILL)",
        ),
        (Failure.NO_AGENT, "not found", -32603, "the agent could not be made ready: not found"),
        (Failure.NO_AGENT, None, -32603, "the agent could not be made ready in time"),
        (Failure.NEEDS_AUTH, None, -32000, "authentication required"),
    ],
)
def test_each_failure_is_one_sentence_of_the_bridges_own(
    failure: Failure, detail: object, code: int, sentence: str
) -> None:
    error = told(Failed(failure, detail))
    assert (error.code, error.message) == (code, sentence)


@pytest.mark.hazard("P3.1")
def test_the_sentence_about_an_agent_that_died_says_how() -> None:
    assert "(signal SIGSEGV)" in told(Failed(Failure.AGENT_DIED, Exit(None, 11))).message


def test_an_agent_that_wants_a_login_says_so_in_its_own_words() -> None:
    assert told(Failed(Failure.NEEDS_AUTH, AUTH_REQUIRED)) == AUTH_REQUIRED


@pytest.mark.parametrize("failure", Failure)
def test_every_failure_has_an_answer(failure: Failure) -> None:
    assert told(Failed(failure)).message


@pytest.mark.parametrize(
    ("answer", "kept", "short"),
    [
        (Ok({"stopReason": "end_turn", "_x": 1}), {"stopReason": "end_turn", "_x": 1}, "end_turn"),
        (Ok({}), {}, None),
        (Ok([1]), {"result": [1]}, "?"),
        (Ok(None), {"result": None}, "?"),
        (
            Err(BUSY),
            {"error": {"code": -32603, "message": "busy", "data": {"kept": 1}}},
            "error -32603",
        ),
    ],
)
def test_the_journal_keeps_an_answer_whole_and_the_log_has_it_in_a_word(
    answer: Answer, kept: dict[str, Any], short: object
) -> None:
    assert for_journal(answer) == kept
    assert in_short(answer) == short


def test_the_journal_keeps_nothing_of_what_is_no_answer() -> None:
    assert for_journal(None) is None
    assert for_journal({"stopReason": "end_turn"}) is None
