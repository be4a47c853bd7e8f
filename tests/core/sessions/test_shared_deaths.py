"""A process that is to be killed gets nothing of the other sessions that share it."""

from pathlib import Path
from typing import Any

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.machine import events as ev
from tests.core.sessions.agent import Gate, Process, until
from tests.core.sessions.test_shared import two
from tests.core.sessions.world import World, world


async def dying_of(it: World, session_id: str) -> tuple[Process, Any]:
    """Let a turn of a session be deaf to its cancel; returns its process, whose kill waits, and the
    prompt.
    """
    (process,) = it.agent.processes
    it.agent.dying = Gate()
    turn = it.agent.stops_at("session/prompt")
    deaf = it.editor.prompt(session_id, "deaf")
    await until(lambda: turn.reached == 1)
    it.sessions.live[session_id].feed(ev.Cancel())
    await until(lambda: it.agent.dying.reached == 1)
    it.agent.script["session/prompt"] = it.agent._prompt
    return process, deaf


async def test_a_prompt_of_another_session_does_not_go_to_a_process_that_is_being_killed(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        dying, deaf = await dying_of(it, first)
        await it.says(second, "meanwhile")
        assert [params["prompt"][0]["text"] for params in dying.params("session/prompt")] == [
            "begin",
            "begin",
            "deaf",
        ]
        it.agent.dying.open()
        assert await it.editor.stop_reason(deaf) == "cancelled"
        await it.says(first, "again")


async def test_a_new_session_does_not_go_to_a_process_that_is_being_killed(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, _ = await two(it)
        dying, _ = await dying_of(it, first)
        await it.new()
        assert len(dying.params("session/new")) == 2
        it.agent.dying.open()


async def test_a_new_session_does_not_go_to_a_process_that_ends_with_its_last_session(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, close_grace=5) as it:
        first = await it.new()
        (process,) = it.agent.processes
        ends, closed = Gate(), process.close

        async def close(grace: float) -> None:
            await ends.passed()
            await closed(grace)

        process.close = close  # type: ignore[method-assign]
        closing = it.editor.send("session/close", {"sessionId": first})
        await until(lambda: ends.reached == 1)
        await it.new()
        assert len(process.params("session/new")) == 1
        ends.open()
        assert await it.editor.result(closing) == {}


async def test_a_process_whose_kill_is_tried_again_is_not_left_instead(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, _ = await two(it)
        deaf = it.sessions.live[first].link
        assert deaf is not None
        dying, _ = await dying_of(it, first)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deaf.kill)
            await until(lambda: it.agent.dying.reached == 2)
            assert dying.params("session/close") == []
            it.agent.dying.open()


async def test_a_turn_whose_process_dies_as_it_opens_another_session_is_told_how_it_died(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        loaded = await it.stored("begin")
        first, _ = await two(it)
        (process,) = it.agent.living
        resumes, turn = it.agent.stops_at("session/resume"), it.agent.stops_at("session/prompt")
        await it.load(loaded)
        await until(lambda: resumes.reached == 1)
        running = it.editor.prompt(first, "long")
        await until(lambda: turn.reached == 1)
        process.why_ended = errors.agent_trouble("it did not open the session")
        process.dies(Exit(3, None))
        assert "exit code 3" in (await it.editor.refusal(running)).message
        resumes.open()
        turn.open()


async def test_if_all_that_a_process_does_not_open_leave_at_once_the_last_one_kills_it(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        loaded = [await it.stored("begin") for _ in range(2)]
        resumes, closes = it.agent.stops_at("session/resume"), it.agent.stops_at("session/close")
        for each in loaded:
            await it.load(each)
        await until(lambda: resumes.reached == 2)
        (process,) = it.agent.living
        async with anyio.create_task_group() as tasks:
            for each in loaded:
                core = it.sessions.live[each].core
                link = core._link_of(core.now.epoch)
                assert link is not None
                tasks.start_soon(link.kill)
            await until(lambda: closes.reached == 2)
            closes.open()
        assert process not in it.agent.living
        resumes.open()
