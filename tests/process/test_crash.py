"""Some rounds of `make crash`; the two hundred are the CI's."""

import os

import anyio
import pytest

from tests.crash.__main__ import why
from tests.crash.phases import PHASES, drawn, play

pytestmark = [pytest.mark.process, pytest.mark.slow]
#: each phase once; `make crash` plays many.
ROUNDS = list(enumerate(PHASES))


@pytest.mark.hazard("K1", "P1", "Q1", "Q5", "Q6", "R1", "R12", "X2", "X3")
async def test_nothing_acknowledged_or_shown_is_lost_by_a_kill() -> None:
    cores = anyio.CapacityLimiter(os.cpu_count() or 2)
    failed: dict[str, str] = {}

    async def one(number: int, phase: str) -> None:
        async with cores:
            try:
                await play(phase, f"20.{number}")
            except Exception as exc:
                failed[f"make crash SEED=20 ARGS='--phase {phase} --only {number}'"] = why(exc)

    async with anyio.create_task_group() as tasks:
        for number, phase in ROUNDS:
            tasks.start_soon(one, number, phase)
    assert failed == {}


def test_half_of_the_rounds_are_killed_in_the_stream_and_every_phase_is_drawn() -> None:
    played = drawn(36, seed=20)
    assert played.count("stream") == 18
    assert set(played) == set(PHASES)
