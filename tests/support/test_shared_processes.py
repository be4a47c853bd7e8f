"""The judge of how sessions share processes finds what must not happen."""

from typing import Any

from tests.support.shared_processes import faults_of_sharing


def at(pid: int, event: str, session: str = "a", **more: Any) -> dict[str, Any]:
    return {"pid": pid, "event": event, "session": session, **more}


def closed(pid: int, session: str) -> dict[str, Any]:
    message = {"method": "session/close", "params": {"sessionId": session}}
    return {"pid": pid, "event": "received", "message": message}


TURN = at(1, "turn", prompt="one")


def test_turns_of_two_sessions_that_overlap_in_one_process_are_a_fault() -> None:
    other = at(1, "turn", "b", prompt="two")
    assert len(faults_of_sharing([TURN, other])) == 1
    assert faults_of_sharing([TURN, at(1, "answered"), other]) == []
    assert faults_of_sharing([TURN, {**other, "pid": 2}]) == []


def test_a_session_that_a_living_process_has_is_to_be_closed_there_first() -> None:
    opened = at(2, "open elsewhere", holder=1)
    assert len(faults_of_sharing([opened, closed(1, "b")])) == 1
    assert faults_of_sharing([opened, closed(1, "a")]) == [], "the close was on its way"
    assert faults_of_sharing([opened]) == [], "it dies"
