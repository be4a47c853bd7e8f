"""The machine's deadlines, kept by a clock that the test turns.

They are built by hand: in a living session no clock but the real one runs.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.events import Timer
from acp_bridge.core.session.effects import Deadlines
from acp_bridge.core.settings import Settings
from tests.core.session.played_core import PlayedCore
from tests.core.session.waiting import until

SETTINGS = Settings(
    ("agent",), "agent", Path("/home"), drain_timeout=4, kill_timeout=7, restart_timeout=9
)
SECONDS = {Timer.SPARE: 2, Timer.DRAIN: 4, Timer.KILL: 7, Timer.RESTART: 9, Timer.SIGN: 60}


class Clock:
    """Stands in for `anyio.sleep`: a sleep ends when the test says so."""

    def __init__(self) -> None:
        self.sleeping: list[tuple[float, anyio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        sleep = (seconds, anyio.Event())
        self.sleeping.append(sleep)
        try:
            await sleep[1].wait()
        finally:
            self.sleeping.remove(sleep)

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _ in self.sleeping]

    def passes(self, seconds: float) -> None:
        """Let the sleeps of this length end."""
        for asked, ends in self.sleeping:
            if asked == seconds:
                ends.set()


class Stage(PlayedCore):
    """Deadlines on such a clock, and their core."""

    def __init__(self, tasks: TaskGroup, clock: Clock) -> None:
        super().__init__(tasks)
        self.clock = clock
        self.deadlines = Deadlines(self, SETTINGS)
        #: armed anew by each deadline.
        self.again: Timer | None = None

    def feed(self, event: ev.Event) -> None:
        super().feed(event)
        if self.again:
            self.deadlines.arm(self.again, len(self.fed) + 1)

    async def armed(self, *timers: Timer) -> None:
        """Return when the clock runs for these timers and no other."""
        await until(lambda: sorted(self.clock.seconds) == sorted(SECONDS[each] for each in timers))


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    clock = Clock()
    monkeypatch.setattr(anyio, "sleep", clock.sleep)
    async with anyio.create_task_group() as tasks:
        yield Stage(tasks, clock)
        tasks.cancel_scope.cancel()


@pytest.mark.hazard("C21.1")
@pytest.mark.parametrize("timer", Timer)
async def test_a_timer_that_passes_becomes_a_deadline_with_its_token(
    stage: Stage, timer: Timer
) -> None:
    stage.deadlines.arm(timer, 5)
    await stage.armed(timer)
    assert stage.fed == []
    stage.clock.passes(SECONDS[timer])
    await until(lambda: stage.fed)
    assert stage.fed == [ev.Deadline(timer, 5)]


@pytest.mark.hazard("C14.2")
async def test_a_timer_armed_again_voids_the_one_before(stage: Stage) -> None:
    stage.deadlines.arm(Timer.KILL, 1)
    await stage.armed(Timer.KILL)
    stage.deadlines.arm(Timer.KILL, 2)
    stage.deadlines.arm(Timer.DRAIN, 3)
    await stage.armed(Timer.KILL, Timer.DRAIN)
    stage.clock.passes(SECONDS[Timer.KILL])
    await stage.armed(Timer.DRAIN)
    assert stage.fed == [ev.Deadline(Timer.KILL, 2)]


@pytest.mark.hazard("C14")
async def test_a_timer_that_is_disarmed_stops_alone(stage: Stage) -> None:
    stage.deadlines.arm(Timer.SPARE, 1)
    stage.deadlines.arm(Timer.DRAIN, 2)
    await stage.armed(Timer.SPARE, Timer.DRAIN)
    stage.deadlines.disarm(Timer.SPARE)
    await stage.armed(Timer.DRAIN)
    stage.deadlines.disarm(Timer.SPARE)
    stage.clock.passes(SECONDS[Timer.DRAIN])
    await until(lambda: stage.fed)
    assert stage.fed == [ev.Deadline(Timer.DRAIN, 2)]


async def test_a_timer_that_is_disarmed_before_it_began_never_begins(stage: Stage) -> None:
    stage.deadlines.arm(Timer.KILL, 1)
    stage.deadlines.disarm(Timer.KILL)
    stage.deadlines.arm(Timer.DRAIN, 2)
    await stage.armed(Timer.DRAIN)
    assert stage.fed == []


@pytest.mark.hazard("C14")
async def test_a_timer_that_is_disarmed_in_the_moment_in_which_it_passes_says_nothing(
    stage: Stage,
) -> None:
    stage.deadlines.arm(Timer.KILL, 1)
    await stage.armed(Timer.KILL)
    stage.clock.passes(SECONDS[Timer.KILL])
    stage.deadlines.disarm(Timer.KILL)
    await stage.armed()
    assert stage.fed == []


async def test_a_deadline_may_arm_its_own_timer_anew(stage: Stage) -> None:
    stage.again = Timer.KILL
    stage.deadlines.arm(Timer.KILL, 1)
    await stage.armed(Timer.KILL)
    stage.clock.passes(SECONDS[Timer.KILL])
    await until(lambda: stage.fed)
    await stage.armed(Timer.KILL)
    stage.again = None
    stage.clock.passes(SECONDS[Timer.KILL])
    await until(lambda: len(stage.fed) == 2)
    assert stage.fed == [ev.Deadline(Timer.KILL, 1), ev.Deadline(Timer.KILL, 2)]
