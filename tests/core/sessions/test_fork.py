"""A fork in memory: what is copied, and what is left when it comes to nothing."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.journal import Journal, JournalError, SessionJournal
from acp_bridge.core.protocol import text_chunk
from acp_bridge.core.session.session import Session
from acp_bridge.core.sessions.fork import copy
from acp_bridge.core.wire.jsonrpc import RpcError, encode
from tests.core.sessions.agent import ABLE, Agent, Gate, Json, Process, until
from tests.core.sessions.world import SETUP, World, world

FORKS: Json = {**ABLE, "fork": {}}


def forking(*, in_source: bool = False) -> Agent:
    """An agent that forks; `in_source`: only in the process that has the session."""
    agent = Agent(able=FORKS)

    async def fork(process: Process, params: Json) -> Json:
        here = [link.agent_session_id for link in process.places]
        if in_source and params["sessionId"] not in here:
            raise RpcError(-32602, "no such session here")
        return {"sessionId": f"forked-{len(agent.params('session/fork'))}"}

    agent.script["session/fork"] = fork
    return agent


async def forked(it: World, session_id: str, **given: Any) -> Json:
    it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
    answer: Json = await it.editor.ask("session/fork", {**SETUP, "sessionId": session_id, **given})
    return answer


async def test_transcript_ids_and_settings_are_copied_and_open_cards_end(tmp_path: Path) -> None:
    home = Journal(tmp_path)
    source = await home.create("one", cwd="/w", agent="a", agent_session_id="0")
    target = await home.create("two", cwd="/w", agent="a", agent_session_id="1")
    for update in (
        text_chunk("agent_message_chunk", "said", "m"),
        {"sessionUpdate": "tool_call", "toolCallId": "open", "title": "t"},
        {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "status": "completed"},
    ):
        source.record(0, encode({"update": update}))
    source.add_ids(["m", "open", "c"])
    source.set("chosen", [["session/set_mode", {"modeId": "plan"}, False]])
    source.set("state:usage_update", {"update": {"sessionUpdate": "usage_update"}})
    source.set("state:session_info_update", {"update": {"title": "one"}})
    await copy(source, target)
    pages = [params async for page in target.replay() for params in page]
    original = [params async for page in source.replay() for params in page]
    assert pages[:3] == original
    assert [params["update"].get("status") for params in pages[3:]] == ["failed"]
    assert target.used_ids() == {"m", "open", "c"}
    assert target.get("chosen") == source.get("chosen")
    assert target.get("state:usage_update") == source.get("state:usage_update")
    assert target.get("state:session_info_update") is None
    await home.close()


@pytest.mark.parametrize("words", ["hello", "a long text " * 1000])
async def test_the_words_of_prompts_are_copied_in_their_places(tmp_path: Path, words: str) -> None:
    home = Journal(tmp_path)
    source = await home.create("one", cwd="/w", agent="a", agent_session_id="0")
    target = await home.create("two", cwd="/w", agent="a", agent_session_id="1")
    for prompt_id in ("a", "b"):
        seq = source.accept(prompt_id, {"prompt": [{"type": "text", "text": prompt_id + words}]})
        source.start_turn(seq)
        source.record(seq, encode({"update": text_chunk("agent_message_chunk", "said", prompt_id)}))
        source.end_prompt(seq, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})
    await copy(source, target)
    assert target.prompts() == []
    await target.close()
    await home.delete("one", known=True)  # the copy needs nothing of it
    again = await home.open("two")
    shown = [params["update"] async for page in again.replay() for params in page]
    assert [update["content"]["text"] for update in shown] == [
        *("a" + words, "said"),
        *("b" + words, "said"),
    ]
    await home.close()


@pytest.mark.hazard("Q13")
@pytest.mark.parametrize("which", [0, 1])
async def test_a_fork_that_can_not_be_written_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    async with world(tmp_path, forking()) as it:
        source = await it.new()
        await it.says(source, "hello")
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
        caught_up: list[str] = []

        def catch_up(journal: SessionJournal) -> None:
            caught_up.append(journal.info.session_id)
            if len(caught_up) == which + 1:
                raise JournalError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "catch_up", catch_up)
            error = await it.editor.refused("session/fork", {**SETUP, "sessionId": source})
        assert error.code == -32603
        assert [each == source for each in caught_up] == [True, False][: which + 1]
        assert await it.listed() == [source]


async def test_a_fork_of_a_session_without_a_prompt_is_listed_from_its_first_one_on(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, forking()) as it:
        new = (await forked(it, await it.new()))["sessionId"]
        assert await it.listed() == []
        await it.says(new, "hello")
        assert await it.listed() == [new]


@pytest.mark.hazard("R2")
async def test_a_fork_of_a_session_that_was_set_aside_is_a_new_one(tmp_path: Path) -> None:
    async with world(tmp_path, forking()) as it:
        source = await it.stored()
        new = (await forked(it, source))["sessionId"]
        assert new != source
        assert list(it.sessions.live) == [new]
        await it.says(new, "hello")
        assert await it.listed() == [new]
        assert it.agent.params("session/fork") == []
        await it.load(source)  # it is there still, to be opened anew
        await it.editor.ask("session/delete", {"sessionId": source})
        gone = await it.editor.refused("session/fork", {**SETUP, "sessionId": source})
        assert gone.code == -32002


@pytest.mark.hazard("R8")
async def test_a_session_that_another_agent_has_set_aside_is_not_forked(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        source = await it.stored()
    async with world(tmp_path, forking(), agent_name="other") as it:
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
        error = await it.editor.refused("session/fork", {**SETUP, "sessionId": source})
        assert error.code == -32602


@pytest.mark.hazard("P13")
async def test_a_fork_is_listed_under_an_id_of_ours_and_lives_in_a_process_of_its_own(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, forking(), process_per_session=True) as it:
        source = await it.new()
        await it.says(source, "hello")
        answer = await forked(it, source)
        assert answer["_meta"]["acp_bridge"]["agentSessionId"] == "forked-1"
        new = answer["sessionId"]
        assert sorted(await it.listed()) == sorted([source, new])
        await it.says(new, "and on")
        first, second = it.agent.processes
        assert first.methods() == ["initialize", "session/new", "session/prompt"]
        assert second.methods() == ["initialize", "session/fork", "session/prompt"]
        assert second.params("session/fork")[0]["sessionId"] == first.agent_session_id
        assert second.params("session/prompt")[0]["sessionId"] == "forked-1"


@pytest.mark.parametrize("live", [True, False])
async def test_the_commands_that_an_agent_tells_right_behind_a_fork_are_shown_behind_its_answer(
    tmp_path: Path, live: bool
) -> None:
    agent = forking()
    fork = agent.script["session/fork"]

    async def tells(process: Process, params: Json) -> Any:
        async def behind() -> None:
            command = {"name": "deploy", "description": "ships it"}
            process.shows(
                answer["sessionId"],
                {"sessionUpdate": "available_commands_update", "availableCommands": [command]},
            )

        answer = await fork(process, params)
        it.context.tasks.start_soon(behind)
        return answer

    agent.script["session/fork"] = tells
    async with world(tmp_path, agent) as it:
        if live:
            source = await it.new()
            await it.says(source, "hello")
        else:
            source = await it.stored("hello")
        new = (await forked(it, source))["sessionId"]
        await until(lambda: it.editor.messages[-1].get("method") == "session/update")
        answer, told = it.editor.messages[-2:]
        assert answer["result"]["sessionId"] == told["params"]["sessionId"] == new
        commands = told["params"]["update"]["availableCommands"]
        assert "deploy" in [command["name"] for command in commands]


@pytest.mark.hazard("R9")
async def test_what_the_user_chose_is_in_force_in_a_fork_before_its_first_prompt(
    tmp_path: Path,
) -> None:
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "plan"}]}
    agent = forking()
    agent.script["session/set_mode"] = {}
    agent.script["session/fork"] = {"sessionId": "forked", "modes": modes}
    agent.script["session/new"] = {"sessionId": "agent-1", "modes": modes}
    async with world(tmp_path, agent) as it:
        source = await it.new()
        await it.editor.ask("session/set_mode", {"sessionId": source, "modeId": "plan"})
        await it.says(source, "hello")
        new = (await forked(it, source))["sessionId"]
        await it.says(new, "and on")
        asked = it.agent.processes[0].methods()
        assert asked[-3:] == ["session/fork", "session/set_mode", "session/prompt"]
        answer = await it.editor.ask("session/load", {**SETUP, "sessionId": new})
        assert answer["modes"]["currentModeId"] == "plan"


@pytest.mark.hazard("P12")
async def test_an_agent_that_forks_in_the_sessions_own_process_alone_is_asked_there_from_then_on(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, forking(in_source=True), process_per_session=True) as it:
        source = await it.new()
        await it.says(source, "hello")
        new = (await forked(it, source))["sessionId"]
        await it.says(new, "and on")
        first, second = it.agent.processes
        assert first.methods()[-2:] == ["session/fork", "session/close"]
        assert first.params("session/close") == [{"sessionId": "forked-2"}]
        asked = ["initialize", "session/fork", "session/resume", "session/prompt"]
        assert second.methods() == asked
        assert second.params("session/resume")[0]["sessionId"] == "forked-2"
        again = (await forked(it, source))["sessionId"]
        await it.says(again, "and on")
        assert it.agent.processes[2].methods() == ["initialize", "session/resume", "session/prompt"]


@pytest.mark.hazard("P12")
async def test_while_a_turn_runs_the_process_that_has_the_session_forks_it(tmp_path: Path) -> None:
    async with world(tmp_path, forking()) as it:
        source = await it.new()
        await it.says(source, "hello")
        gate = it.agent.stops_at("session/prompt")
        runs = it.editor.prompt(source, "go")
        await until(lambda: gate.reached)
        new = (await forked(it, source))["sessionId"]
        assert it.agent.processes[0].methods()[-2:] == ["session/fork", "session/close"]
        gate.open()
        await it.editor.stop_reason(runs)
        await it.says(new, "and on")
        assert it.agent.processes[1].methods()[1:] == ["session/resume", "session/prompt"]


async def test_a_turn_that_begins_while_a_process_starts_for_the_fork_is_not_forked_beside(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, forking(), process_per_session=True) as it:
        source = await it.new()
        await it.says(source, "hello")
        starts, turn = it.agent.stops_at("initialize"), it.agent.stops_at("session/prompt")
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
        asked = it.editor.send("session/fork", {**SETUP, "sessionId": source})
        await until(lambda: starts.reached)
        runs = it.editor.prompt(source, "go")
        await until(lambda: turn.reached)
        starts.open()
        await it.editor.result(asked)
        assert "session/fork" not in it.agent.processes[1].methods()
        turn.open()
        await it.editor.stop_reason(runs)


async def test_a_process_that_dies_of_a_fork_costs_nothing_but_itself(tmp_path: Path) -> None:
    agent = forking()
    fork = agent.script["session/fork"]

    async def dies(process: Process, params: Json) -> Any:
        if params["sessionId"] != process.agent_session_id:
            process.dies()
        return await fork(process, params)

    agent.script["session/fork"] = dies
    async with world(tmp_path, agent, process_per_session=True) as it:
        source = await it.new()
        await it.says(source, "hello")
        new = (await forked(it, source))["sessionId"]
        await it.says(new, "and on")
        assert agent.living[0].methods()[-2:] == ["session/fork", "session/close"]
        await it.says(source, "and here")


@pytest.mark.hazard("P12")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("alone", [False, True])
async def test_a_process_that_ends_with_its_fork_is_dead_before_another_has_the_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, alone: bool
) -> None:
    async with world(tmp_path, forking(), process_per_session=alone) as it:
        source = await it.new()
        await it.says(source, "hello")
        it.agent.dying = Gate()

        async def ends(*journals: SessionJournal) -> None:
            it.agent.processes[alone].exits()
            await copy(*journals)

        def ends_then(session: Session) -> None:
            it.agent.processes[alone].exits()
            wake(session)

        wake = Session.wake
        with monkeypatch.context() as patch:
            if kept:  # else the fork is being kept
                patch.setattr(Session, "wake", ends_then)
            else:
                patch.setattr("acp_bridge.core.sessions.fork.copy", ends)
            new = (await forked(it, source))["sessionId"]
        goes_on = it.editor.prompt(new, "and on")
        await until(lambda: it.agent.dying.reached)
        assert it.agent.params("session/resume") == []
        it.agent.dying.open()
        await it.editor.stop_reason(goes_on)
        asked = ["initialize", "session/resume", "session/prompt"]
        assert it.agent.processes[alone + 1].methods() == asked


async def test_a_process_that_does_not_start_for_a_fork_is_tried_again_with_the_next(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, forking(), process_per_session=True) as it:
        source = await it.new()
        await it.says(source, "hello")
        it.agent.unstartable = StartFailed("too many files", permanent=False)
        await forked(it, source)
        it.agent.unstartable = None
        new = (await forked(it, source))["sessionId"]
        await it.says(new, "and on")
        assert any("session/fork" in each.methods() for each in it.agent.processes[1:])


@pytest.mark.hazard("R16")
async def test_a_fork_is_no_reload_of_a_session_and_lets_nothing_sleep(tmp_path: Path) -> None:
    agent = forking()
    agent.script["initialize"]["agentInfo"] = {"name": "x", "version": "1"}
    async with world(tmp_path, agent, process_per_session=True) as it:
        source = await it.new()
        await it.says(source, "hello")
        new = (await forked(it, source))["sessionId"]
        await it.says(new, "and on")
        second = it.agent.processes[1]
        assert not await it.context.reloads.seen(second.link)
        second.dies()
        await it.says(new, "and on")
        while not await it.context.reloads.seen(second.link):
            await until(lambda: True)


@pytest.mark.hazard("Q9")
async def test_a_fork_that_is_cancelled_at_any_moment_is_answered_once_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, forking()) as it:
        source = await it.new()
        await it.says(source, "hello")
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
        for at in it.moments():
            params = {**SETUP, "sessionId": source}
            answer, cancelled = await it.cancelled(at, "session/fork", params)
            if "result" in answer:
                await it.editor.ask("session/delete", {"sessionId": answer["result"]["sessionId"]})
            await until(lambda: len(it.agent.living) <= 2)
            assert list(it.sessions.live) == await it.listed() == [source]
            assert len(list((tmp_path / "sessions").glob("*.db"))) == 1
            if not cancelled:
                break
        await it.says(source, "and on")


@pytest.mark.hazard("Q9")
async def test_a_fork_whose_journal_fails_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, forking()) as it:
        source = await it.new()
        await it.says(source, "hello")
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}

        def broken(journal: SessionJournal, ids: object) -> None:
            raise JournalError("broken")

        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "add_ids", broken)
            error = await it.editor.refused("session/fork", {**SETUP, "sessionId": source})
        assert error.code == -32603
        assert await it.listed() == [source]
        assert len(list((tmp_path / "sessions").glob("*.db"))) == 1
        await it.says(source, "and on")
        assert len(it.agent.living) == 1  # nobody has the fork


@pytest.mark.parametrize("result", [None, {}, {"sessionId": [5]}])
async def test_an_agent_that_names_no_fork_has_made_none(tmp_path: Path, result: Any) -> None:
    async with world(tmp_path, forking()) as it:
        it.agent.script["session/fork"] = result
        source = await it.new()
        await it.says(source, "hello")
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
        error = await it.editor.refused("session/fork", {**SETUP, "sessionId": source})
        assert error.code == -32603
        assert await it.listed() == [source]


async def test_a_fork_of_an_agent_that_can_not_is_an_unknown_method(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        error = await it.editor.refused("session/fork", {})
        assert error.code == -32601
