"""A session that only the agent knows is loaded or resumed through it, and kept from then on."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, JournalError
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import ABLE, Agent, Gate, Json, Process, until
from tests.core.sessions.bench import bench
from tests.core.sessions.world import SETUP, World, world

WAYS = pytest.mark.parametrize("how", ["load", "resume"])
AUTH_REQUIRED = RpcError(-32000, "who are you")
TOKEN: Json = {"methodId": "token", "_meta": {"token": "t"}}
THEIRS: Json = {**SETUP, "sessionId": "theirs"}
HISTORY = ["said before", "and this"]


def knowing(**can: Any) -> Agent:
    """Return an agent that has a session "theirs", with something said in it."""
    agent = Agent(**can)
    agent.rows = [{"sessionId": "theirs", "cwd": "/w"}]
    agent.history = HISTORY
    return agent


async def nothing_came_of_it(it: World) -> bool:
    """Return True when neither the journal nor a process has the session."""
    listed = await it.listed()
    return not it.in_use and not listed and not it.sessions.live and await it.is_free("theirs")


# --- load and resume -------------------------------------------------------------------------


@WAYS
@pytest.mark.hazard("N1.17")
async def test_no_agent_can_say_on_which_machine_a_session_is(tmp_path: Path, how: str) -> None:
    async with world(tmp_path, knowing()) as it:
        error = RpcError(-32600, "it is elsewhere")
        named = {"reason": "elsewhere", "machine": "m", "address": "https://x.example"}
        error.data = {"details": "log in there", **named}
        it.agent.script["session/load"] = error
        asked = it.editor.send(f"session/{how}", THEIRS)
        assert (await it.editor.refusal(asked)).message == "it is elsewhere"
        (answer,) = it.editor.answers(asked)
        assert answer["error"]["data"].keys() == {"details"}
        assert "log in there" in answer["error"]["data"]["details"]


@pytest.mark.hazard("R1", "P12")
async def test_a_load_shows_and_records_what_the_agent_replays_before_the_answer(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, knowing()) as it:
        it.agent.script["session/load"] = loads_with({"modes": {"currentModeId": "plan"}, "x": 1})
        result = await it.load("theirs")
        own = {"acp_bridge": {"agentSessionId": "theirs"}}
        assert result == {"modes": {"currentModeId": "plan"}, "_meta": own}
        assert it.editor.texts("theirs") == HISTORY
        assert "result" in it.editor.messages[-1]
        assert it.agent.params("session/load") == [THEIRS]
        await it.says("theirs", "hello")
        assert len(it.agent.processes) == 1
        await it.editor.ask("session/close", {"sessionId": "theirs"})
        it.editor.out.take()
        # From now on it is ours: the journal shows it, and no agent is asked whether it has it.
        asked = len(it.agent.params("session/list"))
        await it.load("theirs")
        assert it.editor.texts("theirs") == [*HISTORY, "hello", "echo hello"]
        assert len(it.agent.params("session/list")) == asked


async def test_a_session_is_shown_under_the_agents_id_whatever_stands_in_that(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, knowing()) as it:
        odd = 's"\\é\n'
        it.agent.rows = [{"sessionId": odd, "cwd": "/w"}]
        await it.editor.ask("session/load", {**THEIRS, "sessionId": odd})
        await it.says(odd, "hello")
        assert it.editor.texts(odd) == [*HISTORY, "echo hello"]


def loads_with(result: Json, *states: Json) -> Any:
    """Return a script of `session/load` that replays, tells these states, and gives `result`."""

    async def load(process: Process, params: Json) -> Json:
        for text in process.agent.history:
            process.update(params["sessionId"], text)
        for state in states:
            about = {"sessionId": params["sessionId"], "update": state}
            process.says({"method": "session/update", "params": about})
        return result

    return load


@pytest.mark.hazard("R1.5")
async def test_a_resume_shows_nothing_of_the_replay_and_records_it(tmp_path: Path) -> None:
    async with world(tmp_path, knowing()) as it:
        commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
        it.agent.script["session/load"] = loads_with({}, commands)
        await it.load("theirs", "resume")
        assert it.editor.texts("theirs") == []
        # The session's state is no transcript: the client has it before the answer.
        state, answer = it.editor.messages
        assert state["params"]["update"]["sessionUpdate"] == "available_commands_update"
        assert "result" in answer
        await it.says("theirs", "hello")
        assert it.editor.texts("theirs") == ["echo hello"]
        it.editor.out.take()
        await it.load("theirs")
        assert it.editor.texts("theirs") == [*HISTORY, "hello", "echo hello"]


@WAYS
async def test_an_agent_that_can_only_resume_is_asked_that_and_nothing_is_replayed(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path, knowing(loads=False)) as it:
        await it.load("theirs", how)
        assert it.agent.params("session/resume") == [THEIRS]
        assert it.editor.texts("theirs") == []
        await it.says("theirs", "hello")


@WAYS
async def test_an_agent_that_lists_a_session_and_can_not_load_it_is_asked_and_its_refusal_told(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path, knowing(loads=False, able={"list": {}})) as it:
        it.agent.script["session/load"] = RpcError(-32601, "I load nothing")
        error = await it.editor.refused(f"session/{how}", THEIRS)
        assert "I load nothing" in error.message
        assert await nothing_came_of_it(it)


@WAYS
async def test_the_process_that_waits_is_used_and_one_is_started_if_none_waits(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path, knowing()) as it:
        it.agent.rows.append({"sessionId": "theirs too", "cwd": "/w"})
        waits = await it.pool.ready()
        await it.load("theirs", how)
        assert it.sessions.live["theirs"].link is waits
        await it.editor.ask(f"session/{how}", {**THEIRS, "sessionId": "theirs too"})
        assert [process.agent_session_id for process in it.agent.living] == ["theirs", "theirs too"]


@pytest.mark.hazard("P12.1", "R2")
async def test_an_agents_session_that_has_an_id_of_ours_or_was_deleted_is_unknown_under_its_own(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        it.agent.rows = [{"sessionId": "agent-1", "cwd": "/w"}]
        request = {**SETUP, "sessionId": "agent-1"}
        assert (await it.editor.refused("session/load", request)).code == -32002
        await it.editor.ask("session/delete", {"sessionId": session_id})
        assert (await it.editor.refused("session/load", request)).code == -32002
        assert it.agent.params("session/load") == []


@WAYS
@pytest.mark.parametrize("known_as", ["ours", "the agent's"])
async def test_for_a_session_that_was_deleted_no_agent_is_asked_or_started(
    tmp_path: Path, how: str, known_as: str
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        await it.says(session_id, "remember this")
        await it.editor.ask("session/delete", {"sessionId": session_id})
        wanted = session_id if known_as == "ours" else "agent-1"
    async with world(tmp_path, knowing()) as it:
        gate = it.agent.stops_at("initialize")
        it.agent.rows = [{"sessionId": wanted, "cwd": "/w"}]
        error = await it.editor.refused(f"session/{how}", {**SETUP, "sessionId": wanted})
        assert (error.code, error.message) == (-32002, "unknown session")
        assert not gate.reached
        gate.open()


# --- authentication --------------------------------------------------------------------------


@WAYS
async def test_what_the_client_authenticated_with_is_repeated(tmp_path: Path, how: str) -> None:
    async with world(tmp_path, knowing()) as it:
        load = it.agent.script["session/load"]

        async def checked(process: Process, params: Json) -> Any:
            known = TOKEN in process.params("authenticate")
            return await load(process, params) if known else AUTH_REQUIRED

        it.agent.script["session/load"] = checked
        error = await it.editor.refused(f"session/{how}", THEIRS)
        assert (error.code, error.message) == (-32000, "who are you")
        assert await nothing_came_of_it(it)
        it.context.standing.note("authenticate", TOKEN)
        await it.load("theirs", how)
        assert it.editor.texts("theirs") == (HISTORY if how == "load" else [])
        assert it.agent.params("authenticate") == [TOKEN]


# --- what goes wrong -------------------------------------------------------------------------


@pytest.mark.hazard("R3", "Q9")
@WAYS
async def test_one_that_the_agent_does_not_give_leaves_nothing_and_can_be_asked_for_again(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path, knowing()) as it:
        before = it.agent.script["session/load"]
        it.agent.script["session/load"] = RpcError(-32603, "not now")
        error = await it.editor.refused(f"session/{how}", THEIRS)
        assert (error.code, error.message) == (-32603, "not now")
        assert await nothing_came_of_it(it)
        it.agent.script["session/load"] = before
        await it.load("theirs", how)
        await it.says("theirs", "hello")


@pytest.mark.parametrize("known", [True, False])
async def test_prompts_wait_until_the_agent_has_loaded_the_session(
    tmp_path: Path, known: bool
) -> None:
    async with bench(tmp_path, knowing()) as it:
        if not known:
            it.agent.script["session/load"] = RpcError(-32002, "no such session")
        loading = it.agent.stops_at("session/load")
        load = it.editor.send("session/load", THEIRS)
        await until(lambda: loading.reached)
        stopped, given_up, runs = (it.editor.prompt("theirs", text) for text in "abc")
        it.editor.notify("session/cancel", {"sessionId": "theirs"})
        it.editor.cancel_request(given_up)
        assert await it.editor.stop_reason(stopped) == "cancelled"
        assert (await it.editor.refusal(given_up)).code == -32800
        assert it.agent.params("session/prompt") == []
        loading.open()
        if known:
            assert await it.editor.stop_reason(runs) == "end_turn"
            assert [each["prompt"][0]["text"] for each in it.agent.params("session/prompt")] == [
                "c"
            ]
        else:
            assert (await it.editor.refusal(runs)).code == -32002
            await it.editor.refusal(load)
            assert it.bridge._sessions.live == {}


async def test_what_a_bridge_that_was_killed_in_a_load_has_kept_is_loaded_anew(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path / "killed", knowing()) as it:
        answers, whole = Gate(), loads_with({})

        async def load(process: Process, params: Json) -> Any:
            told = await whole(process, params)
            await answers.passed()
            return told

        it.agent.script["session/load"] = load
        it.editor.send("session/load", THEIRS)
        await until(lambda: it.editor.texts("theirs") == HISTORY)
        shutil.copytree(tmp_path / "killed", tmp_path / "next")
        answers.open()
    async with bench(tmp_path / "next", knowing()) as it:
        await it.editor.ask("session/load", THEIRS)
        assert it.editor.texts("theirs") == HISTORY
        assert len(it.agent.params("session/load")) == 1
    async with bench(tmp_path / "killed", knowing()) as it:  # which has had the answer
        await it.editor.ask("session/load", THEIRS)
        assert it.editor.texts("theirs") == HISTORY


@pytest.mark.hazard("P3", "Q9")
@pytest.mark.parametrize("tree_lives", [False, True])
async def test_a_process_that_ends_while_it_loads_leaves_nothing_of_the_session(
    tmp_path: Path, tree_lives: bool
) -> None:
    async with world(tmp_path, knowing()) as it:
        gate = it.agent.stops_at("session/load")
        request = it.editor.send("session/load", THEIRS)
        await until(lambda: gate.reached)
        (process,) = it.agent.processes
        if tree_lives:
            process.exits()
        else:
            process.dies()
        assert "has ended (signal SIGKILL)" in (await it.editor.refusal(request)).message
        assert await nothing_came_of_it(it)
        gate.open()
        await it.load("theirs")


@pytest.mark.hazard("P3", "Q9")
async def test_a_process_that_ends_before_it_is_asked_leaves_nothing_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, create = Gate(), Journal.create

    async def slow(self: Journal, *args: Any, **given: Any) -> Any:
        await gate.passed()
        return await create(self, *args, **given)

    monkeypatch.setattr(Journal, "create", slow)
    async with world(tmp_path, knowing()) as it:
        request = it.editor.send("session/load", THEIRS)
        await until(lambda: gate.reached)
        it.agent.processes[0].dies()
        gate.open()
        assert "has ended" in (await it.editor.refusal(request)).message
        assert await nothing_came_of_it(it)


@pytest.mark.hazard("K3", "P12")
async def test_one_that_another_bridge_is_importing_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, knowing()) as it:
        await it.journal.prepare()
        others = await lease.acquire(it.journal.lock_path("theirs"), 0)
        assert (await it.editor.refused("session/load", THEIRS)).code == -32600
        assert it.agent.params("session/load") == []
        os.close(others)
        await it.load("theirs")


@pytest.mark.parametrize("what", ["known_agent_ids", "create", "delete"])
async def test_a_journal_that_fails_is_said_and_leaves_no_process_with_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def failing(*args: object, **given: object) -> None:
        raise JournalError("the disk is full")

    async with world(tmp_path, knowing()) as it:
        if what == "delete":  # of what is undone when the agent refuses
            it.agent.script["session/load"] = RpcError(-32603, "not now")
        with monkeypatch.context() as patch:
            patch.setattr(Journal, what, failing)
            error = await it.editor.refused("session/load", THEIRS)
        assert error.code == -32603
        assert "disk" not in error.message
        assert it.sessions.live == {}
        assert it.in_use == []
        assert await it.is_free("theirs")


@pytest.mark.hazard("Q8", "Q9", "P12")
@WAYS
async def test_one_that_is_cancelled_at_any_moment_is_answered_once_and_leaves_nothing(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path, knowing()) as it:
        for number in it.moments():
            answer, cancelled = await it.cancelled(number, f"session/{how}", THEIRS)
            if "result" not in answer:
                assert await nothing_came_of_it(it)
            it.editor.out.take()
            await it.load("theirs")
            assert it.editor.texts("theirs") == HISTORY
            await it.editor.ask("session/close", {"sessionId": "theirs"})
            await it.sessions._store.erase("theirs", known=False)
            if not cancelled:
                break
        assert number > 10


# --- closed, deleted, cut short in the middle ------------------------------------------------


@pytest.mark.hazard("Q9")
@pytest.mark.parametrize("end", ["close", "delete"])
@WAYS
async def test_a_close_or_delete_in_the_middle_ends_both_and_leaves_nothing(
    tmp_path: Path, end: str, how: str
) -> None:
    async with world(tmp_path, knowing(able={**ABLE, "resume": None})) as it:
        gate = it.agent.stops_at("session/load")
        load = it.editor.send(f"session/{how}", THEIRS)
        await until(lambda: gate.reached)
        ending = it.editor.send(f"session/{end}", {"sessionId": "theirs"})
        error = await it.editor.refusal(load)
        assert (error.code, error.message) == (-32002, "unknown session")
        assert await it.editor.result(ending) == {}
        assert [m["id"] for m in it.editor.messages if "method" not in m] == [load, ending]
        assert await nothing_came_of_it(it)
        gate.open()
        if end == "close":
            await it.load("theirs")
        else:  # the agent lists it still, but it was deleted
            assert (await it.editor.refused("session/load", THEIRS)).code == -32002


@pytest.mark.parametrize("end", ["close", "delete"])
async def test_a_close_or_delete_before_the_session_is_there_waits_for_the_load(
    tmp_path: Path, end: str
) -> None:
    async with world(tmp_path, knowing()) as it:
        gate = it.agent.stops_at("session/list")
        load = it.editor.send("session/load", THEIRS)
        await until(lambda: gate.reached)
        ending = it.editor.send(f"session/{end}", {"sessionId": "theirs"})
        gate.open()
        await it.editor.result(load)
        assert await it.editor.result(ending) == {}
        assert it.sessions.live == {}
        assert await it.listed() == (["theirs"] if end == "close" else [])
