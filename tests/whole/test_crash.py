"""Some rounds of `make crash`; the two hundred are the CI's."""

import pytest

from tests.crash.__main__ import why
from tests.crash.database import DATABASE
from tests.crash.phases import PHASES, drawn, play
from tests.crash.store import database

pytestmark = [pytest.mark.process, pytest.mark.slow]
#: `make crash` plays many of every phase.
ROUNDS = list(enumerate(("stream", "accept", "drain", "load", "kept", "queue")))


@pytest.mark.hazard("K1.1", "K1.3", "P1", "Q1.1", "Q5", "Q6.2", "R1", "R12", "X2", "X3")
async def test_nothing_acknowledged_or_shown_is_lost_by_a_kill() -> None:
    failed: dict[str, str] = {}
    for number, phase in ROUNDS:
        try:
            await play(phase, f"20.{number}")
        except Exception as exc:
            failed[f"make crash SEED=20 ARGS='--phase {phase} --only {number}'"] = why(exc)
    assert failed == {}


@pytest.mark.hazard("K1.3", "N4", "Q5", "Q6.2", "Q13")
async def test_nothing_shown_is_lost_by_a_kill_of_a_bridge_or_of_its_database() -> None:
    failed: dict[str, str] = {}
    with database() as shared:
        for number, phase in enumerate(["stream", *DATABASE]):
            try:
                await play(phase, f"21.{number}", shared)
            except Exception as exc:
                options = f"--postgres --phase {phase} --only {number}"
                failed[f"make crash SEED=21 ARGS='{options}'"] = why(exc)
    assert failed == {}


def test_half_of_the_rounds_are_killed_in_the_stream_and_every_phase_is_drawn() -> None:
    played = drawn(36, seed=20)
    assert played.count("stream") == 18
    assert set(played) == set(PHASES)


def test_a_database_is_killed_in_a_quarter_of_the_rounds_that_have_one() -> None:
    played = drawn(48, seed=20, postgres=True)
    assert [played.count(phase) for phase in ("stream", *DATABASE)] == [6, 6, 6, 6]
    assert set(played) == {*PHASES, *DATABASE}
