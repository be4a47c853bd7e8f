"""Agents that are started before anybody watches them: taken over, or left to the start."""

import errno
import os
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents import birth
from acp_bridge.core.agents.birth import born_early
from acp_bridge.core.agents.connection import AgentCommand
from acp_bridge.core.agents.process import AgentProcess
from tests.core.agents.guard_support import (
    exists,
    failure_of,
    open_files,
    parent_of,
    python,
    read_line,
    zombies,
)

pytestmark = pytest.mark.process

SAYS_ITS_PID = python("import os; print(os.getpid(), flush=True); input()")


async def test_an_agent_that_was_started_early_is_watched_from_the_first_start_on() -> None:
    (newborn,) = born_early(SAYS_ITS_PID, None, None)
    assert newborn.guard
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            process = await AgentProcess.start(tasks, SAYS_ITS_PID, newborn=newborn)
            assert await read_line(process) == str(process.pid)
            assert parent_of(process.pid) == newborn.guard.pid
            await process.close(0)
    assert not exists(process.pid)


@pytest.mark.hazard("P12.3")
async def test_a_start_that_holds_a_lock_takes_no_agent_that_was_started_without_it(
    tmp_path: Path,
) -> None:
    early = born_early(SAYS_ITS_PID, None, None)
    command = AgentCommand(tuple(SAYS_ITS_PID), {}, early=early)
    lock_fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for lock, left in ((lock_fd, 1), (None, 0), (None, 0)):
                process = await command.start(tasks, lock, lambda line: None)
                assert len(early) == left
                await process.close(0)
    os.close(lock_fd)


async def test_an_early_agent_that_can_not_be_executed_is_told_by_the_start() -> None:
    for command in (["no-such-agent"], [str(Path(__file__).parent)]):
        (newborn,) = born_early(command, None, None)
        late = await failure_of(command)
        early = await failure_of(command, newborn=newborn)
        assert (str(early), early.permanent, early.by_file) == (str(late), True, True)
    assert zombies() == []


async def test_a_command_that_no_process_can_have_is_left_to_the_start() -> None:
    before = open_files(os.getpid())
    assert born_early(["agent\0"], None, None) == []
    assert open_files(os.getpid()) == before


async def test_a_system_without_room_for_an_early_agent_leaves_it_to_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(birth, "standard_streams", no_room)
    before = open_files(os.getpid())
    assert born_early(["cat"], None, None) == []
    assert open_files(os.getpid()) == before


async def test_an_early_agent_that_no_start_has_taken_is_killed_with_its_guard() -> None:
    before = open_files(os.getpid())
    (newborn,) = early = born_early(SAYS_ITS_PID, None, None)
    with anyio.fail_after(10):
        await AgentCommand(tuple(SAYS_ITS_PID), {}, early=early).end_early()
    assert newborn.guard
    assert not newborn.guard.is_alive()
    assert open_files(os.getpid()) == before
