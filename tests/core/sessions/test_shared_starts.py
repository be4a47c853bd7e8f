"""Sessions that are loaded at once wait for one start, unless a prompt is kept waiting by that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.core.session.waiting import quiet
from tests.core.sessions.agent import Gate, until
from tests.core.sessions.test_shared import codex, process_of
from tests.core.sessions.world import SETUP, World, world


async def loading(it: World, count: int) -> tuple[list[str], Gate]:
    """Load sessions, none of which has a process; returns them, and the gate at which processes
    start. The first has begun a start, and no other has.
    """
    sessions = [await it.stored("begin") for _ in range(count)]
    await until(lambda: it.agent.living == [])
    starts = it.agent.stops_at("initialize")
    await it.editor.result(load(it, sessions[0]))  # its start is the one
    await until(lambda: starts.reached == 1)
    for request in [load(it, session_id) for session_id in sessions[1:]]:
        await it.editor.result(request)
    await until(lambda: needing(it) == count)
    return sessions, starts


def needing(it: World) -> int:
    """Return how many sessions have begun a start, or wait for one."""
    return sum(len(start.needs) for start in it.context.processes._starts)


async def prompted(it: World, session_id: str) -> Any:
    """Send a prompt that waits for a start; returns its id."""
    prompt = it.editor.prompt(session_id, "now")
    await until(lambda: it.sessions.live[session_id].now.waiting)
    await quiet()
    return prompt


def load(it: World, session_id: str) -> Any:
    """Send the request that loads a session; returns its id."""
    return it.editor.send("session/load", {**SETUP, "sessionId": session_id})


@asynccontextmanager
async def loads(tmp_path: Path, count: int) -> AsyncIterator[tuple[World, list[str], Gate]]:
    """A world in which sessions are being loaded, as `loading` has it."""
    async with world(tmp_path) as it:
        sessions, starts = await loading(it, count)
        assert starts.reached == len(it.agent.living) == 1
        yield it, sessions, starts
        starts.open()
        await until(lambda: not any(each.busy for each in it.sessions.live.values()))


@pytest.mark.hazard("P18.10")
async def test_sessions_that_are_loaded_at_once_wait_for_one_start(tmp_path: Path) -> None:
    async with loads(tmp_path, 4) as (it, sessions, starts):
        starts.open()
        for session_id in sessions:
            await it.says(session_id, "again")
        (process,) = it.agent.living
        assert len(process.params("session/resume")) == 4


@pytest.mark.hazard("P18.10")
async def test_a_new_session_waits_for_the_start_of_one_that_is_loaded(tmp_path: Path) -> None:
    async with loads(tmp_path, 1) as (it, _, starts):
        new = it.editor.send("session/new", SETUP)
        await until(lambda: needing(it) == 2)
        starts.open()
        await it.editor.result(new)
        assert len(it.agent.living) == 1


@pytest.mark.hazard("P18.11")
async def test_a_prompt_waits_for_the_start_of_another_session_that_has_none(
    tmp_path: Path,
) -> None:
    async with loads(tmp_path, 3) as (it, sessions, starts):
        prompt = await prompted(it, sessions[1])
        starts.open()
        assert await it.editor.stop_reason(prompt) == "end_turn"
        assert len(it.agent.living) == 1


@pytest.mark.hazard("P18.11")
@pytest.mark.parametrize("first", [0, 1])
async def test_of_two_prompts_that_wait_for_one_start_the_later_one_gets_a_start_of_its_own(
    tmp_path: Path, first: int
) -> None:
    async with loads(tmp_path, 3) as (it, sessions, starts):
        prompts = [it.editor.prompt(sessions[each], "now") for each in (first, 1 - first)]
        await until(lambda: starts.reached == 2)
        starts.open()
        for prompt in prompts:
            assert await it.editor.stop_reason(prompt) == "end_turn"
        starter, later, rests = (process_of(it, session_id) for session_id in sessions)
        assert [starter, later] == it.agent.living
        assert rests is starter


@pytest.mark.hazard("P18.11")
async def test_a_prompt_whose_process_starts_is_followed_by_a_load_that_waits(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        other = await it.stored("begin")
        (session_id,), starts = await loading(it, 1)
        prompt = await prompted(it, session_id)
        await it.editor.result(load(it, other))
        await until(lambda: needing(it) == 2)
        assert starts.reached == 1
        also = it.editor.prompt(other, "now, too")
        await until(lambda: starts.reached == 2)
        starts.open()
        for each in (prompt, also):
            assert await it.editor.stop_reason(each) == "end_turn"


@pytest.mark.hazard("P18.10")
async def test_when_the_start_fails_each_session_that_waited_starts_its_own_process(
    tmp_path: Path,
) -> None:
    async with loads(tmp_path, 3) as (it, sessions, starts):
        it.agent.living[0].dies()
        await until(lambda: starts.reached == 3)
        starts.open()
        for session_id in sessions:
            await it.says(session_id, "again")


async def test_when_the_session_of_the_start_is_closed_those_that_waited_go_on(
    tmp_path: Path,
) -> None:
    async with loads(tmp_path, 3) as (it, sessions, starts):
        assert await it.editor.ask("session/close", {"sessionId": sessions[0]}) == {}
        await until(lambda: starts.reached == 3)
        assert len(it.agent.living) == 2
        starts.open()
        for session_id in sessions[1:]:
            await it.says(session_id, "again")


async def test_a_session_that_is_closed_while_it_waits_for_a_start_has_nothing_of_it(
    tmp_path: Path,
) -> None:
    async with loads(tmp_path, 3) as (it, sessions, starts):
        assert await it.editor.ask("session/close", {"sessionId": sessions[1]}) == {}
        assert await it.is_free(sessions[1])
        prompt = await prompted(it, sessions[2])
        starts.open()
        assert await it.editor.stop_reason(prompt) == "end_turn"
        (process,) = it.agent.living
        assert len(process.params("session/resume")) == 2


@pytest.mark.hazard("P18.9")
async def test_sessions_that_had_prompts_of_an_agent_that_does_not_let_go_wait_for_no_start(
    tmp_path: Path,
) -> None:
    async with codex(tmp_path) as it:
        sessions, starts = await loading(it, 2)
        await until(lambda: starts.reached == 2)
        starts.open()
        for session_id in sessions:
            await it.says(session_id, "again")
        assert len(it.agent.living) == 2
