"""Clients that speak version 2, in front of agents that speak version 1, on a living bridge."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Agent, until
from tests.core.sessions.bench import HELLO as OLD_HELLO
from tests.core.sessions.world import SETUP
from tests.versions.v2_editor import CWD, HELLO, V2Bench, V2Editor, v2_bench


async def test_initialize_is_answered_in_the_version_that_was_asked_for(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        another = V2Editor()
        it.it.context.tasks.start_soon(it.it.bridge.join, another.read, another.way)
        answer = await another.ask("initialize", HELLO)
        assert answer["protocolVersion"] == 2
        assert answer["info"].keys() >= {"name", "version"}
        assert answer["capabilities"]["session"]["delete"] == {}
        assert "agentCapabilities" not in answer


@pytest.mark.hazard("X3.2", "X3.1")
async def test_a_prompt_is_answered_when_its_turn_begins_and_the_turn_ends_with_one_idle(
    tmp_path: Path,
) -> None:
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        answer = await it.editor.result(it.editor.prompt(session, "hello"))
        await until(lambda: gate.reached)
        (echo,) = it.editor.updates(session, "user_message")
        assert echo["messageId"] == answer["messageId"]
        assert echo["content"] == [{"type": "text", "text": "hello"}]
        assert it.editor.states(session) == ["running"]
        gate.open()
        await it.editor.idle(session)
        (said,) = it.editor.updates(session, "agent_message_chunk")
        assert said["content"]["text"] == "echo hello"
        assert it.editor.states(session) == ["running", "idle/end_turn"]


@pytest.mark.hazard("X3.1")
async def test_three_prompts_run_in_order_each_with_its_own_idle(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        asked = [it.editor.prompt(session, text) for text in ("one", "two", "three")]
        await it.editor.idle(session, 3)
        answers = [(await it.editor.result(each))["messageId"] for each in asked]
        echoes = it.editor.updates(session, "user_message")
        assert [each["messageId"] for each in echoes] == answers
        said = it.editor.updates(session, "agent_message_chunk")
        assert [each["content"]["text"] for each in said] == ["echo one", "echo two", "echo three"]
        assert it.editor.states(session) == ["running", "idle/end_turn"] * 3


async def test_a_stop_ends_the_turn_and_withdraws_the_prompts_behind_it(tmp_path: Path) -> None:
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with v2_bench(tmp_path, agent, drain_timeout=60) as it:
        session = await it.new()
        first = it.editor.prompt(session, "first")
        await it.editor.result(first)
        behind = [it.editor.prompt(session, text) for text in ("second", "third")]
        it.editor.notify("session/cancel", {"sessionId": session})
        for each in behind:
            assert (await it.editor.refusal(each)).code == -32800
        gate.open()
        await it.editor.idle(session)
        assert it.editor.states(session) == ["running", "idle/cancelled"]
        assert await it.editor.ran(session, "fourth")
        assert [each["prompt"][0]["text"] for each in agent.params("session/prompt")] == [
            "first",
            "fourth",
        ]


async def test_a_prompt_that_is_taken_back_before_its_turn_is_withdrawn(tmp_path: Path) -> None:
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "first"))
        second = it.editor.prompt(session, "second")
        it.editor.cancel_request(second)
        assert (await it.editor.refusal(second)).code == -32800
        gate.open()
        await it.editor.idle(session)
        assert it.editor.states(session) == ["running", "idle/end_turn"]


async def test_an_error_after_the_turn_has_begun_is_the_end_of_the_turn(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = RpcError(-32603, "out of paper")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.ran(session, "hello")
        last = it.editor.updates(session, "state_update")[-1]
        assert last["stopReason"] == "error"
        assert last["error"]["message"] == "out of paper"


async def test_a_command_of_the_bridge_is_a_turn_of_its_own(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        await it.editor.ran(session, "/queue")
        assert it.editor.states(session) == ["running", "idle/end_turn"]


@pytest.mark.hazard("X3.5", "X3.6")
async def test_a_replay_ends_with_its_mark_then_the_state_then_the_answer(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        await it.editor.ran(session, "hello")
        it.editor.out.take()
        it.editor._read = 0
        await it.editor.resumed(session)
        kinds = [each["sessionUpdate"] for each in it.editor.updates(session)]
        assert kinds[:2] == ["user_message_chunk", "agent_message_chunk"]
        assert kinds[-2:] == ["replay_complete", "state_update"]
        assert kinds.count("replay_complete") == 1
        assert it.editor.states(session) == ["idle"]
        assert "result" in it.editor.messages[-1]


@pytest.mark.hazard("X3.5")
async def test_a_resume_without_a_replay_says_the_state_and_no_mark(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        await it.editor.ran(session, "hello")
        it.editor.out.take()
        it.editor._read = 0
        await it.editor.ask("session/resume", {"sessionId": session, **CWD})
        assert [each["sessionUpdate"] for each in it.editor.updates(session)] == ["state_update"]


async def test_a_cursor_that_is_not_known_is_refused(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        params = {"sessionId": session, **CWD, "replayFrom": {"type": "_elsewhere"}}
        assert (await it.editor.refused("session/resume", params)).code == -32602


@pytest.mark.hazard("X3.4")
async def test_who_comes_while_a_turn_runs_is_told_that_it_runs_and_how_it_ends(
    tmp_path: Path,
) -> None:
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        second = await it.joined()
        await second.resumed(session)
        assert second.states(session) == ["running"]
        gate.open()
        await second.idle(session)
        assert second.states(session) == ["running", "idle/end_turn"]


@pytest.mark.hazard("X3.3")
async def test_another_client_s_turn_has_its_words_its_states_and_its_stop_reason(
    tmp_path: Path,
) -> None:
    async with v2_bench(tmp_path, drain_timeout=60) as it:
        session = await it.new()
        old = await it.it.joined()
        await old.ask("session/resume", {**SETUP, "sessionId": session})
        agent = it.agent
        gate = agent.stops_at("session/prompt")
        asked = old.prompt(session, "from the other")
        await until(lambda: gate.reached)
        (words,) = it.editor.updates(session, "user_message_chunk")
        assert words["content"]["text"] == "from the other"
        assert it.editor.states(session) == ["running"]
        old.notify("session/cancel", {"sessionId": session})
        await until(lambda: agent.params("session/cancel"))
        gate.open()
        assert await old.stop_reason(asked) == "cancelled"
        await it.editor.idle(session)
        assert it.editor.states(session) == ["running", "idle/cancelled"]


@pytest.mark.hazard("X1.1")
async def test_a_client_of_version_1_gets_no_word_of_version_2(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        old = await it.it.joined_with(OLD_HELLO["clientCapabilities"])
        await old.ask("session/load", {**SETUP, "sessionId": session})
        await it.editor.ran(session, "hello")
        kinds = {each["params"]["update"]["sessionUpdate"] for each in old.asked("session/update")}
        assert kinds <= {"user_message_chunk", "agent_message_chunk", "session_info_update"}
        assert not [each for each in old.messages if "_acp_bridge" in str(each.get("method"))]


@pytest.mark.hazard("X1.1")
@pytest.mark.parametrize(
    "method", ["session/load", "authenticate", "logout", "session/set_mode", "session/set_model"]
)
async def test_a_method_of_version_1_is_not_known_in_version_2(tmp_path: Path, method: str) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        sent = {"id": "old", "method": method, "params": {"sessionId": session, **CWD}}
        super(V2Editor, it.editor).says(sent)
        await until(lambda: it.editor.answers("old"))
        (answer,) = it.editor.answers("old")
        assert answer["error"]["code"] == -32601
        it.editor._read = len(it.editor.messages)


async def test_a_session_that_is_not_known_is_closed_without_an_error(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        assert await it.editor.ask("session/close", {"sessionId": "nobody's"}) == {}


async def test_a_close_ends_the_turn_before_it_is_answered(tmp_path: Path) -> None:
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with v2_bench(tmp_path, agent, drain_timeout=60) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        behind = it.editor.prompt(session, "behind")
        closing = it.editor.send("session/close", {"sessionId": session})
        await until(lambda: agent.params("session/cancel"))
        gate.open()
        assert await it.editor.result(closing) == {}
        assert (await it.editor.refusal(behind)).code == -32800
        assert it.editor.states(session) == ["running", "idle/cancelled"]


def that_takes_words() -> Agent:
    """An agent that takes words into a turn that runs."""
    agent = Agent()
    agent.script["initialize"]["_meta"] = {"steering": {"supported": True}}
    agent.script["_session/steering"] = {"outcome": "injected"}
    return agent


def steers(it: V2Bench, session: str) -> Any:
    """The id of a prompt whose words are to join the turn that runs."""
    own = {"_meta": {"acp_bridge": {"delivery": "steer"}}}
    block = {"type": "text", "text": "more"}
    return it.editor.send("session/prompt", {"sessionId": session, "prompt": [block], **own})


@pytest.mark.hazard("X3.1")
async def test_words_that_join_a_turn_make_no_second_end_of_it(tmp_path: Path) -> None:
    agent = that_takes_words()
    gate = agent.stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        joined = steers(it, session)
        await until(lambda: agent.params("_session/steering"))
        gate.open()
        answer = await it.editor.result(joined)
        await it.editor.handled()
        assert it.editor.states(session) == ["running", "idle/end_turn"]
        echoes = it.editor.updates(session, "user_message")
        assert echoes[-1]["messageId"] == answer["messageId"]


async def test_words_that_join_a_turn_behind_a_replay_are_shown_once(tmp_path: Path) -> None:
    agent = that_takes_words()
    joins = agent.stops_at("_session/steering")
    gate = agent.stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        joined = steers(it, session)
        await it.editor.resumed(session)
        await until(lambda: joins.reached)
        joins.open()
        await anyio.wait_all_tasks_blocked()  # and the agent's word for it was read
        gate.open()
        answer = await it.editor.result(joined)
        words = it.editor.updates(session, "user_message", "user_message_chunk")
        shown = [each["messageId"] for each in words if "more" in str(each["content"])]
        assert shown == [answer["messageId"]]
        await it.editor.idle(session)


async def test_a_live_session_is_attached_to_as_it_is_resumed(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        await it.editor.ran(session, "hello")
        second = await it.joined()
        answer = await second.ask("_acp_bridge/attach", {"sessionId": session})
        assert "modes" not in answer
        kinds = [each["sessionUpdate"] for each in second.updates(session)]
        assert kinds[-2:] == ["replay_complete", "state_update"]


async def test_a_session_that_somebody_else_closes_is_over_for_this_client(tmp_path: Path) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent, drain_timeout=60) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        behind = it.editor.prompt(session, "behind")
        old = await it.it.joined()
        closing = old.send("_acp_bridge/close", {"sessionId": session})
        await until(lambda: agent.params("session/cancel"))
        gate.open()
        await old.result(closing)
        error = await it.editor.refusal(behind)
        assert error.code == -32603  # it is kept: no word of a withdrawal
        assert it.editor.states(session) == ["running", "idle/cancelled"]


@pytest.mark.hazard("X3")
async def test_who_closes_a_session_that_another_client_has_sees_no_more_of_it(
    tmp_path: Path,
) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        other = await it.joined()
        await other.resumed(session)
        await it.editor.result(it.editor.prompt(session, "one"))
        behind = it.editor.prompt(session, "two")
        await it.editor.handled()
        closing = it.editor.send("session/close", {"sessionId": session})
        assert (await it.editor.refusal(behind)).code == -32800
        assert await it.editor.result(closing) == {}
        seen = len(it.editor.updates(session))
        gate.open()
        await other.idle(session)
        await it.editor.handled()
        assert it.editor.states(session) == ["running", "idle/cancelled"]
        assert len(it.editor.updates(session)) == seen
        assert other.states(session)[-1] == "idle/end_turn"
        assert [each["prompt"][0]["text"] for each in agent.params("session/prompt")] == ["one"]
