"""Until when a bridge goes on without a client."""

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.bridge import attendance
from acp_bridge.core.bridge.attendance import LINGER, Attendance
from acp_bridge.core.bridge.unattended import Unattended

pytestmark = pytest.mark.hazard("V7")

HOUR = 3600.0


def test_while_a_client_is_there_no_end_is_set() -> None:
    attendance = Attendance(HOUR)
    assert attendance.end is None
    attendance.note_clients(False, 5)
    attendance.note_clients(True, 6)
    assert attendance.end is None


@pytest.mark.parametrize("busy", [True, False])
def test_a_bridge_that_is_not_kept_ends_with_its_client_whatever_runs(busy: bool) -> None:
    attendance = Attendance(0)
    attendance.note_work(busy, 3)
    attendance.note_clients(False, 5)
    assert attendance.end == 5


@pytest.mark.hazard("V7.5")
def test_work_goes_on_for_the_whole_time_counted_from_the_last_client_s_end() -> None:
    attendance = Attendance(HOUR)
    attendance.note_work(True, 1)
    attendance.note_clients(True, 2)
    attendance.note_clients(False, 100)
    attendance.note_clients(False, 200)
    assert attendance.end == 100 + HOUR


@pytest.mark.hazard("V7.5")
def test_a_client_that_comes_back_begins_the_time_anew() -> None:
    attendance = Attendance(HOUR)
    attendance.note_work(True, 1)
    attendance.note_clients(False, 100)
    attendance.note_clients(True, 200)
    attendance.note_clients(False, 300)
    assert attendance.end == 300 + HOUR


def test_without_work_it_ends_soon_after_its_last_client() -> None:
    attendance = Attendance(HOUR)
    attendance.note_work(True, 1)
    attendance.note_work(False, 50)
    attendance.note_clients(False, 100)
    assert attendance.end == 100 + LINGER


def test_one_that_never_had_any_work_ends_soon_after_its_last_client() -> None:
    attendance = Attendance(HOUR)
    attendance.note_clients(False, 0.5)
    assert attendance.end == 0.5 + LINGER


def test_once_the_work_is_done_it_ends_soon() -> None:
    attendance = Attendance(HOUR)
    attendance.note_work(True, 1)
    attendance.note_clients(False, 100)
    attendance.note_work(False, 700)
    attendance.note_work(False, 705)
    assert attendance.end == 700 + LINGER
    attendance.note_work(True, 707)
    assert attendance.end == 100 + HOUR


def test_what_ends_late_does_not_add_to_the_time_of_work() -> None:
    attendance = Attendance(20)
    attendance.note_work(True, 1)
    attendance.note_clients(False, 100)
    attendance.note_work(False, 119)
    assert attendance.end == 120


class Thing:
    """Something that clients may have open."""

    def __init__(self, *, busy: bool) -> None:
        """Nobody has it open."""
        self.attended, self.busy = False, busy


async def test_a_client_that_came_and_went_at_once_begins_the_time_anew() -> None:
    thing = Thing(busy=True)
    unattended = Unattended(HOUR, lambda: [thing])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unattended.over)
        await anyio.lowlevel.checkpoint()
        first = unattended._attendance[thing].end
        thing.attended = True
        unattended.look_again()
        thing.attended = False
        unattended.look_again()
        assert first is not None
        second = unattended._attendance[thing].end
        assert second is not None
        assert second > first
        tasks.cancel_scope.cancel()


async def test_of_several_things_each_has_a_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    works, rests, goes = Thing(busy=True), Thing(busy=False), Thing(busy=True)
    there = [works, rests, goes]
    unattended = Unattended(HOUR, lambda: there)
    with anyio.fail_after(5):
        assert await unattended.over() is rests
        there.remove(rests)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(over_is, unattended, goes)
            await anyio.lowlevel.checkpoint()
            goes.attended = True
            unattended.look_again()
            goes.attended = goes.busy = False
            unattended.look_again()


async def over_is(unattended: Unattended[Thing], thing: Thing) -> None:
    assert await unattended.over() is thing
