"""How a bridge ends: when its client leaves or goes deaf, at a signal, in the middle of things."""

import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import Journal
from acp_bridge.core.journal.connection import in_thread
from acp_bridge.core.journal.history import read_entries
from acp_bridge.core.runtime import waits
from tests.core.sessions.agent import Agent, Gate, until
from tests.core.sessions.bench import HELLO, bench
from tests.core.sessions.world import SETUP, interrupted


@pytest.mark.hazard("P2.2", "Q6.1", "R12.1")
@pytest.mark.parametrize("how", ["leaves", "deaf", "signal"])
async def test_at_the_end_turns_are_interrupted_what_waits_is_left_over_and_the_agent_may_close(
    tmp_path: Path, how: str
) -> None:
    async with bench(tmp_path, drain_timeout=60, close_grace=7) as it:
        session_id, idle = await it.new(), await it.new()
        turn = it.agent.stops_at("session/prompt")
        prompts = [it.editor.prompt(session_id, text) for text in ("runs", "waits")]
        await until(lambda: turn.reached)
        it.agent.script["session/cancel"] = None
        if how == "leaves":
            it.editor.leaves()
        elif how == "deaf":
            it.editor.way.broken.set()
        else:
            await until(lambda: signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: it.agent.params("session/cancel"))
        turn.open()  # it heeds the cancel
        await it.ended.wait()
        assert [process.grace for process in it.agent.processes] == [7]
        assert [it.editor.answers(prompt) for prompt in prompts] == [[], []]
        assert it.editor.way.ended[-1] == "closed"
    assert [name for name in os.listdir(tmp_path) if name.endswith("-wal")] == []
    async with bench(tmp_path) as it:
        held = await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        assert held["_meta"]["acp_bridge"]["held"] == [[{"type": "text", "text": "waits"}]]
        shown = it.editor.texts(session_id)
        assert shown[0] == "runs"
        assert "Interrupted" in "".join(shown)
        await it.editor.ask("session/load", {**SETUP, "sessionId": idle})
        assert it.editor.texts(idle) == []


def reading_stops(monkeypatch: pytest.MonkeyPatch) -> tuple[anyio.Event, anyio.Event]:
    """Have the reading of a session wait; return what is set then, and what lets it go on."""
    reached, may_read = anyio.Event(), anyio.Event()

    async def held(function: Any, *args: Any) -> Any:
        if function is read_entries:
            reached.set()
            await may_read.wait()
        return await in_thread(function, *args)

    monkeypatch.setattr("acp_bridge.core.journal.session.in_thread", held)
    return reached, may_read


@pytest.mark.hazard("P2", "R1")
@pytest.mark.parametrize("is_read", [True, False])
async def test_a_load_that_comes_while_the_bridge_ends_is_given_up_as_those_before_it_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    async with bench(tmp_path, drain_timeout=60, keep=60) as it:
        ends_first, runs = await it.new(), await it.new()
        for session_id in (ends_first, runs):
            await it.editor.stop_reason(it.editor.prompt(session_id, "before"))
        other, turn = await it.attached(ends_first), it.agent.stops_at("session/prompt")
        it.editor.prompt(runs, "runs")
        await until(lambda: turn.reached)
        it.agent.script["session/cancel"] = None
        params = {**SETUP, "sessionId": ends_first}
        reached, may_read = reading_stops(monkeypatch)
        end, closed = it.bridge._sessions.end, it.bridge._sessions.live[ends_first].closed

        async def ends(grace: float) -> None:
            async with anyio.create_task_group() as tasks:
                if is_read:
                    load = other.send("session/load", params)
                    await reached.wait()
                tasks.start_soon(end, grace)
                await closed.wait()
                if not is_read:
                    load = other.send("session/load", params)
                may_read.set()
                codes.append((await other.refusal(load)).code)
                turn.open()

        codes: list[int] = []
        monkeypatch.setattr(it.bridge._sessions, "end", ends)
        it.bridge._ended.set()
        await it.ended.wait()
    assert codes == [-32800]


@pytest.mark.hazard("P2")
async def test_the_process_that_waits_is_closed_at_the_end(tmp_path: Path) -> None:
    async with bench(tmp_path, close_grace=7) as it:
        it.editor.leaves()
        await it.ended.wait()
        assert [process.grace for process in it.agent.processes] == [7]


@pytest.mark.hazard("P2")
async def test_a_tree_that_does_not_die_holds_up_the_end_no_longer_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "END", 0.01)
    async with bench(tmp_path) as it:
        await it.new()
        it.agent.dying = Gate()
        it.editor.leaves()
        await it.ended.wait()
        it.agent.dying.open()


@pytest.mark.hazard("P2", "R3")
@pytest.mark.parametrize("what", ["initialize", "new", "load", "resume", "import"])
async def test_an_end_at_any_moment_of_an_opening_leaves_no_process_and_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(waits, "UNDO", 1)  # shorter than the test may take, if all of it passes
    async with bench(tmp_path) as it:
        ours = await it.new()
        await it.editor.stop_reason(it.editor.prompt(ours, "hello"))
    for number in count():
        agent, left = Agent(), list[ClientRequest]()
        agent.rows = [{"sessionId": "theirs", "cwd": "/w"}]
        async with bench(tmp_path, agent, initialized=what != "initialize") as it:
            method = "session/load" if what == "import" else f"session/{what}"
            given = {**SETUP, "sessionId": "theirs" if what == "import" else ours}

            def leave(request: ClientRequest, left: list[ClientRequest] = left) -> None:
                left.append(request)
                it.editor.leaves()

            around = interrupted(number, leave)
            if what == "initialize":
                method, given = what, HELLO
                introduction = it.bridge._introduction
                monkeypatch.setattr(introduction, "answer", around(introduction.answer))
            else:
                it.bridge.slow[method] = around(it.bridge.slow[method])
            request = it.editor.send(method, SETUP if what == "new" else given)
            await until(lambda: left or it.editor.answers(request))  # noqa: B023
        journal = Journal(tmp_path)
        known = [row.session_id for row in (await journal.list())[0]]
        if not it.editor.answers(request):
            assert "theirs" not in known
        await journal.delete("theirs", known=False)
        await journal.close()
        assert ours in known
        if not left:
            break
    assert number > (1 if what == "initialize" else 3)


@pytest.mark.hazard("P2", "R3")
async def test_an_import_that_is_cut_off_when_all_else_has_ended_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, gate = Agent(), Gate()
    agent.rows = [{"sessionId": "theirs", "cwd": "/w"}]
    agent.stops_at("session/load")
    create, close = Journal.create, Journal.close

    async def slow(self: Journal, *args: Any, **given: Any) -> Any:
        await gate.passed()
        return await create(self, *args, **given)

    async def late(self: Journal) -> None:
        """Close what the bridge has open, when all live sessions have ended."""
        gate.open()
        await close(self)

    with monkeypatch.context() as patch:
        patch.setattr(waits, "UNDO", 1)
        patch.setattr(Journal, "create", slow)
        patch.setattr(Journal, "close", late)
        async with bench(tmp_path, agent) as it:
            it.editor.send("session/load", {**SETUP, "sessionId": "theirs"})
            await until(lambda: gate.reached)
    journal = Journal(tmp_path)
    assert await journal.list() == ([], None)
    await journal.close()


@pytest.mark.hazard("V7", "Q9")
@pytest.mark.parametrize("loads", [False, True])
async def test_a_client_that_is_gone_is_not_told_the_end_of_a_turn_that_it_was_not_shown(
    tmp_path: Path, loads: bool
) -> None:
    """What is still on its way to it may reach it while the turn ends without it."""
    async with bench(tmp_path, keep=60) as it:
        session_id = await it.new()
        gate = it.agent.stops_at("session/prompt")
        prompt = it.editor.prompt(session_id, "go")
        await until(lambda: gate.reached)
        other = await it.attached(session_id)
        if loads:  # the answer waits behind a replay
            it.editor.send("session/load", {**SETUP, "sessionId": session_id})
        it.editor.leaves()
        await until(lambda: it.editor.way.ended)
        gate.open()
        await until(lambda: "echo go" in other.texts(session_id))
        await other.handled()
        assert it.editor.answers(prompt) == []
        it.bridge._ended.set()


@pytest.mark.hazard("V7.1", "Q1.1")
async def test_a_prompt_that_fails_when_its_client_is_gone_says_so_in_the_session(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, keep=60) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        gone = await it.attached(session_id)
        (process,) = it.agent.processes
        gate = it.agent.stops_at("session/resume")
        process.dies()
        gone.prompt(session_id, "nobody hears")
        await until(lambda: gate.reached)
        gone.leaves()
        await gone.parted.wait()
        it.agent.unstartable = StartFailed("it is not there", permanent=True)
        it.agent.living[-1].dies()
        await until(lambda: any("was not run" in text for text in other.texts(session_id)))
        words, said = other.texts(session_id)[-2:]
        assert words == "nobody hears"
        assert "it is not there" in said
        it.bridge._ended.set()


@pytest.mark.hazard("V7", "R12")
async def test_left_over_prompts_that_can_not_run_stay_left_over_though_who_ran_them_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path, drain_timeout=0) as it:
        session_id = await it.new()
        gate = it.agent.stops_at("session/prompt")
        for text in ("runs", "waits"):
            it.editor.prompt(session_id, text)
        await until(lambda: gate.reached)
        it.editor.leaves()
        await it.ended.wait()
    async with bench(tmp_path, keep=60) as it:
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        gone = await it.attached(session_id)
        gate = it.agent.stops_at("session/resume")
        it.agent.living[-1].dies()
        gone.prompt(session_id, "/queue run")
        await until(lambda: gate.reached)
        gone.leaves()
        await gone.parted.wait()
        it.agent.unstartable = StartFailed("it is not there", permanent=True)
        it.agent.living[-1].dies()
        await until(lambda: not it.bridge._sessions.live[session_id].now.unanswered)
        await it.editor.stop_reason(it.editor.prompt(session_id, "/queue"))
        assert "Left over since a restart:\n\n- 2: waits" in it.editor.texts(session_id)[-1]
        it.bridge._ended.set()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.hazard("K6")
async def test_a_session_whose_deletion_makes_the_bridges_own_client_leave_is_deleted(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "hello"))
        command = await it.joined()
        it.agent.dying = dying = Gate()
        deletion = command.send("session/delete", {"sessionId": session_id})
        await until(lambda: dying.reached)
        it.editor.leaves()
        await until(lambda: it.bridge._ended.is_set())
        dying.open()
        await it.ended.wait()
        assert command.answers(deletion) == [{"id": deletion, "jsonrpc": "2.0", "result": {}}]
    assert [name for name in os.listdir(tmp_path / "sessions") if session_id in name] == []
