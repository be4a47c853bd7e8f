"""Several clients of one bridge in memory: who joins, what each is shown, and who leaves."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.clients import socket_share
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.sessions.agent import Agent, Json, until
from tests.core.sessions.bench import HELLO, Served, bench
from tests.core.sessions.world import SETUP

# --- who joins, and what it may ---------------------------------------------------------------


@pytest.mark.hazard("V5.1")
async def test_the_end_of_a_joined_client_ends_nothing_that_others_have(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        other.leaves()
        await other.parted.wait()
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "hello")) == "end_turn"
        assert other.way.ended[-1] == "closed"


@pytest.mark.parametrize("odd", [b"garbage\n", b"[]\n", b'{"id":1}\n'])
async def test_what_a_client_sends_that_is_no_message_hurts_only_itself(
    tmp_path: Path, odd: bytes
) -> None:
    async with bench(tmp_path) as it:
        other = await it.joined()
        other.read.give(odd * 3)
        other.read.give(OSError(104, "reset"))
        await other.parted.wait()
        await it.new()


@pytest.mark.hazard("V5")
@pytest.mark.parametrize("line", [b"garbage\n", b'{"id":1,"method":"_acp_bridge/live"}\n'])
async def test_clients_that_send_without_end_hold_up_no_other(tmp_path: Path, line: bytes) -> None:
    count = 5_000
    async with bench(tmp_path) as it:
        session_id = await it.new()
        others = [await it.joined() for _ in range(2)]
        for other in others:
            other.read.give(line * count)
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "hello")) == "end_turn"
        assert [len(other.way.messages) < count for other in others] == [True, True]


@pytest.mark.hazard("V5")
async def test_lines_that_do_not_end_cost_the_connection_of_the_longest_and_never_the_editors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_share, "MOST_UNFINISHED", 1000)
    async with bench(tmp_path) as it:
        session_id = await it.new()
        small, large = [await it.joined() for _ in range(2)]
        it.editor.read.give(b" " * 5000)
        large.read.give(b" " * 900)
        await until(lambda: it.bridge._clients[-1].peer.unfinished == 900)
        small.read.give(b" " * 101)
        await large.parted.wait()
        (told,) = large.asked("_acp_bridge/let_go")
        assert "don't end" in told["params"]["reason"]
        assert await small.ask("_acp_bridge/live", {}) is not None
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "hello")) == "end_turn"
        small.read.give(b" " * 990 + b"\n" + b" " * 990)
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "on")) == "end_turn"
        assert not small.parted.is_set()


@pytest.mark.hazard("V5")
async def test_the_last_line_of_a_client_that_leaves_counts_without_its_end(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        other = await it.joined()
        other.read.give(encode({"id": "last", "method": "_acp_bridge/live"}).rstrip(), b"")
        await other.parted.wait()
        assert await other.result("last")


@pytest.mark.hazard("V4")
@pytest.mark.parametrize(
    "method",
    ["session/new", "session/fork", "authenticate", "logout", "providers/set", "_x/configure_it"],
)
async def test_a_client_on_a_socket_makes_no_session_and_sets_nothing_for_all(
    tmp_path: Path, method: str
) -> None:
    async with bench(tmp_path) as it:
        other = await it.joined()
        error = await other.refused(method, SETUP)
        assert (error.code, "started this acp-bridge" in error.message) == (-32600, True)
        other.notify("_x/news", {})
        await other.handled()
        assert it.agent.params("_x/news") == it.agent.params(method) == []


@pytest.mark.hazard("V4")
async def test_the_agent_is_told_of_the_first_client_and_all_are_told_of_the_agent(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, initialized=False, process_per_session=True) as it:
        early = Served()
        it.context.tasks.start_soon(it._join, early)
        hello = early.send("initialize", HELLO)  # it waits for the one on stdin
        assert "already" in (await early.refused("initialize", HELLO)).message
        first = {"protocolVersion": 1, "clientCapabilities": {"terminal": True}}
        told = await it.editor.ask("initialize", first)
        assert await early.result(hello) == told
        await it.joined_with({"fs": {"readTextFile": True}})
        await it.new()
        await it.new()
        able = {"terminal": True, "session": {"quota": {}}, "subagents": {}}
        assert it.agent.params("initialize") == [{**first, "clientCapabilities": able}] * 2


async def test_a_client_that_comes_before_the_first_is_told_so_in_the_end(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False, start_timeout=0) as it:
        early = Served()
        it.context.tasks.start_soon(it._join, early)
        assert "try again" in (await early.refused("initialize", HELLO)).message


# --- attach ----------------------------------------------------------------------------------


@pytest.mark.hazard("V1.1", "R4")
@pytest.mark.parametrize("how", ["_acp_bridge/attach", "session/load", "session/resume"])
async def test_a_second_client_is_shown_the_session_and_everything_that_follows_once(
    tmp_path: Path, how: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        other = await it.joined()
        elsewhere = {"cwd": "/elsewhere", "mcpServers": [{"name": "x"}]}
        answer = await other.ask(how, {**elsewhere, "sessionId": session_id})
        assert answer["_meta"]["acp_bridge"]["attached"] == {"cwd": "/w", "clients": 2}
        before = [] if how == "session/resume" else ["one", "echo one"]
        assert other.texts(session_id) == before
        await it.editor.stop_reason(it.editor.prompt(session_id, "two"))
        await other.stop_reason(other.prompt(session_id, "three"))
        assert other.texts(session_id) == [*before, "two", "echo two", "echo three"]
        assert it.editor.texts(session_id) == ["echo one", "echo two", "three", "echo three"]
        assert len(it.agent.processes) == 1
        # Alone again, what it asks for counts.
        await it.editor.ask("session/close", {"sessionId": session_id})
        error = await other.refused("session/load", {**elsewhere, "sessionId": session_id})
        assert error.message.startswith("cwd")


@pytest.mark.hazard("R2")
async def test_only_what_is_live_can_be_attached_to(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        other = await it.joined()
        for odd in ({}, {"sessionId": 1}, {"sessionId": session_id, "history": "all"}):
            assert (await other.refused("_acp_bridge/attach", odd)).code == -32602
        await it.editor.ask("session/close", {"sessionId": session_id})
        for unknown in (session_id, "nobody's"):
            error = await other.refused("_acp_bridge/attach", {"sessionId": unknown})
            assert error.code == -32002
        await other.ask("session/load", {**SETUP, "sessionId": session_id})
        await it.editor.ask("_acp_bridge/attach", {"sessionId": session_id, "history": "pending"})
        assert it.editor.texts(session_id) == ["echo one"]


async def test_a_prompt_needs_the_session_and_an_observer_sends_none(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        stranger, watcher = await it.joined(), await it.attached(session_id, observer=True)
        error = await stranger.refusal(stranger.prompt(session_id, "hello"))
        assert (error.code, "attach to it first" in error.message) == (-32600, True)
        error = await watcher.refusal(watcher.prompt(session_id, "hello"))
        assert (error.code, "observer" in error.message) == (-32600, True)
        assert it.agent.params("session/prompt") == []
        error = await watcher.refused("session/set_mode", {"sessionId": session_id, "modeId": "x"})
        assert (error.code, it.agent.params("session/set_mode")) == (-32600, [])


@pytest.mark.parametrize(
    "method",
    ["hold", "go", "pause", "title"],
)
async def test_an_observer_neither_pauses_nor_names_a_session(tmp_path: Path, method: str) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        watcher = await it.attached(session_id, observer=True)
        given = {"sessionId": session_id, "title": "mine"}
        assert (await watcher.refused(f"_acp_bridge/{method}", given)).code == -32600
        (row,) = (await it.editor.ask("_acp_bridge/live", {}))["sessions"]
        assert (row["state"], row.get("title")) == ("idle", None)


async def test_what_an_observer_says_into_a_turn_reaches_no_agent(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        watcher = await it.attached(session_id, observer=True)
        said = {"sessionId": session_id, "prompt": [{"type": "text", "text": "and this"}]}
        for method in ("_session/steering", "_agent/anything"):
            assert (await watcher.refused(method, said)).code == -32600
            watcher.notify(method, said)
        await watcher.ask("_acp_bridge/live", {})
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        assert it.agent.params("_session/steering") == it.agent.params("_agent/anything") == []


async def test_a_method_of_the_bridges_that_it_does_not_have_is_no_agents(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        for client in (it.editor, await it.attached(session_id)):
            for given in ({"sessionId": session_id}, {}):
                assert (await client.refused("_acp_bridge/rewind", given)).code == -32601
            client.notify("_acp_bridge/rewind", {"sessionId": session_id})
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        assert it.agent.params("_acp_bridge/rewind") == []


async def test_a_session_that_is_named_does_not_let_a_joined_client_set_a_provider(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        other = await it.joined()
        given = {"sessionId": await it.new(), "providerId": "x", "baseUrl": "http://elsewhere"}
        assert (await other.refused("providers/set", given)).code == -32600
        assert it.agent.params("providers/set") == []


@pytest.mark.hazard("V5")
@pytest.mark.parametrize("method", ["_acp_bridge/attach", "session/resume", "session/load"])
@pytest.mark.parametrize("steps", range(8))
async def test_a_client_that_leaves_while_it_attaches_has_nothing(
    tmp_path: Path, method: str, steps: int
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        other = await it.joined()
        given = {**SETUP, "sessionId": session_id, "history": "pending"}
        other.send(method, given)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        other.leaves()
        with anyio.fail_after(5):
            await other.parted.wait()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        (view,) = it.bridge._sessions.live[session_id].transcript.views
        assert not view.client.gone


@pytest.mark.hazard("V4", "R1")
@pytest.mark.parametrize("how", ["_acp_bridge/attach", "session/load"])
async def test_a_client_that_stops_in_its_replay_holds_up_nobody(tmp_path: Path, how: str) -> None:
    async with bench(tmp_path, client_limit=1) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        slow = await it.joined()
        slow.way.stuck = 1
        load = slow.send(how, {**SETUP, "sessionId": session_id})
        await until(lambda: slow.texts(session_id))
        other = await it.joined()
        await other.ask("session/load", {**SETUP, "sessionId": session_id})
        await it.editor.ask("_acp_bridge/close", {"sessionId": session_id})
        assert (await slow.refusal(load)).code == -32002


@pytest.mark.hazard("V1.2", "V1.3")
async def test_a_state_that_changes_during_a_replay_does_not_go_back(tmp_path: Path) -> None:
    async with bench(tmp_path, client_limit=1) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        (process,) = it.agent.processes
        other = await it.joined()
        other.way.stuck = 1
        load = other.send("session/load", {**SETUP, "sessionId": session_id})
        await until(lambda: other.texts(session_id))
        other.out.take()
        it.editor.way.stuck = 0
        for mode in "ab":
            update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
            params = {"sessionId": "agent-1", "update": update}
            process.says({"method": "session/update", "params": params})
            process.update("agent-1", f"in {mode}")
        other.way.take_all()
        await other.result(load)
        modes = [m["params"]["update"].get("currentModeId") for m in other.asked("session/update")]
        assert [mode for mode in modes if mode] == ["b"]
        assert other.texts(session_id)[-2:] == ["in a", "in b"]


# --- what one does, and the others are shown --------------------------------------------------


@pytest.mark.hazard("Q9.1", "V5.1")
async def test_what_a_client_that_left_has_prompted_runs_and_is_answered_to_nobody(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        turn = it.agent.stops_at("session/prompt")
        first = it.editor.prompt(session_id, "first")
        await until(lambda: turn.reached)
        other.prompt(session_id, "second")
        await other.handled()
        other.leaves()
        await other.parted.wait()
        turn.open()
        last = it.editor.prompt(session_id, "last")
        assert [await it.editor.stop_reason(each) for each in (first, last)] == ["end_turn"] * 2
        assert it.editor.texts(session_id) == ["echo first", "second", "echo second", "echo last"]
        assert len(it.agent.living) == 1


@pytest.mark.hazard("T3", "V1.4")
async def test_what_a_client_can_not_take_is_converted_for_that_one_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        plain = await it.attached(session_id)
        able = await it.joined_with(
            {"plan": {}, "session": {"configOptions": {"boolean": {}}, "compaction": {}}}
        )
        await able.ask("_acp_bridge/attach", {"sessionId": session_id})
        (process,) = it.agent.processes
        terminal = {"type": "terminal", "terminalId": "t1"}
        entries = [{"content": "do", "priority": "low", "status": "pending"}]
        option = {"id": "o", "type": "boolean", "currentValue": True}
        said: list[Json] = [
            {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "x", "content": [terminal]},
            {"sessionUpdate": "plan_update", "plan": {"planId": "p", "entries": entries}},
            {"sessionUpdate": "plan_removed", "planId": "p"},
            {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"},
            {"sessionUpdate": "config_option_update", "configOptions": [option]},
        ]
        for client in (it.editor, plain, able):
            client.out.take()
        for update in said:
            params = {"sessionId": "agent-1", "update": update}
            process.says({"method": "session/update", "params": params})
        got = [
            [m["params"]["update"] for m in client.asked("session/update")]
            for client in (it.editor, plain, able)
        ]
        without = {**said[0], "content": []}  # the terminal is at the first client
        old_plan = {"sessionUpdate": "plan", "entries": entries}
        no_options = {**said[4], "configOptions": list[Json]()}
        assert got[0] == [said[0], old_plan, no_options]
        assert got[1] == [without, old_plan, no_options]
        assert got[2] == [without, *said[1:]]


@pytest.mark.hazard("V1", "C23")
async def test_a_setting_of_another_is_told_in_the_quiet_and_what_was_kept_does_not_undo_it(
    tmp_path: Path,
) -> None:
    agent = Agent()
    modes = {"currentModeId": "a", "availableModes": [{"id": each} for each in "abc"]}
    agent.script["session/new"] = {"sessionId": "agent-1", "modes": modes}
    agent.script["session/set_mode"] = {}
    async with bench(tmp_path, agent) as it:
        session_id = await it.new()
        quiet = await it.joined()
        await quiet.ask("session/load", {**SETUP, "sessionId": session_id})
        (process,) = it.agent.processes
        update = {"sessionUpdate": "current_mode_update", "currentModeId": "b"}
        params = {"sessionId": "agent-1", "update": update}
        process.says({"method": "session/update", "params": params})
        await it.editor.ask("session/set_mode", {"sessionId": session_id, "modeId": "c"})

        def told() -> list[str]:
            updates = [m["params"]["update"] for m in quiet.asked("session/update")]
            return [each["currentModeId"] for each in updates if "currentModeId" in each]

        assert told() == ["c"]
        quiet.notify("session/cancel", {"sessionId": session_id})
        await quiet.handled()
        assert told() == ["c"]


@pytest.mark.hazard("V10.2")
async def test_who_sets_a_mode_is_told_when_another_one_sets_it_back_to_what_it_was(
    tmp_path: Path,
) -> None:
    agent = Agent()
    modes = {"currentModeId": "ask", "availableModes": [{"id": each} for each in ("ask", "edit")]}
    agent.script["session/new"] = {"sessionId": "agent-1", "modes": modes}
    agent.script["session/set_mode"] = {}
    async with bench(tmp_path, agent) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        for client, mode in ((it.editor, "edit"), (other, "ask"), (it.editor, "edit")):
            await client.ask("session/set_mode", {"sessionId": session_id, "modeId": mode})
        updates = [m["params"]["update"] for m in other.asked("session/update")]
        told = [each["currentModeId"] for each in updates if "currentModeId" in each]
        assert told[-2:] == ["edit", "edit"]
