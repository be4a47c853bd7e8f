"""Sessions of the built-in agent behind one bridge, which are forked."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.built_in.support import FORK_PARENT, START, Stack, agent_pids, stack_in
from tests.core.agents.guard_support import parent_of
from tests.support.client import RecordingClient
from tests.support.processes import all_gone, children, command_line, gone

pytestmark = [pytest.mark.process, pytest.mark.slow]

DIALOGUE = "when: deaf\ndeaf\ntext: I listen\ndelay: 100000\nturn\nremember"


@pytest.fixture(scope="module")
async def family(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Stack, RecordingClient]]:
    """One such bridge, for what it survives."""
    async with stack_in(tmp_path_factory.mktemp("family")) as stack, bridge(stack) as client:
        yield stack, client


@asynccontextmanager
async def bridge(stack: Stack, dialogue: str = DIALOGUE) -> AsyncIterator[RecordingClient]:
    """With two sessions, and a parent that is ready."""
    file = stack.folder / "dialogue"
    await anyio.Path(file).write_text(dialogue)
    env = {"ACP_BRIDGE_LOG_LEVEL": "info"}
    async with stack.start(model=f"scripted:{file}", env=env) as client:
        for _ in range(2):
            await client.new_session(stack.cwd)
        await client.logged("parent.ready", within=START)
        yield client


def parent_pid(client: RecordingClient) -> int:
    assert client.process is not None
    [pid] = [pid for pid in children(client.process.pid) if FORK_PARENT in command_line(pid)]
    return pid


async def forked(stack: Stack, client: RecordingClient) -> tuple[str, int]:
    """The id of a new session, and its agent."""
    before = agent_pids(client)
    session = await client.new_session(stack.cwd)
    [pid] = set(agent_pids(client)) - set(before)
    assert FORK_PARENT in command_line(pid)
    return session, pid


@pytest.mark.hazard("C8.1", "C9", "F3")
async def test_a_forked_agent_that_ignores_the_cancel_is_killed_and_forked_anew(
    family: tuple[Stack, RecordingClient],
) -> None:
    stack, client = family
    session, pid = await forked(stack, client)
    _, other = await forked(stack, client)
    before = set(agent_pids(client))
    assert await client.prompt("seven", session, START)
    prompt = client.send_prompt("be deaf", session)
    await client.until_text("I listen", within=START)
    client.cancel(session)
    assert (await client.answer_to(prompt, START))["result"] == {"stopReason": "cancelled"}
    mark = client.mark()
    await client.prompt("and?", session, START)
    assert "seven" in client.text(session, mark)
    pids = set(agent_pids(client))
    assert pid not in pids
    assert other in pids
    [new] = pids - before
    assert FORK_PARENT in command_line(new)


@pytest.mark.hazard("F2.1", "P3")
async def test_sessions_outlive_the_parent_and_the_next_one_starts_all_the_same(
    family: tuple[Stack, RecordingClient],
) -> None:
    stack, client = family
    session, pid = await forked(stack, client)
    _, other = await forked(stack, client)
    first = parent_pid(client)
    exited, ready = (client.stderr.count(each) for each in (b"agent.exited", b"parent.ready"))
    os.kill(first, signal.SIGKILL)
    await gone(first)
    os.kill(parent_of(other), signal.SIGKILL)  # the bridge kills what the guard leaves behind
    await client.logged("agent.exited", exited + 1, within=START)
    await client.prompt("seven", session, START)
    assert pid in agent_pids(client)
    await client.new_session(stack.cwd)
    await client.prompt("eight", within=START)
    await client.logged("parent.ready", ready + 1, within=START)
    await forked(stack, client)
    os.kill(pid, signal.SIGKILL)
    await client.logged("agent.exited", exited + 2, within=START)
    mark = client.mark()
    await client.prompt("and?", session, START)
    assert "seven" in client.text(session, mark)


@pytest.mark.hazard("P1.3")
async def test_nothing_forked_outlives_a_bridge_that_was_killed(stack: Stack) -> None:
    async with bridge(stack) as client:
        session, _ = await forked(stack, client)
        client.send_prompt("be deaf", session)
        await client.until_text("I listen", within=START)
        client.kill()
        await all_gone(stack.mark)


@pytest.mark.hazard("P1.3")
async def test_nothing_forked_outlives_a_killed_bridge_though_all_is_stopped(
    stack: Stack,
) -> None:
    async with bridge(stack) as client:
        await forked(stack, client)
        parent = parent_pid(client)
        for pid in (*children(parent), parent):
            os.kill(pid, signal.SIGSTOP)
        client.kill()
        await all_gone(stack.mark)
