"""A session that leaves a process which others have: nothing of it stays there, or is lost."""

from pathlib import Path

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.machine.states import State
from acp_bridge.core.wire.jsonrpc import Ok, RpcError
from tests.core.session.waiting import quiet
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.core.sessions.bench import bench
from tests.core.sessions.test_shared import at_agent, at_work, process_of, two
from tests.core.sessions.world import SETUP, World, world


async def reloading(it: World) -> tuple[str, Process, Gate]:
    """Load a session into the process of two others; returns it, the process, and the gate at which
    the agent resumes the session.
    """
    loaded = await it.stored("begin")
    first, _ = await two(it)
    process, resumes = process_of(it, first), it.agent.stops_at("session/resume")
    await it.load(loaded)
    await until(lambda: resumes.reached == 1)
    return loaded, process, resumes


@pytest.mark.hazard("P12.4")
async def test_a_session_that_leaves_while_it_is_opened_is_not_opened_there_in_another_way(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        loaded, process, _ = await reloading(it)
        turn = it.agent.stops_at("session/prompt")
        running = it.editor.prompt(next(iter(it.sessions.live)), "long")
        await until(lambda: turn.reached == 1)
        assert await it.editor.ask("session/close", {"sessionId": loaded}) == {}
        await quiet()
        assert len(process.params("session/resume")) == 1
        assert process.params("session/load") == []
        turn.open()
        assert await it.editor.stop_reason(running) == "end_turn"


@pytest.mark.hazard("P2.3", "P18.7")
async def test_a_process_whose_sessions_all_end_at_once_may_end_by_itself(tmp_path: Path) -> None:
    async with world(tmp_path, close_grace=5) as it:
        await two(it)
        (process,) = it.agent.processes
        await it.sessions.end(5)
        assert process.grace == 5
        assert len(process.params("session/close")) == 2


@pytest.mark.hazard("P18.6")
async def test_a_session_that_is_closed_while_it_is_opened_leaves_the_process_to_the_others(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        loaded, process, _ = await reloading(it)
        closed = process.link.agent_session_id
        assert await it.editor.ask("session/close", {"sessionId": loaded}) == {}
        assert it.agent.living == [process]
        assert process.params("session/close")[-1] == {"sessionId": closed}
        assert await it.is_free(loaded)


@pytest.mark.hazard("P18.6")
async def test_a_session_that_is_closed_while_it_wants_a_login_leaves_the_process_to_the_others(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        loaded, process, resumes = await reloading(it)
        it.agent.script["session/resume"] = RpcError(-32000, "who are you")
        await it.editor.ask("session/close", {"sessionId": loaded})
        await it.load(loaded)
        await until(lambda: it.sessions.live[loaded].now.blocked)
        assert await it.editor.ask("session/close", {"sessionId": loaded}) == {}
        assert it.agent.living == [process]
        resumes.open()


@pytest.mark.hazard("R9")
async def test_settings_that_are_not_answered_as_their_session_moves_are_made_before_the_prompt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "acp_bridge")
    async with world(tmp_path) as it:
        first, second = await two(it)
        turn, it.agent.script["session/set_mode"] = it.agent.stops_at("session/prompt"), {}
        modes = it.agent.stops_at("session/set_mode")
        running = it.editor.prompt(first, "long")
        await until(lambda: turn.reached == 1)
        chosen = [
            it.editor.send("session/set_mode", {"sessionId": second, "modeId": mode})
            for mode in ("plan", "edit")
        ]
        await until(lambda: modes.reached == 2)
        moving = it.editor.prompt(second, "meanwhile")
        await until(lambda: modes.reached == 3)
        assert [it.editor.answers(each) for each in chosen] == [[], []]
        modes.open()
        assert [await it.editor.result(each) for each in chosen] == [{}, {}]
        await until(lambda: turn.reached == 2)
        turn.open()
        for prompt in (running, moving):
            assert await it.editor.stop_reason(prompt) == "end_turn"
        other = it.agent.processes[1]
        asked = ["session/resume", "session/set_mode", "session/set_mode", "session/prompt"]
        assert other.methods()[1:] == asked
        assert [each["modeId"] for each in other.params("session/set_mode")] == ["plan", "edit"]
        assert "agent.silent" not in caplog.text


@pytest.mark.hazard("R9")
async def test_settings_that_move_twice_are_made_in_the_order_of_the_user(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, second = await two(it)
        third = await it.new()
        it.agent.script["session/set_mode"] = {}
        turn = it.agent.stops_at("session/prompt")
        ends = [it.editor.prompt(first, "a")]
        await until(lambda: turn.reached == 1)
        ends.append(it.editor.prompt(third, "a"))  # in a process of its own
        await until(lambda: turn.reached == 2)
        turn.open()
        for each in ends:
            await it.editor.stop_reason(each)
        turn, modes = it.agent.stops_at("session/prompt"), it.agent.stops_at("session/set_mode")
        ends = [it.editor.prompt(first, "b")]
        await until(lambda: turn.reached == 1)
        chosen = [
            it.editor.send("session/set_mode", {"sessionId": second, "modeId": mode})
            for mode in ("plan", "edit")
        ]
        await until(lambda: modes.reached == 2)
        ends.append(it.editor.prompt(second, "b"))  # it moves to the process of the third
        await until(lambda: modes.reached == 3)
        ends.append(it.editor.prompt(third, "b"))
        await until(lambda: turn.reached == 2)
        it.editor.prompt(second, "/queue memory new")  # and away from it
        await until(lambda: modes.reached == 4)
        modes.open()
        assert [await it.editor.result(each) for each in chosen] == [{}, {}]
        turn.open()
        for each in ends:
            await it.editor.stop_reason(each)
        last = it.agent.processes[-1].params("session/set_mode")
        assert [each["modeId"] for each in last] == ["plan", "edit"]


@pytest.mark.hazard("R9", "P18.6")
async def test_a_setting_that_is_made_as_its_session_is_opened_is_answered_when_that_is_closed(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        it.agent.script["session/set_mode"] = {}
        modes = it.agent.stops_at("session/set_mode")
        loaded, process, resumes = await reloading(it)
        plan = it.editor.send("session/set_mode", {"sessionId": loaded, "modeId": "plan"})
        await quiet()
        resumes.open()
        await until(lambda: modes.reached == 1)
        assert await it.editor.ask("session/close", {"sessionId": loaded}) == {}
        assert (await it.editor.refusal(plan)).code
        assert it.agent.living == [process]
        assert await it.is_free(loaded)


async def test_a_login_goes_on_in_the_process_when_the_session_leaves_through_which_it_was_asked(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, process_per_session=False) as it:
        sessions = [await it.new() for _ in range(3)]
        (process,) = it.agent.living
        logs_in = it.agent.stops_at("authenticate")
        login = it.editor.send("authenticate", {"methodId": "browser"})
        await until(lambda: logs_in.reached == 1)
        for session_id in (sessions[0], sessions[2]):
            await it.editor.ask("session/close", {"sessionId": session_id})
        assert it.editor.answers(login) == []
        logs_in.open()
        assert await it.editor.result(login) == {}
        assert len(process.params("authenticate")) == 1


async def test_what_a_process_asks_in_a_session_is_answered_when_the_session_leaves_it(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        it.editor.client.abilities = ClientAbilities({"fs": {"readTextFile": True}})
        first, second = await two(it)
        (process,) = it.agent.processes
        params = {"sessionId": at_agent(it, second), "path": "/w/x"}
        process.says({"id": "read", "method": "fs/read_text_file", "params": params})
        (asked,) = it.editor.asked("fs/read_text_file")
        turn, running = await at_work(it, first)
        moving = it.editor.prompt(second, "meanwhile")
        await until(lambda: turn.reached == 2)
        (answer,) = [each for each in process.received if each.get("id") == "read"]
        assert answer["error"]["code"] == -32800
        assert it.editor.asked("$/cancel_request")[0]["params"] == {"requestId": asked["id"]}
        turn.open()
        for prompt in (running, moving):
            assert await it.editor.stop_reason(prompt) == "end_turn"
        assert not process.peer.busy


@pytest.mark.hazard("P18.7")
@pytest.mark.parametrize("single", [False, True])
async def test_a_fork_that_is_closed_before_it_was_begun_leaves_no_process(
    tmp_path: Path, single: bool
) -> None:
    able: Json = {"resume": {}, "close": {}, "fork": {}}
    async with world(tmp_path, Agent(able=able), process_per_session=single) as it:
        it.editor.client.abilities = ClientAbilities({"_meta": {"acp_bridge": {"cursors": True}}})
        begun = True
        for at in it.moments():
            it.agent.script["session/fork"] = {"sessionId": f"forked-{at}"}
            first = await it.new()
            await it.says(first, "begin")
            fork = {**SETUP, "sessionId": first}
            _, cancelled = await it.cancelled(at, "session/fork", fork)
            for session_id in list(it.sessions.live):
                begun &= it.sessions.live[session_id].now.state is not State.COLD
                await it.editor.ask("session/close", {"sessionId": session_id})
            await until(lambda: not it.in_use)
            if not cancelled:
                break
        assert not begun


FORKS: Json = {"resume": {}, "close": {}, "fork": {}}


@pytest.mark.hazard("P18.6")
@pytest.mark.parametrize("method", ["session/new", "session/fork"])
async def test_a_session_that_the_agent_makes_after_its_request_was_cancelled_is_closed(
    tmp_path: Path, method: str
) -> None:
    async with world(tmp_path, Agent(able=FORKS)) as it:
        first, _ = await two(it)
        (process,) = it.agent.processes
        it.agent.script[method] = {"sessionId": "late"}
        makes = it.agent.stops_at(method)
        request = it.editor.send(method, {**SETUP, "sessionId": first})
        await until(lambda: makes.reached == 1)
        it.editor.cancel_request(request)
        assert (await it.editor.refusal(request)).code == -32800
        assert process.params("session/close") == []
        makes.open()
        await until(lambda: process.params("session/close"))
        assert process.params("session/close") == [{"sessionId": "late"}]
        await it.says(first, "again")
        assert it.agent.living == [process]


async def test_a_fork_that_a_session_at_work_makes_after_it_was_cancelled_is_closed(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, Agent(able=FORKS)) as it:
        first, _ = await two(it)
        (process,) = it.agent.processes
        turn, running = await at_work(it, first)
        it.agent.script["session/fork"] = {"sessionId": "late"}
        forks = it.agent.stops_at("session/fork")
        request = it.editor.send("session/fork", {**SETUP, "sessionId": first})
        await until(lambda: forks.reached == 1)
        it.editor.cancel_request(request)
        assert (await it.editor.refusal(request)).code == -32800
        forks.open()
        await until(lambda: process.params("session/close"))
        assert process.params("session/close") == [{"sessionId": "late"}]
        turn.open()
        assert await it.editor.stop_reason(running) == "end_turn"


@pytest.mark.parametrize("able", [FORKS, {}])
async def test_no_late_session_is_closed_that_another_one_has_or_by_an_agent_that_closes_none(
    tmp_path: Path, able: Json
) -> None:
    async with world(tmp_path, Agent(able=able)) as it:
        first = await it.new()
        process = process_of(it, first)
        process.link.close_late(Ok({"sessionId": "late" if able == {} else at_agent(it, first)}))
        process.link.close_late(Ok({}))
        assert process.params("session/close") == []
