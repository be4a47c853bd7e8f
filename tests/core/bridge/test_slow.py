"""Clients that don't read: each hurts itself alone, and the one on stdin makes the agent wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.core.sessions.agent import Process, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP

LIMIT = 1000


@dataclass(slots=True)
class Stuck:
    """A session that the client on stdin and another one have; neither is stuck yet."""

    it: Bench
    id: str
    process: Process
    first: Served
    other: Served

    def says(self, text: str) -> None:
        self.process.update("agent-1", text)

    async def read_on(self) -> None:
        """Let the agent say something; returns when it is read on after that."""
        self.says("more")
        await self.process.link.room()


@asynccontextmanager
async def stuck(home: Path, **more: Any) -> AsyncIterator[Stuck]:
    async with bench(home, **{"client_limit": LIMIT, "unread": 0, **more}) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        (process,) = it.agent.processes
        yield Stuck(it, session_id, process, it.editor, other)
        it.editor.way.take_all()


@pytest.mark.hazard("V4.1", "V4.2", "P15.1")
async def test_a_client_on_a_socket_that_does_not_read_is_let_go_and_makes_nobody_wait(
    tmp_path: Path,
) -> None:
    async with stuck(tmp_path) as here:
        here.other.way.stuck = LIMIT
        await here.read_on()
        await here.other.parted.wait()
        last = here.other.messages[-1]
        assert last["method"] == "_acp_bridge/let_go"
        assert "attach again" in last["params"]["reason"]
        prompt = here.it.editor.prompt(here.id, "hello")
        assert await here.it.editor.stop_reason(prompt) == "end_turn"


@pytest.mark.hazard("V4.2", "P15")
async def test_one_that_is_far_too_slow_is_let_go_at_once(tmp_path: Path) -> None:
    async with stuck(tmp_path, unread=3600) as here:
        here.other.way.stuck = 4 * LIMIT  # one huge update may have done that
        await here.read_on()
        assert not here.other.asked("_acp_bridge/let_go")
        await here.read_on()
        await here.other.parted.wait()


@pytest.mark.hazard("V4")
async def test_one_on_a_socket_that_takes_some_of_it_has_time_to_catch_up(tmp_path: Path) -> None:
    async with stuck(tmp_path) as here:
        here.other.way.stuck = 2 * LIMIT
        await here.read_on()
        here.other.way.stuck -= 1
        while here.other.way.stuck > LIMIT // 2:
            here.other.way.stuck -= LIMIT // 4  # more each time than it is looked at
            await anyio.lowlevel.checkpoint()
        here.other.way.take_all()
        await here.other.handled()
        assert not here.other.asked("_acp_bridge/let_go")


@pytest.mark.hazard("V4.2", "P15")
async def test_one_on_a_socket_that_takes_too_little_of_it_is_let_go(tmp_path: Path) -> None:
    async with stuck(tmp_path) as here:
        here.other.way.stuck = 3 * LIMIT
        await here.read_on()
        while not here.other.parted.is_set():
            assert here.other.way.stuck > LIMIT  # it takes a byte whenever it is looked at
            here.other.way.stuck -= 1
            await anyio.lowlevel.checkpoint()


async def test_one_that_has_caught_up_in_time_stays(tmp_path: Path) -> None:
    async with stuck(tmp_path, unread=3600) as here:
        here.other.way.stuck = LIMIT
        await here.read_on()
        here.other.way.take_all()
        here.says("seen")
        assert here.other.texts(here.id)[-1] == "seen"
        await here.other.handled()
        assert not here.other.asked("_acp_bridge/let_go")


@pytest.mark.hazard("V4.5", "V1")
async def test_a_client_on_stdin_that_takes_nothing_is_left_behind_by_the_others_and_told(
    tmp_path: Path,
) -> None:
    async with stuck(tmp_path) as here:
        here.first.way.stuck = LIMIT
        here.says("lost")
        await here.process.link.room()  # it is waited for, and no longer
        here.first.way.take_all()
        here.says("missed")
        assert here.other.texts(here.id)[-1] == "missed"
        assert "went on without waiting" in here.first.texts(here.id)[-1]
        assert not here.first.parted.is_set()
        # Its next prompt brings it back, and so does a load, with all of it.
        prompt = here.first.prompt(here.id, "hello")
        assert await here.first.stop_reason(prompt) == "end_turn"
        assert here.first.texts(here.id)[-1] == "echo hello"
        here.first.out.take()
        await here.first.ask("session/load", {**SETUP, "sessionId": here.id})
        assert here.first.texts(here.id) == ["lost", "missed", "hello", "echo hello"]


@pytest.mark.hazard("V4.4")
async def test_a_client_on_stdin_that_takes_a_little_or_is_alone_makes_the_agent_wait(
    tmp_path: Path,
) -> None:
    async with stuck(tmp_path) as here:
        here.first.way.stuck = 3 * LIMIT
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.process.link.room)
            for left in range(3 * LIMIT, 2 * LIMIT, -1):  # many times as long as one may be idle
                here.first.way.stuck = left
                await anyio.lowlevel.checkpoint()
            here.other.leaves()
            await here.other.parted.wait()
            for _ in range(LIMIT):
                await anyio.lowlevel.checkpoint()
            assert here.first.texts(here.id) == []
            # Another one comes, and the session does not wait any more.
            await here.it.attached(here.id)
        assert "without waiting" in here.first.texts(here.id)[-1]


@pytest.mark.hazard("V4", "R1")
async def test_one_that_stops_in_its_load_while_others_go_on_gets_an_error_for_it(
    tmp_path: Path,
) -> None:
    async with stuck(tmp_path) as here:
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        here.says("x" * LIMIT)
        await here.process.link.room()
        here.first.way.stuck = LIMIT
        load = here.first.send("session/load", {**SETUP, "sessionId": here.id})
        await until(lambda: here.first.texts(here.id))
        here.says("y" * LIMIT)
        await here.process.link.room()
        assert "load it again" in (await here.first.refusal(load)).message
        assert here.other.texts(here.id) == ["x" * LIMIT, "y" * LIMIT]


@pytest.mark.hazard("P15.1", "V4.1")
async def test_in_a_drain_too_what_waits_is_bounded_and_nobody_else_misses_anything(
    tmp_path: Path,
) -> None:
    async with stuck(tmp_path, unread=3600, drain_timeout=60) as here:
        gate = here.it.agent.stops_at("session/prompt")
        prompt = here.other.prompt(here.id, "hello")
        await until(lambda: gate.reached)
        here.other.notify("session/cancel", {"sessionId": here.id})
        await until(lambda: here.it.agent.params("session/cancel"))
        here.first.way.stuck = LIMIT
        here.says("said")
        await here.process.link.room()
        assert (here.other.texts(here.id)[-1], here.first.texts(here.id)[-1]) == ("said", "said")
        here.first.way.stuck = 4 * LIMIT
        here.says("again")
        await here.process.link.room()
        here.says("more")
        assert here.other.texts(here.id)[-1] == "more"
        assert "without waiting" in here.first.texts(here.id)[-1]
        gate.open()
        assert await here.other.stop_reason(prompt) == "cancelled"


@pytest.mark.hazard("V4", "P2")
async def test_the_end_of_the_bridge_waits_for_no_client_that_was_let_go(tmp_path: Path) -> None:
    async with stuck(tmp_path) as here:
        flushes, closed = list[float](), anyio.Event()

        async def flush(seconds: float) -> bool:
            flushes.append(seconds)
            if len(flushes) == 1:
                await closed.wait()
            return False

        here.other.way.flush = flush  # type: ignore[method-assign]
        here.other.way.close = closed.set  # type: ignore[method-assign]
        here.other.way.stuck = LIMIT
        here.says("x")
        await here.process.link.room()
        await until(lambda: flushes)
        here.first.leaves()
        await here.it.ended.wait()
