"""What keeps a session awake while somebody looks if it may sleep, and while nobody can write."""

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.from_thread
import pytest

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.descendants import begun_before
from acp_bridge.core.protocol import SESSION_PROMPT
from acp_bridge.core.session.process import sleep
from tests.core.session.journals import failing
from tests.core.session.living import DONE, Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.test_sleep import SOON, falls_asleep, stays_awake, trusted
from tests.core.session.waiting import until

pytestmark = pytest.mark.hazard("R16")

#: the pid of no process, whatever runs on the machine: the system is asked since when it lives.
NOBODY = 1 << 30
#: nanoseconds of one tick of the clock by which the system tells when a process began.
TICK = 10**9 // os.sysconf("SC_CLK_TCK")

Look = Callable[[], frozenset[int]]


class Tree:
    """The processes that an agent has beside its main one, as they are looked at in threads."""

    def __init__(self) -> None:
        self.first: Look = frozenset
        self.last: Look = frozenset


@pytest.fixture(autouse=True)
def tree(monkeypatch: pytest.MonkeyPatch) -> Tree:
    it = Tree()
    monkeypatch.setattr(sleep, "first_descendants", lambda main: it.first())
    monkeypatch.setattr(sleep, "descendants", lambda main: it.last())
    return it


async def ready(here: Living) -> PlayedAgent:
    agent = await here.agent()
    await trusted(here, agent)
    return agent


USED: Json = {"sessionUpdate": "usage_update", "used": 5, "size": 10}


@pytest.mark.parametrize(
    "said",
    [
        {"method": "session/update", "params": {"sessionId": "0", "update": USED}},
        {"method": "_x/notes", "params": {"sessionId": "0"}},
        # A request that is refused at once, and leaves nothing open.
        {"method": "fs/read_text_file", "params": {"sessionId": "0"}, "id": 1},
    ],
    ids=["update", "notification", "request"],
)
async def test_it_stays_if_the_agent_says_something_during_the_look(
    tmp_path: Path, tree: Tree, said: Json
) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await here.agent()

        def look() -> frozenset[int]:
            anyio.from_thread.run_sync(agent.says, said)
            return frozenset()

        tree.last = look
        await ready(here)
        await stays_awake(here)
        tree.last = frozenset
        await falls_asleep(here)


async def test_it_stays_if_a_request_comes_during_the_look(tmp_path: Path, tree: Tree) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        asked: list[int] = []

        def look() -> frozenset[int]:
            if not asked:
                asked.append(anyio.from_thread.run_sync(here.asks, "_x/slow"))
            return frozenset()

        tree.last = look
        agent = await ready(here)
        await until(lambda: asked)
        await stays_awake(here)
        agent.answer(await agent.asked("_x/slow"), {})
        await falls_asleep(here)


@asynccontextmanager
async def prompted_during_the_first_look(tmp_path: Path, tree: Tree) -> AsyncIterator[Living]:
    """A session whose agent is at rest after a prompt, and has one process that the look found."""
    prompted = threading.Event()

    def late() -> frozenset[int]:
        prompted.wait(5)
        return frozenset({NOBODY})

    tree.first = late
    tree.last = lambda: frozenset({NOBODY})
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await here.agent()
        await here.context.reloads.note(agent)
        prompt = here.prompt()
        asked = await agent.asked(SESSION_PROMPT)
        prompted.set()
        agent.answer(asked, DONE)
        assert await here.answered(prompt) == DONE
        yield here


async def test_what_is_started_for_a_prompt_that_comes_during_the_first_look_keeps_it_awake(
    tmp_path: Path, tree: Tree
) -> None:
    async with prompted_during_the_first_look(tmp_path, tree) as here:
        await stays_awake(here)
        tree.last = frozenset
        await falls_asleep(here)


async def test_what_was_there_before_a_prompt_that_comes_during_the_first_look_lets_it_sleep(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleep, "begun_before", lambda moment, pids: pids)
    async with prompted_during_the_first_look(tmp_path, tree) as here:
        await falls_asleep(here)


async def test_it_stays_while_the_agent_is_not_read(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await ready(here)
        here.client.sent.stuck = 1 << 30
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.session.from_agent.room, agent)
            await stays_awake(here)
            here.client.sent.take_all()
        await falls_asleep(here)


async def test_it_stays_while_the_journal_can_not_be_written(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await ready(here)
        with failing(here.journal, "INSERT ON updates"):
            agent.says_text("kept for now")
            await stays_awake(here)
        await here.turn(agent)  # which is written behind what was kept
        await falls_asleep(here)


def test_a_process_has_begun_before_all_that_comes_later() -> None:
    assert begun_before(guard.now() + TICK, [os.getpid(), 1 << 30]) == {os.getpid()}
    assert begun_before(0, [os.getpid()]) == frozenset()
