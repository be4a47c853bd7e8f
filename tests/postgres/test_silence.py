"""How long a database is waited for that does not answer, and who may ask it meanwhile."""

from collections.abc import Generator
from contextlib import suppress

import pytest

from acp_bridge.core.journal.errors import DatabaseAway, DatabaseSilent
from acp_bridge.postgres.silence import NoAnswer, Silence, bounded, silent

#: what psycopg sends into a generator whose connection is not ready, and is.
NOT_READY, READY = 0, 1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def a_wait(rounds: int) -> Generator[int, int, str]:
    while rounds:
        rounds -= (yield 1) == READY
    return "done"


def test_a_wait_may_last_as_long_as_bytes_come() -> None:
    clock = Clock()
    wait = bounded(a_wait(100), 5, clock)  # type: ignore[arg-type]
    next(wait)
    for _ in range(99):
        for _ in range(4):
            clock.now += 1
            wait.send(NOT_READY)
        wait.send(READY)
    assert clock.now == 396
    with pytest.raises(StopIteration) as end:
        wait.send(READY)
    assert end.value.value == "done"


def test_a_wait_ends_when_no_byte_has_come_for_its_time() -> None:
    clock = Clock()
    wait = bounded(a_wait(2), 5, clock)  # type: ignore[arg-type]
    next(wait)
    clock.now = 4
    wait.send(READY)
    clock.now = 8.9
    wait.send(NOT_READY)
    clock.now = 9
    with pytest.raises(NoAnswer):
        wait.send(NOT_READY)


def test_a_process_that_stood_still_reads_an_answer_that_has_come_meanwhile() -> None:
    clock = Clock()
    wait = bounded(a_wait(1), 5, clock)  # type: ignore[arg-type]
    next(wait)
    clock.now = 1000
    with pytest.raises(StopIteration):
        wait.send(READY)


def found_silent(silence: Silence) -> None:
    with suppress(DatabaseSilent), silence.asking(silence.found):
        raise silent()


def is_refused(silence: Silence, found: int | None = None) -> bool:
    try:
        with silence.asking(silence.found if found is None else found):
            return False
    except DatabaseSilent:
        return True


def test_one_caller_at_a_time_asks_a_database_that_is_silent() -> None:
    silence = Silence()
    found_silent(silence)
    with suppress(DatabaseSilent), silence.asking(silence.found):
        assert is_refused(silence)
        assert is_refused(silence)
        raise silent()
    with silence.asking(silence.found):  # this one is answered
        assert is_refused(silence)
    assert not is_refused(silence)


def test_others_are_let_in_at_the_first_answer_to_who_asks() -> None:
    silence = Silence()
    found_silent(silence)
    with silence.asking(silence.found):
        assert is_refused(silence)
        silence.answered()
        assert not is_refused(silence)


def test_callers_who_waited_for_a_place_when_it_fell_silent_are_refused() -> None:
    silence = Silence()
    came = silence.found
    found_silent(silence)
    assert is_refused(silence, came)
    assert not is_refused(silence)


def test_an_answer_to_one_who_may_always_ask_lets_the_others_in() -> None:
    silence = Silence()
    found_silent(silence)
    with silence.asking(silence.found, always=True):
        pass
    assert not is_refused(silence)


def test_a_database_that_reports_an_error_is_not_silent() -> None:
    silence = Silence()
    found_silent(silence)
    with suppress(DatabaseAway), silence.asking(silence.found):
        raise DatabaseAway("it is shutting down")
    with silence.asking(silence.found):
        assert not is_refused(silence)
