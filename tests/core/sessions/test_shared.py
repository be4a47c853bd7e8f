"""Sessions share a process while they are at rest; no process runs the turns of two sessions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.journal import JournalError
from acp_bridge.core.machine import events as ev
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.core.sessions.world import SETUP, World, world


async def two(it: World) -> tuple[str, str]:
    """Make two sessions with a turn behind each; they share a process."""
    first, second = await it.new(), await it.new()
    for session_id in (first, second):
        await it.says(session_id, "begin")
    it.editor.out.take()
    return first, second


async def at_work(it: World, session_id: str) -> tuple[Gate, int]:
    """Let a session's turn run until the gate is opened; returns the gate and the prompt."""
    turn = it.agent.stops_at("session/prompt")
    running = it.editor.prompt(session_id, "long")
    await until(lambda: turn.reached == 1)
    return turn, running


def at_agent(it: World, session_id: str) -> str:
    """Return the agent's id of a session."""
    found = it.sessions.live[session_id].journal.info.agent_session_id
    assert found
    return found


def process_of(it: World, session_id: str) -> Process:
    """Return the process that has a session."""
    link = it.sessions.live[session_id].link
    assert link
    (process,) = (each for each in it.agent.processes if each is link.connection)
    return process


@pytest.mark.hazard("P18.1")
async def test_a_further_session_is_opened_in_the_process_of_the_first(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        _, second = await two(it)
        (process,) = it.agent.processes
        assert process.methods().count("session/new") == 2
        await it.says(second, "again")
        assert it.editor.texts(second) == ["echo again"]


async def test_sessions_that_are_made_at_once_wait_for_one_start(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        requests = [it.editor.send("session/new", SETUP) for _ in range(3)]
        for request in requests:
            await it.editor.result(request)
        assert len(it.agent.processes) == 1


@pytest.mark.hazard("P18.1")
@pytest.mark.parametrize("able", [{"resume": {}}, {"close": {}}])
async def test_an_agent_that_can_not_move_a_session_has_a_process_for_each(
    tmp_path: Path, able: Json
) -> None:
    async with world(tmp_path, Agent(loads=False, able=able)) as it:
        await it.new()
        await it.new()
        assert len(it.agent.processes) == 2


@pytest.mark.hazard("P18.1")
@pytest.mark.parametrize(("name", "processes"), [("OpenCode", 1), ("another", 2), (None, 2)])
async def test_an_agent_shares_by_itself_only_if_it_was_seen_to_share_well(
    tmp_path: Path, name: str | None, processes: int
) -> None:
    async with world(tmp_path, process_per_session=None) as it:
        it.context.agent_info = name
        await it.new()
        await it.new()
        assert len(it.agent.processes) == processes


@pytest.mark.hazard("P18.8")
async def test_on_request_each_session_has_a_process(tmp_path: Path) -> None:
    async with world(tmp_path, process_per_session=True) as it:
        await two(it)
        assert len(it.agent.processes) == 2


@pytest.mark.hazard("P18.2", "P18.3", "P12.4")
async def test_a_prompt_whose_process_runs_another_turn_moves_its_session(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        (old,) = it.agent.processes
        turn, running = await at_work(it, first)
        moving = it.editor.prompt(second, "meanwhile")
        await until(lambda: turn.reached == 2)
        old, new = it.agent.processes
        assert old.params("session/close") == [{"sessionId": at_agent(it, second)}]
        assert new.methods() == ["initialize", "session/resume", "session/prompt"]
        assert new.params("session/resume")[0]["sessionId"] == at_agent(it, second)
        turn.open()
        assert await it.editor.stop_reason(running) == "end_turn"
        assert await it.editor.stop_reason(moving) == "end_turn"
        assert it.editor.texts(first) == ["echo long"]
        assert it.editor.texts(second) == ["echo meanwhile"]
        await it.says(second, "again")
        await it.says(first, "again")
        assert len(it.agent.processes) == 2, "who has moved stays there"


async def test_a_prompt_goes_to_its_process_when_the_other_turn_is_over(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        await it.says(first, "one")
        await it.says(second, "two")
        await it.says(first, "three")
        assert len(it.agent.processes) == 1


async def test_a_prompt_that_was_not_sent_occupies_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)

        def full(*_: object, **__: object) -> None:
            raise JournalError("the disk is full")

        with monkeypatch.context() as disk:
            disk.setattr(it.sessions.live[first].journal, "start_turn", full)
            refused = await it.editor.refusal(it.editor.prompt(first, "lost"))
            assert "not sent" in refused.message
        await it.says(second, "again")
        assert len(it.agent.processes) == 1


async def test_a_session_that_moves_goes_to_a_process_at_rest_if_there_is_one(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        turn = it.agent.stops_at("session/prompt")
        for session_id in (first, second):
            it.editor.prompt(session_id, "together")
        await until(lambda: turn.reached == 2)
        turn.open()
        await until(lambda: not any(each.busy for each in it.sessions.live.values()))
        third = await it.new()
        again = it.agent.stops_at("session/prompt")
        it.editor.prompt(first, "long")
        await until(lambda: again.reached == 1)
        it.editor.prompt(third, "meanwhile")
        await until(lambda: again.reached == 2)
        assert len(it.agent.processes) == 2
        again.open()
        await until(lambda: not any(each.busy for each in it.sessions.live.values()))


@pytest.mark.hazard("P18.3")
async def test_ten_sessions_of_which_two_run_have_two_processes(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        sessions = [await it.new() for _ in range(10)]
        turn = it.agent.stops_at("session/prompt")
        running = [it.editor.prompt(session_id, "go") for session_id in sessions[3:5]]
        await until(lambda: turn.reached == 2)
        assert len(it.agent.living) == 2
        turn.open()
        for request in running:
            assert await it.editor.stop_reason(request) == "end_turn"


@pytest.mark.hazard("P18.4", "P18.5")
async def test_a_death_is_told_to_the_one_turn_and_to_nobody_at_rest(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        third = await it.new()
        (process,) = it.agent.processes
        turn = it.agent.stops_at("session/prompt")
        running = it.editor.prompt(first, "die")
        await until(lambda: turn.reached == 1)
        process.dies(Exit(3, None))
        await it.editor.refusal(running)
        turn.open()
        it.agent.script["session/prompt"] = it.agent._prompt
        await until(lambda: it.sessions.live[second].now.asleep)
        assert it.sessions.live[third].now.asleep
        assert [message for message in it.editor.messages if _about(message, second, third)] == []
        await it.says(second, "again")
        assert it.editor.texts(second) == ["echo again"]


def _about(message: Json, *sessions: str) -> bool:
    return message.get("params", {}).get("sessionId") in sessions


@pytest.mark.hazard("P18.4", "P18.5")
async def test_a_kill_for_a_deaf_turn_leaves_the_others_asleep_and_moves_nobody(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        it.agent.stops_at("session/prompt")  # it heeds no cancel
        running = it.editor.prompt(first, "long")
        await until(lambda: it.agent.params("session/prompt")[-1]["prompt"][0]["text"] == "long")
        it.sessions.live[first].feed(ev.Cancel())
        assert await it.editor.stop_reason(running) == "cancelled"
        it.agent.script["session/prompt"] = it.agent._prompt
        await until(lambda: it.sessions.live[second].now.asleep)
        await it.says(second, "again")
        await it.says(first, "again")


@pytest.mark.hazard("P18.6")
async def test_a_session_that_is_closed_leaves_the_process_to_the_others(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        turn, running = await at_work(it, first)
        closed = at_agent(it, second)
        assert await it.editor.ask("session/close", {"sessionId": second}) == {}
        (process,) = it.agent.living
        assert process.params("session/close") == [{"sessionId": closed}]
        assert await it.is_free(second)
        assert not await it.is_free(first)
        turn.open()
        assert await it.editor.stop_reason(running) == "end_turn"


@pytest.mark.hazard("P18.7")
async def test_the_last_session_that_is_closed_ends_the_process(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        for session_id in (first, second):
            await it.editor.ask("session/close", {"sessionId": session_id})
        assert it.agent.living == []


@pytest.mark.hazard("P12.3", "P12.4")
async def test_the_guard_holds_the_lock_of_each_session_that_its_process_has(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        (process,) = it.agent.processes
        assert len(process._locks) == 2
        turn = it.agent.stops_at("session/prompt")
        it.editor.prompt(first, "long")
        await until(lambda: turn.reached == 1)
        it.editor.prompt(second, "meanwhile")
        await until(lambda: turn.reached == 2)
        assert [len(each._locks) for each in it.agent.processes] == [1, 1]
        turn.open()
        await until(lambda: not any(each.busy for each in it.sessions.live.values()))


async def test_what_the_agent_says_of_a_session_goes_to_that_session(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        process = process_of(it, first)
        process.update(at_agent(it, second), "for the second")
        process.update(at_agent(it, first), "for the first")
        process.update("unknown", "for nobody")
        await until(lambda: it.editor.texts(first) == ["for the first"])
        assert it.editor.texts(second) == ["for the second"]


async def test_a_fork_is_made_in_the_process_that_has_the_session(tmp_path: Path) -> None:
    able: Json = {"resume": {}, "close": {}, "fork": {}}
    async with world(tmp_path, Agent(able=able)) as it:
        first, _ = await two(it)
        it.agent.script["session/fork"] = {"sessionId": "forked"}
        answer = await it.editor.ask("session/fork", {**SETUP, "sessionId": first})
        (process,) = it.agent.processes
        assert process.params("session/fork")[0]["sessionId"] == at_agent(it, first)
        await it.says(answer["sessionId"], "in the fork")
        assert it.agent.params("session/prompt")[-1]["sessionId"] == "forked"
        assert process.params("session/resume") == []


async def test_two_sessions_with_one_id_at_the_agent_get_a_process_each(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, third = await it.new(), await it.new()
        await it.says(first, "begin")
        it.agent.script["session/new"] = {"sessionId": at_agent(it, first)}
        second = await it.new()
        confused, alone = it.agent.processes
        assert process_of(it, second) is alone
        await it.says(first, "again")  # the first process may take it for the second one
        assert process_of(it, first) not in (confused, alone)
        await it.says(third, "again")
        await it.says(second, "again")
        assert len(confused.params("session/prompt")) == 1


async def test_sessions_that_have_one_id_in_two_processes_come_never_into_one(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        first = await it.new()
        turn = it.agent.stops_at("session/prompt")
        long = it.editor.prompt(first, "long")
        await until(lambda: turn.reached == 1)
        it.agent.script["session/new"] = {"sessionId": at_agent(it, first)}
        second = await it.new()
        turn.open()
        assert await it.editor.stop_reason(long) == "end_turn"
        await it.says(second, "begin")
        it.agent.script["session/new"] = {"sessionId": "other"}
        third = await it.new()
        turn = it.agent.stops_at("session/prompt")
        prompts = [it.editor.prompt(third, "long"), it.editor.prompt(first, "meanwhile")]
        await until(lambda: turn.reached == 2)
        assert at_agent(it, first) == at_agent(it, second)
        assert process_of(it, first) is not process_of(it, second)
        turn.open()
        for prompt in prompts:
            assert await it.editor.stop_reason(prompt) == "end_turn"


@pytest.mark.hazard("P18.1")
async def test_a_session_that_its_old_process_holds_on_to_goes_back_there(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        (old,) = it.agent.processes

        async def held(process: Process, params: Json) -> Json:
            if process is not old:
                raise RpcError(-32603, "it is open elsewhere")
            return {}

        it.agent.script |= {"session/resume": held, "session/load": held}
        turn, running = await at_work(it, first)
        refused = it.editor.prompt(second, "meanwhile")
        assert "it is open elsewhere" in str((await it.editor.refusal(refused)).data)
        turn.open()
        assert await it.editor.stop_reason(running) == "end_turn"
        await it.says(second, "again")
        assert process_of(it, second) is old
        third = await it.new()
        await it.says(third, "its first prompt")
        assert process_of(it, third) is not process_of(it, second)


@asynccontextmanager
async def codex(tmp_path: Path) -> AsyncIterator[World]:
    """Sessions of an agent that does not let go of them, by its name."""
    async with world(tmp_path, process_per_session=None) as it:
        it.context.agent_info = "@agentclientprotocol/codex-acp"
        yield it


@pytest.mark.hazard("P18.9")
async def test_sessions_of_an_agent_that_does_not_let_go_share_until_their_first_prompt(
    tmp_path: Path,
) -> None:
    async with codex(tmp_path) as it:

        async def refused(process: Process, params: Json) -> Json:
            raise RpcError(-32603, "there is nothing to load")

        it.agent.script |= {"session/resume": refused, "session/load": refused}
        it.agent.script["session/set_mode"] = {}
        sessions = [await it.new() for _ in range(10)]
        (first,) = it.agent.processes
        await it.says(sessions[0], "one")
        assert len(it.agent.processes) == 1
        await it.editor.ask("session/set_mode", {"sessionId": sessions[1], "modeId": "code"})
        await it.says(sessions[1], "two")
        first, second = it.agent.processes
        assert it.editor.texts(sessions[1]) == ["echo two"]
        assert second.methods()[-3:] == ["session/new", "session/set_mode", "session/prompt"]
        assert first.params("session/prompt")[0]["prompt"][0]["text"] == "one"
        assert len(first.params("session/prompt")) == 1
        for text in ("three", "four"):
            await it.says(sessions[1], text)
            await it.says(sessions[0], text)
        assert len(it.agent.processes) == 2, "who has its process stays there"


@asynccontextmanager
async def gemini(tmp_path: Path) -> AsyncIterator[World]:
    """Sessions of an agent that can't close them, and shares fresh ones, by its name."""
    async with world(tmp_path, Agent(able={}), process_per_session=None) as it:
        it.context.agent_info = "gemini-cli"
        yield it


@pytest.mark.hazard("P18.9")
async def test_sessions_share_until_their_first_prompt_if_the_agent_can_not_close_them(
    tmp_path: Path,
) -> None:
    async with gemini(tmp_path) as it:
        first, second, _ = [await it.new() for _ in range(3)]
        for session_id in (first, second):
            await it.says(session_id, "one")
        assert it.editor.texts(second) == ["echo one"]
        old, new = it.agent.processes
        assert (process_of(it, first), process_of(it, second)) == (old, new)
        assert old.params("session/close") == []


@pytest.mark.hazard("P18.9")
async def test_a_session_that_would_leave_mcp_servers_behind_never_leaves_its_process(
    tmp_path: Path,
) -> None:
    async with gemini(tmp_path) as it:
        served = {**SETUP, "mcpServers": [{"name": "s", "command": "/s", "args": [], "env": []}]}
        with_servers = (await it.editor.ask("session/new", served))["sessionId"]
        beside = await it.new()
        (process,) = it.agent.processes
        await it.says(beside, "one")
        await it.says(with_servers, "one")
        assert process_of(it, with_servers) is process
        await it.editor.ask("session/new", served)
        assert len(it.agent.processes) == 3, "nor does it come to a process that may be left"


@pytest.mark.hazard("P18.7", "P1.1")
async def test_a_session_that_the_agent_can_not_close_ends_with_its_process(
    tmp_path: Path,
) -> None:
    async with gemini(tmp_path) as it:
        first, second = await it.new(), await it.new()
        await it.says(first, "one")
        await it.editor.ask("session/close", {"sessionId": first})
        (old,) = it.agent.processes
        await until(lambda: not old.lives)
        await it.says(second, "one")
        assert it.editor.texts(second) == ["echo one"]


@pytest.mark.hazard("P18.9")
async def test_a_session_that_had_prompts_is_opened_in_a_process_without_another_such(
    tmp_path: Path,
) -> None:
    async with codex(tmp_path) as it:
        first, second = await it.new(), await it.new()
        await it.says(first, "one")
        await it.says(second, "two")
        process_of(it, second).dies(Exit(1, None))
        await until(lambda: len(it.agent.living) == 1)
        await it.says(second, "again")
        assert process_of(it, second) is not process_of(it, first)


@pytest.mark.hazard("P18.9")
async def test_a_session_made_beside_one_that_had_a_prompt_leaves_at_its_own_first_prompt(
    tmp_path: Path,
) -> None:
    async with codex(tmp_path) as it:
        first = await it.new()
        await it.says(first, "one")
        second = await it.new()
        assert len(it.agent.processes) == 1
        await it.says(second, "two")
        assert process_of(it, second) is not process_of(it, first)


@pytest.mark.hazard("P18.1")
async def test_a_load_that_is_refused_after_a_move_that_went_well_says_nothing_of_the_agent(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        turn, running = await at_work(it, first)
        moved = it.editor.prompt(second, "meanwhile")
        await until(lambda: turn.reached == 2)
        turn.open()
        for request in (running, moved):
            assert await it.editor.stop_reason(request) == "end_turn"

        expired = at_agent(it, second)

        async def refused(process: Process, params: Json) -> Json:
            if params["sessionId"] == expired:
                raise RpcError(-32603, "it has expired")
            return {}

        it.agent.script |= {"session/resume": refused, "session/load": refused}
        process_of(it, second).dies(Exit(1, None))
        await until(lambda: len(it.agent.living) == 1)
        await it.editor.refusal(it.editor.prompt(second, "again"))
        third = await it.new()
        for session_id in (first, third):
            await it.says(session_id, "go on")
        assert process_of(it, third) is process_of(it, first)
