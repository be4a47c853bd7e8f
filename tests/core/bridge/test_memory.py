"""What becomes of the agent's own memory at the user's word, also in the bridges that follow."""

from pathlib import Path

import pytest

from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.session import SessionJournal
from acp_bridge.core.protocol import text_chunk
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.journals import failing
from tests.core.sessions.agent import Agent, Json, Process
from tests.core.sessions.bench import Bench, bench
from tests.core.sessions.world import SETUP

pytestmark = pytest.mark.hazard("R15")
NEW, RESUME, LOAD = WAYS = ("session/new", "session/resume", "session/load")
NOT_LOADED = RpcError(-32603, "no")


async def says(it: Bench, session_id: str, text: str) -> None:
    """Let a prompt, or a command, run to its end, which is a good one."""
    assert await it.editor.stop_reason(it.editor.prompt(session_id, text)) == "end_turn"


def carried(agent: Agent) -> str | None:
    """Return the transcript that the agent got with the last prompt, or None."""
    first = agent.params("session/prompt")[-1]["prompt"][0]["text"]
    return str(first) if first.startswith(notices.TRANSCRIPT_WHOLE) else None


def opened(process: Process) -> list[str]:
    """Return how a process was given the session: each way that was tried."""
    return [each for each in process.methods() if each in WAYS]


async def lost(it: Bench, *told: Json) -> str:
    """Return a session of which a turn has ended, and that the agent doesn't load any more.

    `told`: what the agent told in it.
    """
    session_id = await it.new()
    for update in told:
        it.agent.living[0].shows("agent-1", update)
    await says(it, session_id, "hello")
    it.agent.script[RESUME] = it.agent.script[LOAD] = NOT_LOADED
    it.agent.living[0].dies()
    error = await it.editor.refusal(it.editor.prompt(session_id, "still there?"))
    assert "queue memory restore`" in error.message
    return session_id


async def dies_in_turn(it: Bench, session_id: str) -> Process:
    """Let the agent die while a prompt runs; returns the process that did."""
    answers, died = it.agent.script["session/prompt"], list[Process]()

    async def dies(process: Process, params: Json) -> Json:
        died.append(process)
        process.dies()
        return {}

    it.agent.script["session/prompt"] = dies
    await it.editor.refusal(it.editor.prompt(session_id, "and die"))
    it.agent.script["session/prompt"] = answers
    return died[0]


async def loads(it: Bench, session_id: str) -> None:
    await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})


@pytest.mark.hazard("R15.4")
@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("how", ["new", "restore"])
async def test_a_word_to_forget_holds_unasked_and_one_that_can_not_be_kept_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, written: bool
) -> None:
    def broken(journal: SessionJournal, key: str, value: object) -> None:
        raise JournalError("broken")

    async with bench(tmp_path) as it:
        session_id = await it.new()
        await says(it, session_id, "hi")
        if not written:
            monkeypatch.setattr(SessionJournal, "set", broken)
        await says(it, session_id, f"/queue memory {how}")
        assert (notices.MEMORY_STOPPED in it.editor.texts(session_id)[-1]) is not written
        monkeypatch.undo()
        await says(it, session_id, "and now?")
        assert [len(it.agent.params(each)) for each in WAYS] == [2 if written else 1, 0, 0]
        assert (carried(it.agent) is not None) is (written and how == "restore")


@pytest.mark.hazard("R15.2")
async def test_a_session_that_was_given_up_is_asked_for_no_more_also_by_the_next_bridge(
    tmp_path: Path,
) -> None:
    agent = Agent()
    async with bench(tmp_path, agent) as it:
        session_id = await lost(it)
        await says(it, session_id, "/queue memory new")
        assert notices.MEMORY_NEW in it.editor.texts(session_id)[-1]
    async with bench(tmp_path, agent) as it:
        await loads(it, session_id)
        assert opened(await dies_in_turn(it, session_id)) == [NEW]
        assert notices.FORGOT_YOUNG not in str(it.editor.messages)  # it was the user's word
        # The new one has ended no turn of its own, and may be forgotten like any young one.
        await says(it, session_id, "again")
        assert opened(agent.living[-1]) == [RESUME, LOAD, NEW]
        assert carried(agent) is None
        agent.living[-1].dies()
        error = await it.editor.refusal(it.editor.prompt(session_id, "there?"))
        assert "would not load the session" in error.message


async def test_a_word_to_forget_is_the_agents_own_command_but_while_it_loads_no_session(
    tmp_path: Path,
) -> None:
    commands = [{"name": "queue", "description": "mine"}]
    told = {"sessionUpdate": "available_commands_update", "availableCommands": commands}

    def asked(agent: Agent) -> bool:
        return "/queue memory new" in str(agent.params("session/prompt")[-1])

    async with bench(tmp_path) as it:
        session_id = await lost(it, told)
        assert asked(it.agent) is False
        await says(it, session_id, "/queue memory new")
        assert asked(it.agent) is False
        await says(it, session_id, "and on")
        await says(it, session_id, "/queue memory new")
        assert asked(it.agent) is True


@pytest.mark.hazard("Q13")
async def test_a_word_that_can_not_be_written_yet_holds_and_is_kept(tmp_path: Path) -> None:
    agent = Agent()
    async with bench(tmp_path, agent) as it:
        session_id = await lost(it)
        journal = it.bridge._sessions.live[session_id].journal
        with failing(journal, "INSERT ON settings"):
            await says(it, session_id, "/queue memory restore")
            assert notices.MEMORY_RESTORED in "".join(it.editor.texts(session_id))
            assert journal.behind
    async with bench(tmp_path, agent) as it:
        await loads(it, session_id)
        await says(it, session_id, "and on")
        assert opened(agent.living[-1]) == [NEW]
        assert carried(agent)


@pytest.mark.hazard("R15.3")
async def test_the_transcript_waits_for_a_prompt_that_can_carry_it_and_goes_with_no_other(
    tmp_path: Path,
) -> None:
    agent = Agent()
    async with bench(tmp_path, agent) as it:
        session_id = await lost(it)
        await says(it, session_id, "/queue memory restore")
        await says(it, session_id, "/compact")  # a command of the agent's must stand first
        assert carried(agent) is None
    agent.script[RESUME] = {}
    async with bench(tmp_path, agent) as it:
        await loads(it, session_id)
        await says(it, session_id, "and on")
        assert carried(agent)
        await says(it, session_id, "more")
        assert carried(agent) is None
    async with bench(tmp_path, agent) as it:
        await loads(it, session_id)
        await says(it, session_id, "and more")
        assert carried(agent) is None


@pytest.mark.hazard("R15.3")
async def test_an_agent_that_loads_nothing_is_told_the_transcript_once(tmp_path: Path) -> None:
    agent = Agent(loads=False, able={})
    async with bench(tmp_path, agent) as it:
        session_id = await it.new()
        await says(it, session_id, "/queue memory restore")
        await says(it, session_id, "and on")
        assert carried(agent)
        agent.living[-1].dies()
        await says(it, session_id, "more")
        assert opened(agent.living[-1]) == [NEW]
        assert carried(agent) is None


async def test_a_transcript_has_what_both_said_and_which_tools_ran_and_no_word_of_the_bridge(
    tmp_path: Path,
) -> None:
    async def answers(process: Process, params: Json) -> Json:
        for update in (
            text_chunk("agent_thought_chunk", "hm", "t"),
            {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "read a.py"},
            {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"},
            {"sessionUpdate": "plan", "entries": []},
            text_chunk("agent_message_chunk", "done", "m"),
        ):
            process.shows(params["sessionId"], update)
        return {"stopReason": "end_turn"}

    async with bench(tmp_path) as it:
        session_id = await it.new()
        it.agent.script["session/prompt"] = answers
        blocks = [{"type": "text", "text": "mend it"}, {"type": "image", "data": "x"}]
        await it.editor.ask("session/prompt", {"sessionId": session_id, "prompt": blocks})
        await says(it, session_id, "/queue memory restore")
        await says(it, session_id, "and on")
        text = (
            f"{notices.TRANSCRIPT_WHOLE}\n\n<transcript>\n"
            "User: mend it\n\n[tool: read a.py]\n\nAgent: done\n</transcript>"
        )
        assert it.agent.params("session/prompt")[-1]["prompt"] == [
            {"type": "text", "text": text},
            {"type": "text", "text": "and on"},
        ]


@pytest.mark.hazard("R15.3")
async def test_of_a_long_conversation_the_newest_part_is_told_and_that_it_is_a_part(
    tmp_path: Path,
) -> None:
    async def answers(process: Process, params: Json) -> Json:
        for number in range(100):
            process.update(params["sessionId"], f"{number}: " + "x" * 1000)
        process.update(params["sessionId"], "begin " + "y" * 100_000 + " end")
        return {"stopReason": "end_turn"}

    async with bench(tmp_path) as it:
        session_id = await it.new()
        it.agent.script["session/prompt"] = answers
        await says(it, session_id, "go on")
        await says(it, session_id, "/queue memory restore")
        await says(it, session_id, "and on")
        written = str(carried(it.agent))
        assert written.startswith(notices.TRANSCRIPT_CUT)
        assert "Agent: 99: " in written
        assert "Agent: 50: " not in written
        assert "Agent: begin y" in written
        assert "y end" in written
        assert len(written) < 33_500
