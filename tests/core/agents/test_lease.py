"""The session's lock between bridges."""

import fcntl
import os
import stat
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

from acp_bridge.core.agents.lease import Busy, acquire

pytestmark = pytest.mark.hazard("K3", "P12")


@pytest.mark.hazard("K3.1")
async def test_a_second_bridge_is_refused_while_the_first_holds_the_session(tmp_path: Path) -> None:
    fd = await acquire(tmp_path / "lock", 0)
    with pytest.raises(Busy):
        await acquire(tmp_path / "lock", 0)
    os.close(fd)


@pytest.mark.hazard("K3.4")
async def test_a_second_bridge_gives_up_when_its_time_is_over(tmp_path: Path) -> None:
    fd = await acquire(tmp_path / "lock", 0)
    with anyio.fail_after(5), pytest.raises(Busy):
        await acquire(tmp_path / "lock", 0.06)
    os.close(fd)


@pytest.mark.hazard("K3.4")
async def test_a_waiting_bridge_gets_the_session_when_the_first_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    got: list[int] = []

    async def wait(*, task_status: TaskStatus[None]) -> None:
        task_status.started()
        got.append(await acquire(path, 5))

    first = await acquire(path, 0)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            await tasks.start(wait)
            assert got == []
            os.close(first)
    os.close(got[0])


@pytest.mark.hazard("K3.2")
async def test_the_lock_lasts_until_every_holder_of_the_open_file_has_let_go(
    tmp_path: Path,
) -> None:
    fd = await acquire(tmp_path / "lock", 0)
    guards = os.dup(fd)
    os.close(fd)
    with pytest.raises(Busy):
        await acquire(tmp_path / "lock", 0)
    os.close(guards)
    os.close(await acquire(tmp_path / "lock", 0))


async def test_two_sessions_do_not_know_each_other(tmp_path: Path) -> None:
    fds = [await acquire(tmp_path / name, 0) for name in ("one", "two")]
    for fd in fds:
        os.close(fd)


async def test_a_lock_on_a_file_deleted_meanwhile_is_not_taken_for_the_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that deletes a session may let go between another's open and its flock."""
    path = tmp_path / "lock"
    deleter = await acquire(path, 0)

    def flock_too_late(fd: int, operation: int) -> None:
        monkeypatch.undo()
        path.unlink()
        os.close(deleter)
        fcntl.flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock_too_late)
    fd = await acquire(path, 5)
    assert os.path.samestat(os.fstat(fd), path.stat())
    os.close(fd)


async def test_the_lock_file_is_private_and_not_inherited(tmp_path: Path) -> None:
    fd = await acquire(tmp_path / "lock", 0)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
    assert not os.get_inheritable(fd)
    os.close(fd)


async def test_waiting_and_being_cancelled_leave_no_descriptor(tmp_path: Path) -> None:
    fd = await acquire(tmp_path / "lock", 0)
    before = os.listdir("/proc/self/fd")
    with anyio.move_on_after(0.06):
        await acquire(tmp_path / "lock", 5)
    with pytest.raises(Busy):
        await acquire(tmp_path / "lock", 0)
    with pytest.raises(FileNotFoundError):
        await acquire(tmp_path / "no folder" / "lock", 0)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    os.close(fd)
