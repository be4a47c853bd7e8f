"""Guards and agents that were stopped or killed by somebody, when their tree is to end."""

import os
import signal

import anyio
import pytest

from acp_bridge.core.agents import guard
from tests.core.agents.guard_support import HANGING_GUARD, exists, parent_of
from tests.support.client import RecordingClient
from tests.support.processes import all_gone, descendants, marked
from tests.whole.bridge_support import World, stopped

pytestmark = pytest.mark.process


def guard_of(world: World, number: int = -1) -> int:
    """The guard of one of the agents, by the order of their start."""
    return parent_of(world.log.pids()[number])


def children(pid: int) -> list[int]:
    """The children of a process, zombies included."""
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and exists(int(name)) and parent_of(int(name)) == pid
    ]


def end(client: RecordingClient, how: str) -> None:
    if how == "EOF":
        client.close_stdin()
    else:
        client.terminate(signal.Signals[how])


@pytest.mark.hazard("P1", "P2.5")
@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
async def test_a_stopped_guard_holds_up_no_end_and_its_tree_dies(world: World, how: str) -> None:
    async with world.bridge("leaves-child", "leaves-grandchild") as client:
        client.send_prompt("child; grandchild; gate g")
        await world.gates.reached("g")
        os.kill(guard_of(world), signal.SIGSTOP)
        end(client, how)
        assert await client.wait(within=3) == 0
        await all_gone(world.mark, within=1)


@pytest.mark.hazard("P1.4", "P12.2")
async def test_a_stopped_guard_kills_its_tree_when_the_bridge_was_killed(world: World) -> None:
    async with world.bridge("leaves-child", "leaves-grandchild", exits=-9) as client:
        client.send_prompt("child; grandchild; gate g")
        await world.gates.reached("g")
        os.kill(guard_of(world), signal.SIGSTOP)
        client.kill()
        await client.wait()
        await all_gone(world.mark)


@pytest.mark.hazard("P1", "P2.5")
async def test_many_stopped_guards_hold_up_no_end(world: World) -> None:
    async with world.bridge("never-ends") as client:
        for _ in range(5):
            await client.new_session(world.cwd)
        for pid in world.log.pids():
            os.kill(parent_of(pid), signal.SIGSTOP)
        client.terminate(signal.SIGTERM)
        assert await client.wait(within=3) == 0
        await all_gone(world.mark, within=1)


@pytest.mark.hazard("P1", "P2.5")
async def test_a_guard_that_cannot_be_continued_holds_up_no_end_and_its_tree_dies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "COMMAND_LINE", HANGING_GUARD)
    async with world.inside("leaves-child", "leaves-grandchild", "never-ends") as client:
        client.send_prompt("child; grandchild; gate g")
        await world.gates.reached("g")
        client.close_stdin()
        with anyio.fail_after(3):
            await client.closed.wait()
        await all_gone(world.mark, within=1)


@pytest.mark.hazard("P1.4", "P12.2")
@pytest.mark.parametrize("when", ["in a turn", "at the end"])
async def test_a_guard_that_was_killed_leaves_nothing_of_its_tree_and_hurts_no_other(
    world: World, when: str
) -> None:
    async with world.bridge("leaves-child", "leaves-grandchild") as client:
        assert client.process is not None
        one, two = client.session_id, await client.new_session(world.cwd)
        await client.prompt("child; grandchild", one)
        old, its_guard = set(marked(world.mark)), guard_of(world, 0)
        others = client.send_prompt("child; grandchild; gate h", two)
        await world.gates.reached("h")
        if when == "in a turn":
            client.send_prompt("child; gate g", one)
            await world.gates.reached("g")
            old = set(marked(world.mark)) - set(descendants(guard_of(world, 1)))
        os.kill(its_guard, signal.SIGKILL)
        if when == "at the end":
            client.close_stdin()
            assert await client.wait(within=3) == 0
            await all_gone(world.mark, within=1)
            return
        await client.logged("agent.exited")
        assert await stopped(client, client.send_prompt("say on", one)) == "end_turn"
        left = set(descendants(guard_of(world, 1))) | {client.process.pid, guard_of(world, 1)}
        assert old & set(marked(world.mark)) <= left
        assert len(children(client.process.pid)) == 2  # both guards, and no zombie
        world.gates.open("h")
        assert await stopped(client, others) == "end_turn"


@pytest.mark.hazard("P1", "P2.5")
async def test_a_stopped_agent_holds_up_no_end(world: World) -> None:
    async with world.bridge("leaves-child") as client:
        client.send_prompt("child; gate g")
        await world.gates.reached("g")
        for pid in marked(world.mark):
            if client.process and pid not in (client.process.pid, guard_of(world)):
                os.kill(pid, signal.SIGSTOP)
        client.terminate(signal.SIGTERM)
        assert await client.wait(within=3) == 0
        await all_gone(world.mark, within=1)


@pytest.mark.hazard("C8", "C21")
@pytest.mark.parametrize("what", ["SIGSTOP", "SIGKILL"])
@pytest.mark.parametrize("when", ["before the cancel", "after the cancel"])
async def test_a_guard_that_is_stopped_or_killed_holds_up_no_drain(
    world: World, what: str, when: str
) -> None:
    async with world.inside("ignores-cancel", drain_timeout=0.3) as client:
        running = client.send_prompt("child; gate g")
        await world.gates.reached("g")
        old, its_guard = set(marked(world.mark)), guard_of(world)
        if when == "before the cancel":
            os.kill(its_guard, signal.Signals[what])
        client.cancel()
        if when == "after the cancel":
            await client.logged("what=spare")
            os.kill(its_guard, signal.Signals[what])
        await stopped(client, running)
        assert await stopped(client, client.send_prompt("say on")) == "end_turn"
        assert not old & set(marked(world.mark))


@pytest.mark.hazard("C8", "C21")
async def test_a_guard_that_cannot_be_continued_holds_up_no_drain(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "COMMAND_LINE", HANGING_GUARD)
    async with world.inside("ignores-cancel", "leaves-grandchild", drain_timeout=0.3) as client:
        running = client.send_prompt("grandchild; gate g")
        await world.gates.reached("g")
        old = set(marked(world.mark))
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        assert await stopped(client, client.send_prompt("say on")) == "end_turn"
        assert not old & set(marked(world.mark))
