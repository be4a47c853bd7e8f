"""Where sessions stand, as clients that want to know are told it, and who closes them."""

from pathlib import Path

import pytest

from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import HELLO, Served, bench
from tests.core.sessions.world import SETUP

STATE = "_acp_bridge/state"
TOOL: Json = {"toolCallId": "t", "title": "Edit x"}
YES: Json = {"outcome": {"outcome": "selected", "optionId": "yes"}}


def words(client: Served) -> list[str]:
    """Return the states that a client was told, each once in a row."""
    told = [message["params"]["state"] for message in client.asked(STATE)]
    return [word for n, word in enumerate(told) if n == 0 or word != told[n - 1]]


@pytest.mark.hazard("V2.4")
async def test_who_declared_it_is_told_each_change_with_whose_turn_it_is(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        other, deaf = await it.attached(session_id, state=True), await it.attached(session_id)
        gate = it.agent.stops_at("session/prompt")
        first = it.editor.prompt(session_id, "\n the first \n more")
        await until(lambda: gate.reached)
        second = other.prompt(session_id, "second")
        await other.handled()
        (process,) = it.agent.processes
        asked = {"toolCall": TOOL, "options": [{"optionId": "yes", "kind": "allow_once"}]}
        asked["sessionId"] = "agent-1"
        process.says({"id": 7, "method": "session/request_permission", "params": asked})
        (question,) = await it.editor.got("session/request_permission")
        it.editor.answers_with(question, YES)
        await it.editor.handled()
        told = [message["params"] for message in other.asked(STATE)]
        assert type(told[0].pop("seconds")) is int
        rest = {"sessionId": session_id, "state": "idle", "waiting": 0, "clients": 2}
        assert told[0] == rest
        assert words(other) == ["idle", "running", "permission", "running"]
        prompt_id = told[-1]["turn"]["promptId"]
        assert told[-1]["turn"] == {"promptId": prompt_id, "mine": False, "text": "the first"}
        assert (told[-1]["waiting"], told[-1]["clients"]) == (1, 3)
        gate.open()
        assert await it.editor.stop_reason(first) == "end_turn"
        assert await other.stop_reason(second) == "end_turn"
        told = [message["params"] for message in other.asked(STATE)]
        mine = [each["turn"] for each in told if each.get("turn", {}).get("mine")]
        assert (mine[0]["text"], mine[0]["promptId"] != prompt_id) == ("second", True)
        assert (told[-1]["state"], "turn" in told[-1]) == ("idle", False)
        assert deaf.asked(STATE) == it.editor.asked(STATE) == []


@pytest.mark.hazard("V2.4", "R4")
@pytest.mark.parametrize("only", ["the agent", "nobody"])
@pytest.mark.parametrize("how", ["load", "resume"])
async def test_the_state_follows_a_load_also_of_a_session_that_only_the_agent_or_nobody_kept(
    tmp_path: Path, only: str, how: str
) -> None:
    async with bench(tmp_path, initialized=False) as it:
        own = {"_meta": {"acp_bridge": {"state": True, "queue": True}}}
        await it.editor.ask("initialize", {**HELLO, "clientCapabilities": own})
        session_id = "agents"
        it.agent.rows = [{"sessionId": session_id, "cwd": "/w"}]
        if only == "nobody":
            session_id = await it.new()
            await it.editor.ask("session/close", {"sessionId": session_id})
        it.editor.out.take()
        answer = await it.editor.ask(f"session/{how}", {**SETUP, "sessionId": session_id})
        (told,) = await it.editor.got(STATE)
        assert told["params"] == answer["_meta"]["acp_bridge"]["state"]
        (queued,) = await it.editor.got("_acp_bridge/queue")
        assert queued["params"] == {"sessionId": session_id, "prompts": []}


@pytest.mark.hazard("V2")
async def test_pause_hold_stop_and_the_end_are_told(tmp_path: Path) -> None:
    async with bench(tmp_path, drain_timeout=60) as it:
        session_id = await it.new()
        other = await it.attached(session_id, state=True)
        named = {"sessionId": session_id}
        await other.ask("_acp_bridge/hold", named)
        await other.ask("_acp_bridge/go", named)
        gate = it.agent.stops_at("session/prompt")
        prompt = other.prompt(session_id, "hello")
        await until(lambda: gate.reached)
        await it.editor.ask("_acp_bridge/cancel", named)
        gate.open()
        assert await other.stop_reason(prompt) == "cancelled"
        assert words(other) == ["idle", "held", "idle", "running", "cancelling", "idle"]
        it.agent.processes[0].dies()
        it.agent.unstartable = OSError(24, "no")
        await other.refusal(other.prompt(session_id, "hello"))
        await it.editor.ask("_acp_bridge/close", named)
        assert words(other)[-2:] == ["blocked", "closed"]
        assert "closed by another client" in other.texts(session_id)[-1]
        assert not any("closed by" in text for text in it.editor.texts(session_id))


@pytest.mark.hazard("V2")
async def test_who_has_only_loaded_a_session_is_told_that_another_one_has_closed_it(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        loaded = await it.joined()
        await loaded.ask("session/load", {**SETUP, "sessionId": session_id})
        await it.editor.ask("_acp_bridge/close", {"sessionId": session_id})
        assert any("closed by another client" in each for each in loaded.texts(session_id))


@pytest.mark.hazard("V2", "C23.1")
@pytest.mark.parametrize("how", ["_acp_bridge/close", "session/delete"])
async def test_who_has_pressed_stop_is_told_that_another_one_has_ended_the_session(
    tmp_path: Path, how: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        stopped = await it.attached(session_id)
        gate = it.agent.stops_at("session/prompt")
        prompt = stopped.prompt(session_id, "hello")
        await until(lambda: gate.reached)
        stopped.notify("session/cancel", {"sessionId": session_id})
        await stopped.handled()
        gate.open()
        assert await stopped.stop_reason(prompt) == "cancelled"
        await it.editor.ask(how, {"sessionId": session_id})
        assert "by another client" in stopped.texts(session_id)[-1]


@pytest.mark.hazard("V2")
async def test_who_has_a_session_is_told_that_another_one_has_deleted_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        loaded = await it.joined()
        await loaded.ask("session/load", {**SETUP, "sessionId": session_id})
        await it.editor.ask("session/delete", {"sessionId": session_id})
        (said,) = loaded.texts(session_id)
        assert "deleted by another client" in said


@pytest.mark.hazard("Q9", "R12.1")
@pytest.mark.parametrize("how", ["_acp_bridge/close", "session/close"])
async def test_a_close_for_all_keeps_what_waits_and_a_clients_own_close_cancels_it(
    tmp_path: Path, how: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        gate = it.agent.stops_at("session/prompt")
        runs, waits = it.editor.prompt(session_id, "one"), it.editor.prompt(session_id, "two")
        await until(lambda: gate.reached)
        closed = it.editor.send(how, {"sessionId": session_id})
        await until(lambda: it.agent.params("session/cancel"))
        gate.open()
        assert await it.editor.stop_reason(runs) == "cancelled"
        await it.editor.result(closed)
        if how == "session/close":
            assert await it.editor.stop_reason(waits) == "cancelled"
        else:
            assert "it is kept" in (await it.editor.refusal(waits)).message
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        await it.editor.stop_reason(it.editor.prompt(session_id, "/queue run"))
        ran = "echo two" in it.editor.texts(session_id)
        assert ran is (how == "_acp_bridge/close")


@pytest.mark.parametrize("runs", [True, False])
async def test_a_session_that_is_being_closed_does_not_start(tmp_path: Path, runs: bool) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        other = await it.attached(session_id, state=True)
        gate = it.agent.stops_at("session/prompt")
        if runs:
            it.editor.prompt(session_id, "hello")
            await until(lambda: gate.reached)
        await it.editor.ask("_acp_bridge/close", {"sessionId": session_id})
        assert words(other) == ["idle", *(["running", "cancelling"] if runs else []), "closed"]


@pytest.mark.hazard("V1")
async def test_who_is_being_shown_the_session_is_told_where_it_stands_after_that(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, client_limit=1) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        slow = await it.joined(state=True)
        slow.way.stuck = 1
        load = slow.send("session/load", {**SETUP, "sessionId": session_id})
        await until(lambda: slow.texts(session_id))
        gate = it.agent.stops_at("session/prompt")
        it.editor.prompt(session_id, "two")
        await until(lambda: gate.reached)
        assert slow.asked(STATE) == []
        slow.way.take_all()
        loaded = (await slow.result(load))["_meta"]["acp_bridge"]["state"]
        assert (loaded["state"], loaded["last"]["stopReason"]) == ("idle", "end_turn")
        await slow.handled()
        told = [each["params"] for each in slow.asked(STATE)]
        runs = [each.get("turn", {}).get("text") for each in told]
        if told[0]["state"] == "idle":  # the number of clients, if it was told before the prompt
            del told[0], runs[0]
        assert ({each["state"] for each in told}, runs) == ({"running"}, [None, "two"])
        gate.open()


@pytest.mark.hazard("V1.3")
async def test_who_is_being_shown_the_session_is_told_no_state_twice(tmp_path: Path) -> None:
    async with bench(tmp_path, client_limit=1) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        slow = await it.joined(state=True)

        async def told_by_a_load() -> list[Json]:
            before, shown = len(slow.asked(STATE)), len(slow.texts(session_id))
            slow.way.stuck = 1
            load = slow.send("session/load", {**SETUP, "sessionId": session_id})
            await until(lambda: len(slow.texts(session_id)) > shown)
            await it.editor.ask("_acp_bridge/live", {})  # which looks at the state
            slow.way.take_all()
            await slow.result(load)
            await slow.handled()
            return [each["params"] for each in slow.asked(STATE)[before:]]

        for told in await told_by_a_load(), await told_by_a_load():
            assert [(each["state"], each["clients"]) for each in told] == [("idle", 2)]


@pytest.mark.hazard("V2", "P2")
async def test_the_end_of_the_bridge_is_the_end_of_the_connection_and_closes_no_session(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, drain_timeout=60) as it:
        busy, idle = await it.new(), await it.new()
        other = await it.attached(busy, state=True)
        await other.ask("_acp_bridge/attach", {"sessionId": idle})
        gate = it.agent.stops_at("session/prompt")
        it.editor.prompt(busy, "runs")
        await until(lambda: gate.reached)
        await until(lambda: words(other)[-1:] == ["running"])
        told = len(other.asked(STATE))
        it.editor.leaves()  # which ends the block, too
        await until(lambda: it.agent.params("session/cancel"))
        gate.open()
        await it.ended.wait()
    assert len(other.asked(STATE)) == told
    assert other.way.ended[-1] == "closed"


# --- close -----------------------------------------------------------------------------------


@pytest.mark.hazard("V5.2")
async def test_a_close_of_one_of_several_is_its_leave_and_that_of_the_last_ends_the_session(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        named = {"sessionId": session_id}
        other = await it.attached(session_id)
        turn = it.agent.stops_at("session/prompt")
        running = it.editor.prompt(session_id, "goes on")
        await until(lambda: turn.reached)
        assert await it.editor.ask("session/close", named) == {}
        error = await it.editor.refusal(it.editor.prompt(session_id, "no more"))
        assert "attach to it first" in error.message
        turn.open()
        assert await it.editor.stop_reason(running) == "end_turn"
        assert other.texts(session_id) == ["goes on", "echo goes on"]
        assert it.editor.texts(session_id) == []
        assert await other.ask("session/close", named) == {}
        assert (await other.refused("session/close", named)).code == -32002


@pytest.mark.hazard("V5.2")
@pytest.mark.parametrize("method", ["session/load", "session/resume", "_acp_bridge/attach"])
async def test_a_client_that_closes_right_behind_its_load_has_the_session_no_more(
    tmp_path: Path, method: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        named = {"sessionId": session_id}
        other = await it.joined()
        load = other.send(method, {**SETUP, **named})
        close = other.send("session/close", named)
        again = other.send(method, {**SETUP, **named})
        assert await other.result(close) == {}
        assert len(other.answers(load)) == 1
        assert await other.result(again)
        for request in (other.send(method, {**SETUP, **named}), other.send("session/close", named)):
            await other.result(request)
        error = await other.refusal(other.prompt(session_id, "no more"))
        assert "attach to it first" in error.message
        assert await it.editor.ask("session/close", named) == {}
        assert await it.editor.ask("_acp_bridge/live", {}) == {"sessions": []}


@pytest.mark.hazard("V5")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_close_behind_a_load_under_way_takes_the_session_from_nobody_who_loads_it_meanwhile(
    tmp_path: Path, method: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        named = {"sessionId": session_id}
        await it.editor.ask("session/close", named)
        hasty, other = await it.joined(), await it.joined()
        load = hasty.send(method, {**SETUP, **named})
        close = hasty.send("session/close", named)
        await other.ask(method, {**SETUP, **named})
        assert await hasty.result(close) == {}
        assert len(hasty.answers(load)) == 1
        assert await other.stop_reason(other.prompt(session_id, "hello")) == "end_turn"
        assert "echo hello" in other.texts(session_id)
        error = await hasty.refusal(hasty.prompt(session_id, "no more"))
        assert "attach to it first" in error.message


@pytest.mark.hazard("V2", "V5")
async def test_who_loads_a_session_while_a_close_for_all_waits_for_a_load_is_told_of_that_close(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, client_limit=1) as it:
        session_id = await it.new()
        named = {"sessionId": session_id}
        await it.editor.stop_reason(it.editor.prompt(session_id, "hello"))
        await it.editor.ask("session/close", named)
        slow, other = await it.joined(), await it.joined()
        slow.way.stuck = 1
        load = slow.send("session/load", {**SETUP, **named})
        end = slow.send("_acp_bridge/close", named)
        await until(lambda: slow.texts(session_id))  # its load waits for it to read on
        await other.ask("session/load", {**SETUP, **named})
        assert slow.answers(load) == []
        slow.way.take_all()
        await slow.result(end)
        assert "closed by another client" in other.texts(session_id)[-1]


@pytest.mark.hazard("V5.2", "P1")
async def test_a_session_that_was_closed_ends_with_the_connection_of_its_last_client(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        gate = it.agent.stops_at("session/prompt")
        other.prompt(session_id, "runs all the same")
        await until(lambda: gate.reached)
        await it.editor.ask("session/close", {"sessionId": session_id})
        other.leaves()
        await other.parted.wait()
        assert it.agent.living
        gate.open()
        await until(lambda: not it.agent.living)
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        assert "echo runs all the same" in it.editor.texts(session_id)


@pytest.mark.hazard("V5", "K6")
@pytest.mark.parametrize("method", ["_acp_bridge/close", "session/delete"])
async def test_anybody_may_close_a_session_for_all_or_delete_it(
    tmp_path: Path, method: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        watcher = await it.attached(session_id, state=True)
        stranger = await it.joined()
        gate = it.agent.stops_at("session/prompt")
        running = it.editor.prompt(session_id, "hello")
        await until(lambda: gate.reached)
        await stranger.ask(method, {"sessionId": session_id})
        assert await it.editor.stop_reason(running) == "cancelled"
        assert words(watcher)[-1] == "closed"
        found = await it.editor.ask("session/list", {})
        assert len(found["sessions"]) == (method != "session/delete")
