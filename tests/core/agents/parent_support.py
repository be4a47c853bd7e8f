"""What the tests of the parent share: one that runs, and agents that it has forked."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.agents.parent import AgentParent
from acp_bridge.core.agents.process import AgentProcess
from tests.core.agents.guard_support import marked_env, open_files, parent_of, read_line
from tests.support.processes import all_gone, children, kill_marked
from tests.support.waiting import until

#: seconds for what imports the agent, on a busy machine
SLOW = 30
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


FOLDER = Path(__file__).parent
#: what a parent does in place of loading an agent, which takes a second, and its agents in place of
#: serving
LOADS_NOTHING = f"""
import os, sys, types, agent
sys.path.append({str(FOLDER)!r}); import answering_agent
agent.__main__ = sys.modules["agent.__main__"] = types.ModuleType("agent.__main__")
from agent import fork_parent as parent
parent.load_agent, parent.load = lambda *_: [], lambda *_: None
parent.agent_process.arguments = lambda words: (words, None)
parent.agent_process.end_on_signals = lambda: None
parent.agent_process.run = answering_agent.run
"""


def parent_code(change: str) -> list[str]:
    """The command of a parent that loads nothing, changed by this code before it begins."""
    code = f"{LOADS_NOTHING}{change}\nsys.exit(parent.main())"
    return [sys.executable, "-I", "-c", code, *DEMO]


DEMO = ["--model", "demo"]
PARENT = parent_code("")
AGENT = [sys.executable, "-I", "-S", str(FOLDER / "answering_agent.py")]
#: the built-in agent, and the parent that loads it
BUILT_IN_PARENT = [sys.executable, "-I", "-m", "agent.fork_parent", *DEMO]
BUILT_IN_AGENT = [sys.executable, "-I", "-m", "agent", *DEMO]


@dataclass
class Family:
    """A parent, and the tasks that its agents live in."""

    parent: AgentParent
    tasks: TaskGroup
    mark: str

    async def agent(
        self, lock_fd: int | None = None, open_files: int | None = None
    ) -> AgentProcess:
        """Start an agent that has not been asked anything."""
        return await AgentProcess.start(
            self.tasks, AGENT, self.parent, lock_fd=lock_fd, open_files=open_files
        )

    async def until_ready(self) -> int:
        """Wait until the parent can fork; returns its pid."""
        with anyio.fail_after(SLOW):
            while not self.parent.ready or self.parent.pid is None:
                await self.parent._changed.wait()
        assert self.parent.pid is not None
        return self.parent.pid


@asynccontextmanager
async def new_parent(home: Path, command: list[str] | None = None) -> AsyncIterator[Family]:
    """A parent that the first agent will start. At the end nothing of it lives."""
    mark, env = marked_env()
    try:
        with patch.dict(os.environ, {**env, "ACP_BRIDGE_HOME": str(home)}):
            async with anyio.create_task_group() as tasks:
                parent = AgentParent(command or PARENT)
                tasks.start_soon(parent.run)
                yield Family(parent, tasks, mark)
                tasks.cancel_scope.cancel()
        await all_gone(mark)
    finally:
        kill_marked(mark)


@asynccontextmanager
async def family(home: Path, command: list[str] | None = None) -> AsyncIterator[Family]:
    """A parent that is being started, and from which nothing light is forked."""
    async with new_parent(home, command) as world:
        world.tasks.start_soon(first_start, world.parent)
        await anyio.wait_all_tasks_blocked()
        yield world


async def first_start(parent: AgentParent) -> None:
    """Be the start that has a parent started, and start nothing."""
    async with parent.start_of_agent(patient=False):
        pass


async def answers(process: AgentProcess) -> bool:
    """Ask the agent who it is; returns whether it is the built-in one."""
    os.write(process.stdin_fd, json.dumps(HELLO).encode() + b"\n")
    line = json.loads(await read_line(process, within=SLOW))
    return bool(line["result"]["agentInfo"]["name"] == "acp-bridge-agent")


def shared(pid: int) -> set[str]:
    """What a process has open that another one could have, too."""
    return {name for name in open_files(pid).values() if not name.startswith(("anon", "/dev/"))}


async def forked(
    world: Family, lock_fd: int | None = None, most_files: int | None = None
) -> AgentProcess:
    """An agent that the parent has forked, and that has answered."""
    parent = await world.until_ready()
    process = await world.agent(lock_fd, most_files)
    assert parent_of(parent_of(process.pid)) == parent
    assert await answers(process)
    return process


async def waiting_guard(parent: int, *others: int | None) -> int:
    """The guard that the parent has forked ahead, none of the `others`, once it waits."""
    (pid,) = await until(lambda: set(children(parent)) - set(others))
    await until(lambda: len(shared(pid)) == 1)  # it closes what it has of the parent's
    return pid
