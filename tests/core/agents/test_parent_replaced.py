"""The parent is replaced when the keys have changed since it was started."""

import errno
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import anyio
import pytest

from acp_bridge.core.agents import parent as parent_module
from acp_bridge.core.agents.parent import AgentParent, ParentProcess, Phase, _state_of
from acp_bridge.core.agents.process import AgentProcess
from acp_bridge.core.runtime import waits
from tests.core.agents.guard_support import marked_env, parent_of
from tests.core.agents.parent_support import (
    AGENT,
    PARENT,
    SLOW,
    Family,
    answers,
    first_start,
    parent_code,
)
from tests.support.processes import all_gone, gone, kill_marked

pytestmark = [pytest.mark.process, pytest.mark.hazard("F2")]


@asynccontextmanager
async def family(
    home: Path, command: list[str] | None = None, *, ready: bool = True
) -> AsyncIterator[Family]:
    """A parent that looks at the keys in this home; at the end nothing of it lives."""
    mark, env = marked_env()
    try:
        with patch.dict(os.environ, {**env, "ACP_BRIDGE_HOME": str(home)}):
            async with anyio.create_task_group() as tasks:
                parent = AgentParent(command or PARENT, None, home / "keys.env")
                tasks.start_soon(parent.run)
                world = Family(parent, tasks, mark)
                if ready:
                    await first_start(parent)
                    await world.until_ready()
                yield world
                tasks.cancel_scope.cancel()
        await all_gone(mark)
    finally:
        kill_marked(mark)


def write_key(home: Path, value: str = "a") -> None:
    (home / "keys.env").write_text(f"A_KEY={value}\n")


def grandparent(process: AgentProcess) -> int:
    return parent_of(parent_of(process.pid))


async def test_starts_behind_a_new_key_have_the_parent_replaced_once_and_what_lives_is_left_alone(
    tmp_path: Path,
) -> None:
    write_key(tmp_path)
    async with family(tmp_path) as world:
        first, agents = await world.until_ready(), list[AgentProcess]()
        before = [await world.agent() for _ in range(2)]
        assert [grandparent(each) for each in before] == [first] * 2
        write_key(tmp_path, "b2")

        async def start() -> None:
            agents.append(await world.agent())

        with anyio.fail_after(SLOW):
            async with anyio.create_task_group() as starts:
                for _ in range(3):
                    starts.start_soon(start)
        second = await world.until_ready()
        await gone(first)
        forebears = [grandparent(each) for each in agents]
        assert second in forebears  # the others did not wait
        assert set(forebears) <= {second, os.getpid()}
        assert [await answers(each) for each in (*before, *agents)] == [True] * 5
        assert grandparent(await world.agent()) == second


@pytest.mark.parametrize("how", ["another", "removed", "unreadable"])
def test_any_change_of_the_file_counts(tmp_path: Path, how: str) -> None:
    write_key(tmp_path)
    file = tmp_path / "keys.env"
    state = _state_of(file)
    assert _state_of(file) == state
    if how == "another":
        write_key(tmp_path, "b2")
    elif how == "removed":
        file.unlink()
    else:
        file.chmod(0)
    assert _state_of(file) != state


async def test_a_disk_that_does_not_say_what_the_file_is_holds_up_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "FORK", 0.01)
    answers = threading.Event()
    monkeypatch.setattr(parent_module, "_state_of", lambda _: answers.wait())
    parent = AgentParent(["false"], None, tmp_path / "keys.env")
    try:
        with anyio.fail_after(5):
            assert await parent._keys_now() is None
    finally:
        answers.set()


LOADS_ON_A_SIGNAL = parent_code("""
import signal
parent.load_agent = lambda *_: ["a model"]
parent.load = lambda *_: signal.sigwait([signal.SIGUSR1])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
""")


async def load(world: Family, other_than: int = 0) -> int:
    """Let the parent have loaded its library; returns its pid."""
    with anyio.fail_after(SLOW):
        loading = (Phase.LIGHT, Phase.LOADING)
        while world.parent.pid == other_than or world.parent._phase not in loading:
            await world.parent._changed.wait()
    assert world.parent.pid is not None
    os.kill(world.parent.pid, signal.SIGUSR1)
    return await world.until_ready()


@pytest.mark.hazard("F4")
async def test_a_start_that_has_it_replaced_is_light_and_a_restart_waits_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PARENT_HANGS", SLOW)
    async with family(tmp_path, LOADS_ON_A_SIGNAL, ready=False) as world:
        await first_start(world.parent)
        first = await load(world)
        write_key(tmp_path)
        with anyio.fail_after(SLOW):
            light = await world.agent()
        assert light.light
        second = await load(world)
        assert grandparent(light) == second != first
        write_key(tmp_path, "b2")
        restarted: list[AgentProcess] = []

        async def restart() -> None:
            process = await AgentProcess.start(world.tasks, AGENT, world.parent, patient=True)
            restarted.append(process)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(restart)
            third = await load(world, second)
        assert not restarted[0].light
        assert grandparent(restarted[0]) == third != second
        assert await answers(light)


async def two_are_executed(world: Family) -> None:
    """Start two agents, which are no forks."""
    with anyio.fail_after(SLOW):
        for _ in range(2):
            process = await world.agent()
            assert grandparent(process) == os.getpid()
            assert await answers(process)


async def test_a_new_parent_that_fails_costs_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PARENT_PAUSE", 0)
    fails = f"os.path.exists({str(tmp_path / 'keys.env')!r}) and os._exit(1)"
    async with family(tmp_path, parent_code(fails)) as world:
        first = await world.until_ready()
        before = await world.agent()
        write_key(tmp_path)
        await two_are_executed(world)
        await gone(first)
        assert await answers(before)


async def test_a_new_parent_that_can_not_even_have_a_socket_costs_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PARENT_PAUSE", 0)

    def full(*_: object) -> ParentProcess:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with family(tmp_path) as world:
        first = await world.until_ready()
        monkeypatch.setattr(parent_module, "ParentProcess", full)
        write_key(tmp_path)
        await two_are_executed(world)
        await gone(first)
