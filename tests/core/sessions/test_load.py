"""`session/load` and `resume` of a session that is live, closing, stored, held elsewhere or not."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.journal import Journal, JournalError, SessionJournal
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import ABLE, Agent, Gate, Json, until
from tests.core.sessions.world import CWD, SETUP, world

WAYS = pytest.mark.parametrize("how", ["load", "resume"])


def about(session_id: str, **more: Any) -> Json:
    return {**SETUP, "sessionId": session_id, **more}


# --- stored ----------------------------------------------------------------------------------


@pytest.mark.hazard("R1")
async def test_a_stored_session_is_shown_then_answered_and_given_to_a_process(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        it.agent.script["session/new"] = {"sessionId": "0", "modes": {"currentModeId": "plan"}}
        session_id = await it.stored("hello")
        result = await it.load(session_id)
        assert result == {
            "modes": {"currentModeId": "plan"},
            "_meta": {"acp_bridge": {"agentSessionId": "0"}},
        }
        assert "result" in it.editor.messages[-1]  # nothing of the transcript comes behind it
        assert it.editor.texts(session_id) == ["hello", "echo hello"]
        await until(lambda: it.agent.params("session/resume"))
        assert it.agent.params("session/resume")[0]["sessionId"] == "0"
        await it.says(session_id, "again")
        assert it.editor.texts(session_id)[2:] == ["echo again"]


@pytest.mark.hazard("R1.5")
async def test_a_resume_shows_nothing_of_what_was_said(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        await it.load(session_id, "resume")
        assert it.editor.texts(session_id) == []
        await it.says(session_id, "again")
        assert it.editor.texts(session_id) == ["echo again"]


async def test_the_process_that_waits_is_given_the_session_that_is_loaded(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        waits = await it.pool.ready()
        await it.load(session_id)
        await until(lambda: it.sessions.live[session_id].link)
        assert it.sessions.live[session_id].link is waits
        assert it.pool.link is None


@pytest.mark.hazard("Q8", "Q9", "K3")
async def test_a_load_that_is_cancelled_at_any_moment_is_answered_once_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        for number in it.moments():
            _, cancelled = await it.cancelled(number, "session/load", about(session_id))
            assert await it.is_free(session_id) == (session_id not in it.sessions.live)
            it.editor.out.take()
            await it.load(session_id)
            assert it.editor.texts(session_id) == ["hello", "echo hello"]
            await it.editor.ask("session/close", {"sessionId": session_id})
            assert await it.is_free(session_id)
            if not cancelled:
                break
        assert number > 10


@pytest.mark.hazard("Q8", "Q9", "K3")
async def test_one_without_a_prompt_can_be_loaded_whenever_a_load_before_was_cancelled(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        for number in it.moments():
            await it.editor.ask("session/close", {"sessionId": session_id})
            assert await it.is_free(session_id)
            _, cancelled = await it.cancelled(number, "session/load", about(session_id))
            await it.load(session_id)
            if not cancelled:
                break
        assert number > 10


@pytest.mark.hazard("Q8", "R3.2")
async def test_a_session_goes_on_after_a_load_that_was_cancelled_or_that_the_journal_broke_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = SessionJournal.replay

    async def broken(self: SessionJournal, **more: Any) -> AsyncIterator[list[Json]]:
        async for page in replay(self, **more):
            yield page
            raise JournalError("broken")

    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "replay", broken)
            error = await it.editor.refused("session/load", about(session_id))
            assert error.code == -32603
            assert "broken" not in error.message
        it.editor.out.take()
        # It was opened; a prompt finds it, and so does another load.
        await it.says(session_id, "in between")
        assert it.editor.texts(session_id) == ["echo in between"]
        await it.load(session_id)
        assert it.editor.texts(session_id)[-1] == "echo in between"


# --- live ------------------------------------------------------------------------------------


@pytest.mark.hazard("R4.2", "P12.1")
@WAYS
async def test_a_live_session_keeps_its_process_and_its_turn(tmp_path: Path, how: str) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        gate = it.agent.stops_at("session/prompt")
        prompt = it.editor.prompt(session_id, "hello")
        await until(lambda: gate.reached)
        await it.load(session_id, how)
        assert it.editor.texts(session_id) == (["hello"] if how == "load" else [])
        gate.open()
        assert await it.editor.stop_reason(prompt) == "end_turn"
        assert it.editor.texts(session_id)[-1] == "echo hello"
        assert len(it.agent.processes) == 1


@pytest.mark.hazard("R5.1", "R5.3")
@WAYS
async def test_a_live_session_is_moved_to_other_roots_and_servers_but_not_to_another_folder(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        error = await it.editor.refused(f"session/{how}", about(session_id, cwd="/elsewhere"))
        assert (error.code, error.message[:5]) == (-32602, "cwd: ")
        await it.says(session_id, "one")
        same: list[Json] = [about(session_id), about(session_id, additionalDirectories=[])]
        for given in same:
            await it.editor.ask(f"session/{how}", given)
        await it.says(session_id, "two")
        assert len(it.agent.processes) == 1
        moved = about(session_id, additionalDirectories=["/roots"], mcpServers=[{"name": "s"}])
        await it.editor.ask(f"session/{how}", moved)
        await it.says(session_id, "three")
        (given,) = it.agent.params("session/resume")
        assert given == {**moved, "sessionId": "agent-1"}
        assert len(it.agent.living) == 1


@pytest.mark.hazard("R5.2")
@pytest.mark.parametrize(
    "given", [{"additionalDirectories": ["/r"]}, {"mcpServers": [{}]}], ids=str
)
async def test_other_roots_alone_or_other_servers_alone_hold_for_the_next_prompt(
    tmp_path: Path, given: Json
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        await it.editor.ask("session/load", about(session_id, **given))
        await it.says(session_id, "hello")
        (resumed,) = it.agent.params("session/resume")
        assert resumed == {**about("agent-1"), **given}


# --- closing ---------------------------------------------------------------------------------


@pytest.mark.hazard("R4", "P12.2")
@WAYS
async def test_a_session_that_is_closing_is_opened_again_when_its_process_is_dead(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        await it.says(session_id, "hello")
        (first,) = it.agent.processes
        gate = it.agent.dying = Gate()
        close = it.editor.send("session/close", {"sessionId": session_id})
        await until(lambda: gate.reached)
        load = it.editor.send(f"session/{how}", about(session_id))
        assert it.editor.answers(close) == it.editor.answers(load) == []
        gate.open()
        assert await it.editor.result(close) == {}
        await it.editor.result(load)
        assert first.dead.is_set()
        await it.says(session_id, "again")


async def test_a_session_whose_close_was_given_up_is_opened_again_by_a_load(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        await it.says(session_id, "hello")
        gate = it.agent.dying = Gate()
        close = it.editor.send("session/close", {"sessionId": session_id})
        await until(lambda: gate.reached)
        it.editor.cancel_request(close)
        assert (await it.editor.refusal(close)).code == -32800
        loads = [it.editor.send("session/load", about(session_id)) for _ in range(2)]
        it.editor.cancel_request(loads[0])
        assert (await it.editor.refusal(loads[0])).code == -32800
        gate.open()
        await it.editor.result(loads[1])
        await it.says(session_id, "again")


# --- not here --------------------------------------------------------------------------------


@pytest.mark.hazard("R2.1")
@WAYS
async def test_a_session_that_nobody_knows_is_an_error_and_leaves_nothing(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path) as it:
        it.agent.rows = [{"sessionId": "another", "cwd": "/w"}]
        for _ in range(2):
            error = await it.editor.refused(f"session/{how}", about("nobody's"))
            assert (error.code, error.message) == (-32002, "unknown session")
        assert it.sessions.live == {}
        assert await it.listed() == []
        # The process that was asked is there for the next session.
        await it.new()
        assert len(it.agent.processes) == 1


@pytest.mark.hazard("R8.2", "R3")
@WAYS
async def test_a_session_of_another_agent_is_refused_by_name(tmp_path: Path, how: str) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
    async with world(tmp_path, agent_name="other") as it:
        error = await it.editor.refused(f"session/{how}", about(session_id))
        assert error.code == -32602
        assert "belongs to the agent 'agent', this is 'other'" in error.message
        assert it.sessions.live == {}
        assert it.agent.processes == []
        assert await it.is_free(session_id)


@pytest.mark.hazard("K3.1", "P12")
@WAYS
async def test_a_session_that_another_bridge_has_is_refused_until_that_one_lets_go(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path) as ours, world(tmp_path) as theirs:
        session_id = await theirs.stored("hello")
        await theirs.load(session_id)
        error = await ours.editor.refused(f"session/{how}", about(session_id))
        assert error.code == -32600
        assert "open in another acp-bridge" in error.message
        assert ours.sessions.live == {}
        # It still is theirs.
        await theirs.says(session_id, "theirs")
        await theirs.editor.ask("session/close", {"sessionId": session_id})
        await ours.load(session_id, how)
        await ours.says(session_id, "ours")
        error = await theirs.editor.refused("session/load", about(session_id))
        assert error.code == -32600


@pytest.mark.hazard("K3.1", "P12")
async def test_a_session_is_locked_until_the_process_that_had_it_is_dead(tmp_path: Path) -> None:
    async with world(tmp_path) as ours, world(tmp_path) as theirs:
        session_id = await theirs.stored("hello")
        await theirs.load(session_id)
        await until(lambda: theirs.agent.params("session/resume"))
        theirs.agent.dying = Gate()
        close = theirs.editor.send("session/close", {"sessionId": session_id})
        await until(lambda: theirs.agent.dying.reached)
        assert (await ours.editor.refused("session/load", about(session_id))).code == -32600
        theirs.agent.dying.open()
        await theirs.editor.result(close)
        await ours.load(session_id)


# --- one at a time ---------------------------------------------------------------------------


@pytest.mark.hazard("P11.2", "P6")
async def test_a_load_that_waits_holds_up_loads_of_the_same_session_and_no_others(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        one, two = await it.stored("one"), await it.stored("two")
        await it.load(one)
        await until(lambda: it.sessions.live[one].link)
        gate = it.agent.dying = Gate()
        close = it.editor.send("session/close", {"sessionId": one})
        await until(lambda: gate.reached)
        waiting = [it.editor.send("session/load", about(one)) for _ in range(3)]
        it.editor.cancel_request(waiting[1])
        await it.load(two)
        await it.says(two, "meanwhile")
        assert (await it.editor.refusal(waiting[1])).code == -32800
        assert it.editor.answers(waiting[0]) == it.editor.answers(waiting[2]) == []
        gate.open()
        await it.editor.result(close)
        for request in (waiting[0], waiting[2]):
            await it.editor.result(request)
        assert it.editor.texts(one) == ["one", "echo one"] * 3
        assert len(it.sessions._busy) == 0


@pytest.mark.hazard("P12")
async def test_a_load_that_comes_when_another_has_waited_its_turn_waits_for_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, opened = Gate(), Journal.open

    async def slow(self: Journal, session_id: str) -> SessionJournal:
        await opening.passed()
        return await opened(self, session_id)

    async with world(tmp_path) as it:
        session_id = await it.new()
        await it.says(session_id, "one")
        dying = it.agent.dying = Gate()
        close = it.editor.send("session/close", {"sessionId": session_id})
        await until(lambda: dying.reached)
        monkeypatch.setattr(Journal, "open", slow)
        loads = [it.editor.send("session/load", about(session_id))]
        dying.open()
        await it.editor.result(close)
        await until(lambda: opening.reached)
        loads.append(it.editor.send("session/load", about(session_id)))
        await anyio.wait_all_tasks_blocked()
        assert opening.reached == 1
        opening.open()
        for load in loads:
            await it.editor.result(load)
        assert opening.reached == 1


@pytest.mark.hazard("P12.1")
async def test_loads_at_once_of_one_session_open_it_once(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored("hello")
        processes = len(it.agent.processes)
        loads = [it.editor.send("session/load", about(session_id)) for _ in range(3)]
        for load in loads:
            await it.editor.result(load)
        assert it.editor.texts(session_id) == ["hello", "echo hello"] * 3
        await it.says(session_id, "again")
        assert len(it.agent.processes) == processes + 1


@pytest.mark.hazard("R3")
async def test_a_session_that_the_agent_does_not_take_back_is_shown_and_its_prompts_say_why(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, Agent(able={**ABLE, "resume": None})) as it:
        session_id = await it.stored("hello")
        it.agent.script["session/load"] = RpcError(-32002, "lost it")
        await it.load(session_id)
        assert it.editor.texts(session_id)[:2] == ["hello", "echo hello"]
        prompt = it.editor.prompt(session_id, "again")
        assert "lost it" in (await it.editor.refusal(prompt)).message


@pytest.mark.hazard("R2")
async def test_a_session_that_another_bridge_makes_anew_and_leaves_meanwhile_is_opened(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.stored()
        gate = it.agent.stops_at("session/new")
        asked = it.editor.send("session/load", {**SETUP, "sessionId": session_id})
        await until(lambda: gate.reached)
        other = Journal(tmp_path)  # of a bridge that is killed after that
        await other.create(session_id, cwd=CWD, agent="agent", agent_session_id="agent-9")
        await other.close()
        gate.open()
        await until(lambda: it.editor.answers(asked))
        (answer,) = it.editor.answers(asked)
        assert "result" in answer
        await it.says(session_id, "hello")
        assert await it.listed() == [session_id]
