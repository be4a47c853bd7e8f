"""`session/close` and `delete`, also in the middle of a load or of each other."""

import os
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.journal import Journal, JournalError, SessionJournal
from acp_bridge.core.runtime import waits
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.core.sessions.world import SETUP, World, world

ENDS = pytest.mark.parametrize("end", ["close", "delete"])


def named(session_id: str) -> Json:
    return {"sessionId": session_id}


async def nothing_runs(it: World, session_id: str) -> bool:
    return not it.in_use and session_id not in it.sessions.live and await it.is_free(session_id)


# --- a live session --------------------------------------------------------------------------


@pytest.mark.hazard("Q9", "P1")
@ENDS
async def test_the_prompts_are_answered_cancelled_first_and_nothing_of_the_session_is_left(
    tmp_path: Path, end: str
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        gate = it.agent.stops_at("session/prompt")
        prompts = [it.editor.prompt(session_id, text) for text in ("runs", "waits")]
        await until(lambda: gate.reached)
        seen = len(it.editor.messages)
        ending = it.editor.send(f"session/{end}", named(session_id))
        assert await it.editor.result(ending) == {}
        for prompt in prompts:
            assert await it.editor.stop_reason(prompt) == "cancelled"
        answered = [m["id"] for m in it.editor.messages[seen:] if "method" not in m]
        assert answered[-1] == ending
        assert await nothing_runs(it, session_id)
        assert await it.listed() == ([session_id] if end == "close" else [])


async def test_the_agent_is_told_and_may_end_by_itself(tmp_path: Path) -> None:
    async with world(tmp_path, close_grace=7) as it:
        session_id = await it.new()
        await it.editor.ask("session/close", named(session_id))
        (process,) = it.agent.processes
        assert process.params("session/close") == [named("agent-1")]
        assert process.grace == 7


@pytest.mark.parametrize("refuses", [True, False])
async def test_an_agent_that_will_not_close_or_can_not_is_ended_all_the_same(
    tmp_path: Path, refuses: bool
) -> None:
    async with world(tmp_path, Agent(able={"close": {} if refuses else None}), close_grace=7) as it:
        it.agent.script["session/close"] = RpcError(-32603, "no")
        session_id = await it.new()
        assert await it.editor.ask("session/close", named(session_id)) == {}
        assert await nothing_runs(it, session_id)
        assert len(it.agent.params("session/close")) == refuses


@pytest.mark.hazard("R2")
async def test_a_session_that_is_not_live_can_not_be_closed(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        for session_id in ("nobody's", await it.stored("hello")):
            error = await it.editor.refused("session/close", named(session_id))
            assert (error.code, error.message) == (-32002, "unknown session")
        assert (await it.editor.refused("session/close", {})).code == -32602
        assert (await it.editor.refused("session/delete", {"sessionId": 1})).code == -32602


async def test_all_who_close_a_session_at_once_are_told_that_it_is_closed(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        gate = it.agent.dying = Gate()
        ends = ["close", "close", "delete"]
        requests = [it.editor.send(f"session/{end}", named(session_id)) for end in ends]
        await until(lambda: gate.reached)
        gate.open()
        assert [await it.editor.result(request) for request in requests] == [{}, {}, {}]
        assert await nothing_runs(it, session_id)
        assert await it.listed() == []


# --- delete ----------------------------------------------------------------------------------


async def test_a_deleted_session_is_deleted_at_the_agent_under_the_agents_own_id(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        await it.pool.ready()
        assert await it.editor.ask("session/delete", named(session_id)) == {}
        assert await it.editor.ask("session/delete", named("agent's")) == {}
        assert it.agent.params("session/delete") == [named("agent-1"), named("agent's")]
        load = {**SETUP, **named(session_id)}
        assert (await it.editor.refused("session/load", load)).code == -32002


@pytest.mark.hazard("K6.3", "P12")
async def test_a_live_session_is_deleted_by_its_own_process_once_that_has_closed_it(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, close_grace=7) as it:
        session_id = await it.new()
        await it.says(session_id, "hello")
        assert await it.editor.ask("session/delete", named(session_id)) == {}
        (process,) = it.agent.processes
        last = [m["method"] for m in process.received][-2:]
        assert last == ["session/close", "session/delete"]
        assert process.params("session/delete") == [named("agent-1")]
        assert await it.listed() == []


@pytest.mark.hazard("K6.3", "P12", "Q10")
@pytest.mark.parametrize("why", ["keeps it open", "refuses", "is deaf", "can not close", "asleep"])
async def test_a_live_session_that_its_own_process_does_not_delete_is_deleted_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "is deaf":
        monkeypatch.setattr(waits, "AGENT_PATIENCE", 0.05)
    able: Json = {"delete": {}} if why == "can not close" else {"delete": {}, "close": {}}
    async with world(tmp_path, Agent(able=able), close_grace=7) as it:
        session_id = await it.new()
        await it.says(session_id, "hello")
        own = it.agent.processes[0]

        async def answer(process: Process, params: Json) -> Json:
            if why == "is deaf" and process is own:
                await anyio.sleep_forever()
            if why == "refuses" and process is own:
                raise RpcError(-32603, "it was open")
            return {}

        it.agent.script["session/delete"] = answer
        if why == "keeps it open":
            it.agent.script["session/close"] = RpcError(-32603, "no")
        if why == "asleep":
            own.dies()
        assert await it.editor.ask("session/delete", named(session_id)) == {}
        assert own.params("session/delete") == [named("agent-1")] * (why in ("refuses", "is deaf"))
        assert it.agent.processes[1].params("session/delete") == [named("agent-1")]
        assert await it.listed() == []


@pytest.mark.hazard("K6.2")
async def test_its_own_process_does_not_delete_what_another_session_may_be(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, close_grace=7, process_per_session=True) as it:
        it.agent.script["session/new"] = {"sessionId": "0"}
        first, second = await it.new(), await it.new()
        for session_id in (first, second):
            await it.says(session_id, "hello")
        result = await it.editor.ask("session/delete", named(first))
        assert "another session" in result["_meta"]["acp_bridge"]["agentKeeps"]
        assert it.agent.params("session/delete") == []


@pytest.mark.hazard("Q10.2")
@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("deaf", "in time"),
        ("refuses", "did not delete it: no"),
        ("can not", "can't delete"),
        ("none starts", "could not be started"),
    ],
)
async def test_a_delete_does_not_depend_on_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, told: str
) -> None:
    monkeypatch.setattr(waits, "AGENT_PATIENCE", 0.01)
    async with world(tmp_path, Agent(able={"delete": None if why == "can not" else {}})) as it:
        session_id = await it.stored("hello")
        if why != "none starts":
            await it.pool.ready()
        if why == "deaf":
            it.agent.stops_at("session/delete")
        elif why == "none starts":
            it.agent.unstartable = StartFailed("no", permanent=True)
        else:
            it.agent.script["session/delete"] = RpcError(-32603, "no")
        result = await it.editor.ask("session/delete", named(session_id))
        assert told in result["_meta"]["acp_bridge"]["agentKeeps"]
        assert await it.listed() == []
        assert len(it.agent.params("session/delete")) == (why in ("deaf", "refuses"))


@pytest.mark.hazard("K3", "P12")
async def test_a_session_that_another_bridge_has_is_not_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        others = await lease.acquire(it.journal.lock_path(session_id), 0)
        error = await it.editor.refused("session/delete", named(session_id))
        assert error.code == -32600
        assert it.agent.params("session/delete") == []
        os.close(others)
        await it.load(session_id)
        assert it.editor.texts(session_id) == ["hello", "echo hello"]


@pytest.mark.hazard("K6.7", "R8.2")
@pytest.mark.parametrize("lost", ["nothing", "the index", "the file can't be read"])
@pytest.mark.parametrize("prompts", [["hello"], []])
async def test_a_session_of_another_agent_is_not_deleted_and_the_mismatch_is_named(
    tmp_path: Path, lost: str, prompts: list[str]
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored(*prompts)
        path = it.journal.path(session_id)
    if lost == "the index":
        for name in ("index.db", "index.db-wal", "index.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        if not prompts:
            return  # then nothing is known of it
    elif lost != "nothing":
        damaged, file_was = prompts, path.read_bytes() if prompts else b""
        if damaged:
            path.write_bytes(b"x" * 8192)
    async with world(tmp_path, agent_name="other") as it:
        await it.pool.ready()
        error = await it.editor.refused("session/delete", named(session_id))
        assert (error.code, "belongs to the agent 'agent'" in error.message) == (-32602, True)
        assert it.agent.params("session/delete") == []
        assert await it.is_free(session_id)
    if prompts and lost.startswith("the file"):
        path.write_bytes(file_was)
    async with world(tmp_path) as it:
        await it.load(session_id)
        assert it.editor.texts(session_id) == [text for p in prompts for text in (p, f"echo {p}")]


@pytest.mark.hazard("K6")
async def test_an_id_of_another_agents_deleted_session_is_this_agents_own(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.agent.rows = [{"sessionId": "0", "cwd": "/w"}]
        await it.load("0")
        await it.editor.ask("session/delete", named("0"))
    async with world(tmp_path, agent_name="other") as it:
        await it.pool.ready()
        it.agent.rows = [{"sessionId": "0", "cwd": "/w"}]
        assert [each["sessionId"] for each in (await listed(it))] == ["0"]
        assert await it.editor.ask("session/delete", named("0")) == {}
        assert it.agent.params("session/delete") == [named("0")]
        assert await listed(it) == []


async def listed(it: World) -> list[Json]:
    rows: list[Json] = (await it.editor.ask("session/list", {"cwd": "/w"}))["sessions"]
    return rows


@pytest.mark.hazard("K6")
async def test_a_session_whose_file_can_not_be_read_can_be_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        it.journal.path(session_id).write_bytes(b"x" * 8192)
        assert await it.editor.ask("session/delete", named(session_id)) == {}
        assert it.agent.params("session/delete") == [named("agent-1")]
        assert await it.listed() == []
        assert not it.journal.path(session_id).exists()


@pytest.mark.parametrize("what", ["delete", "prepare"])
async def test_a_journal_that_fails_is_said_and_the_delete_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def failing(*args: object, **given: object) -> None:
        raise JournalError("the disk is full")

    async with world(tmp_path) as it:
        session_id = await it.new()
        with monkeypatch.context() as patch:
            patch.setattr(Journal, what, failing)
            error = await it.editor.refused("session/delete", named(session_id))
        assert error.code == -32603
        assert "disk" not in error.message
        assert await nothing_runs(it, session_id)
        assert await it.editor.ask("session/delete", named(session_id)) == {}
        assert await it.listed() == []


# --- in the middle of a load -----------------------------------------------------------------


@pytest.mark.hazard("Q9", "R3")
@ENDS
async def test_a_close_or_delete_during_a_replay_ends_it_and_is_answered_behind_it(
    tmp_path: Path, end: str
) -> None:
    async with world(tmp_path, client_limit=1) as it:
        session_id = await it.stored("hello")
        it.editor.out.stuck = 1
        load = it.editor.send("session/load", {**SETUP, **named(session_id)})
        await until(lambda: session_id in it.sessions.live and it.editor.texts(session_id))
        ending = it.editor.send(f"session/{end}", named(session_id))
        assert it.editor.answers(load) == []
        it.editor.out.take_all()
        assert (await it.editor.refusal(load)).code == -32002
        assert await it.editor.result(ending) == {}
        answered = [m["id"] for m in it.editor.messages if "method" not in m]
        assert answered == [load, ending]
        assert await nothing_runs(it, session_id)
        assert await it.listed() == ([session_id] if end == "close" else [])


@pytest.mark.hazard("Q9", "P12")
@ENDS
async def test_a_close_or_delete_while_the_session_is_opened_waits_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    gate, opened = Gate(), Journal.open

    async def slow(self: Journal, session_id: str) -> SessionJournal:
        await gate.passed()
        return await opened(self, session_id)

    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        monkeypatch.setattr(Journal, "open", slow)
        load = it.editor.send("session/load", {**SETUP, **named(session_id)})
        await until(lambda: gate.reached)
        ending = it.editor.send(f"session/{end}", named(session_id))
        gate.open()
        await it.editor.result(load)
        assert await it.editor.result(ending) == {}
        assert await nothing_runs(it, session_id)


@ENDS
async def test_a_close_or_delete_while_the_process_starts_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(waits, "DELETE", 0.01)
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        gate = it.agent.stops_at("initialize")
        await it.load(session_id)
        await until(lambda: gate.reached)
        prompt = it.editor.prompt(session_id, "waits")
        result = await it.editor.ask(f"session/{end}", named(session_id))
        assert ("in time" in str(result)) == (end == "delete")
        assert await it.editor.stop_reason(prompt) == "cancelled"
        assert await nothing_runs(it, session_id)


# --- given up --------------------------------------------------------------------------------


@pytest.mark.hazard("Q8", "Q9", "K3")
@ENDS
async def test_one_that_is_cancelled_at_any_moment_is_answered_once_and_closes_all_the_same(
    tmp_path: Path, end: str
) -> None:
    async with world(tmp_path) as it:
        for number in it.moments():
            session_id = await it.new()
            prompt = it.editor.prompt(session_id, "hello")
            _, cancelled = await it.cancelled(number, f"session/{end}", named(session_id))
            await it.editor.stop_reason(prompt)
            if cancelled:  # a close has begun: a load waits for its end, and finds the session
                await until(lambda: not it.in_use)
                if session_id in await it.listed():
                    await it.load(session_id)
                    await it.says(session_id, "again")
                await it.editor.ask("session/delete", named(session_id))
            assert await nothing_runs(it, session_id)
            if not cancelled:
                break
        assert number > 1
