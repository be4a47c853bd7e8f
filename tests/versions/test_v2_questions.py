"""What a client of version 2 is asked, offered and shown, on a living bridge."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.sessions.agent import Agent, Json, Process, until
from tests.core.sessions.world import SETUP
from tests.versions.v2_editor import CWD, HELLO, V2Editor, v2_bench

OPTIONS: list[Json] = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
CALL: Json = {
    "sessionUpdate": "tool_call",
    "toolCallId": "c1",
    "title": "rm x",
    "kind": "execute",
    "rawInput": {"command": "rm x"},
}


class Asking(Agent):
    """Asks for a permission in each turn, and waits for the answer."""

    def __init__(self, method: str, **params: Any) -> None:
        super().__init__()
        self.answer: Json = {}
        self._asked = method, params
        self.script["session/prompt"] = self._ask

    async def _ask(self, process: Process, params: Json) -> Json:
        process.shows(params["sessionId"], CALL)
        method, own = self._asked
        asked = {"sessionId": params["sessionId"], **own}
        process.says({"id": "q", "method": method, "params": asked})
        await until(lambda: [m for m in process.received if m.get("id") == "q"])
        (self.answer,) = [m for m in process.received if m.get("id") == "q"]
        return {"stopReason": "end_turn"}


async def test_a_permission_has_title_and_subject_and_its_session_requires_action(
    tmp_path: Path,
) -> None:
    call = {"toolCallId": "c1", "status": None, "title": "rm x"}
    agent = Asking("session/request_permission", toolCall=call, options=OPTIONS)
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        (asked,) = await it.editor.got("session/request_permission")
        it.editor.judge()
        assert asked["params"]["title"] == "rm x"
        assert asked["params"]["subject"]["type"] == "tool_call"
        assert "status" not in asked["params"]["subject"]["toolCall"]
        assert it.editor.states(session) == ["running", "requires_action"]
        chosen = {"outcome": {"outcome": "selected", "optionId": "yes"}}
        it.editor.answers_with(asked, chosen)
        await it.editor.idle(session)
        states = ["running", "requires_action", "running", "idle/end_turn"]
        assert it.editor.states(session) == states
        assert agent.answer["result"] == chosen


@pytest.mark.parametrize("outcome", ["cancelled", "_later", "unheard_of"])
async def test_an_outcome_that_is_no_choice_allows_nothing(tmp_path: Path, outcome: str) -> None:
    call = {"toolCallId": "c1", "title": "rm x"}
    agent = Asking("session/request_permission", toolCall=call, options=OPTIONS)
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        (asked,) = await it.editor.got("session/request_permission")
        it.editor.answers_with(asked, {"outcome": {"outcome": outcome}})
        await it.editor.idle(session)
        assert agent.answer["result"]["outcome"]["outcome"] == "cancelled"


async def test_a_permission_without_a_title_still_has_one(tmp_path: Path) -> None:
    agent = Asking("session/request_permission", toolCall={"toolCallId": "c"}, options=OPTIONS)
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        (asked,) = await it.editor.got("session/request_permission")
        assert asked["params"]["title"]
        it.editor.answers_with(asked, {"outcome": {"outcome": "cancelled"}})
        await it.editor.idle(session)


async def test_the_first_answer_of_clients_of_both_versions_counts(tmp_path: Path) -> None:
    call = {"toolCallId": "c1", "title": "rm x"}
    agent = Asking("session/request_permission", toolCall=call, options=OPTIONS)
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        old = await it.it.joined()
        await old.ask("session/resume", {**SETUP, "sessionId": session})
        await it.editor.result(it.editor.prompt(session, "hello"))
        (asked,) = await it.editor.got("session/request_permission")
        (also,) = await old.got("session/request_permission")
        chosen = {"outcome": {"outcome": "selected", "optionId": "no"}}
        old.answers_with(also, chosen)
        await it.editor.idle(session)
        assert agent.answer["result"] == chosen
        (called_back,) = it.editor.asked("$/cancel_request")
        assert called_back["params"]["requestId"] == asked["id"]
        it.editor.answers_with(asked, {"outcome": {"outcome": "cancelled"}})


@pytest.mark.parametrize("action", ["accept", "decline", "cancel", "_later"])
async def test_a_form_is_asked_and_answered(tmp_path: Path, action: str) -> None:
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    agent = Asking("elicitation/create", mode="form", message="Who?", requestedSchema=form)
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "hello"))
        (asked,) = await it.editor.got("elicitation/create")
        it.editor.answers_with(asked, {"action": action})
        await it.editor.idle(session)
        assert agent.answer["result"]["action"] == ("cancel" if action == "_later" else action)


# --- what a session offers --------------------------------------------------------------------


MODES: Json = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
}
MODEL: Json = {
    "id": "llm",
    "name": "Model",
    "category": "model",
    "type": "select",
    "currentValue": "a",
    "options": [{"group": "g", "name": "All", "options": [{"value": "a", "name": "A"}]}],
}


def _offering(**more: Any) -> Agent:
    agent = Agent()

    async def new(process: Process, params: Json) -> Json:
        return {"sessionId": "agent-1", **more}

    agent.script["session/new"] = new
    return agent


async def test_modes_are_an_option_of_the_category_mode(tmp_path: Path) -> None:
    agent = _offering(modes=MODES)
    agent.script["session/set_mode"] = {}
    async with v2_bench(tmp_path, agent) as it:
        answer = await it.editor.ask("session/new", CWD)
        it.editor.judge()
        (option,) = answer["configOptions"]
        assert (option["category"], option["currentValue"]) == ("mode", "ask")
        chosen = {"configId": option["configId"], "type": "id", "value": "code"}
        params = {"sessionId": answer["sessionId"], **chosen}
        told = await it.editor.ask("session/set_config_option", params)
        assert told["configOptions"][0]["currentValue"] == "code"
        (sent,) = agent.params("session/set_mode")
        assert sent["modeId"] == "code"


async def test_a_mode_that_the_agent_changes_is_told_as_options(tmp_path: Path) -> None:
    agent = _offering(modes=MODES)
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        update = {"sessionUpdate": "current_mode_update", "currentModeId": "code"}
        agent.living[0].shows("agent-1", update)
        await until(lambda: it.editor.updates(session, "config_option_update"))
        (told,) = it.editor.updates(session, "config_option_update")
        assert told["configOptions"][0]["currentValue"] == "code"


async def test_options_and_their_groups_have_the_names_of_version_2(tmp_path: Path) -> None:
    agent = _offering(configOptions=[MODEL])
    agent.script["session/set_config_option"] = {"configOptions": [MODEL]}
    async with v2_bench(tmp_path, agent) as it:
        answer = await it.editor.ask("session/new", CWD)
        it.editor.judge()
        (option,) = answer["configOptions"]
        assert option["configId"] == "llm"
        assert option["options"][0]["groupId"] == "g"
        params = {"sessionId": answer["sessionId"], "configId": "llm", "type": "id", "value": "a"}
        await it.editor.ask("session/set_config_option", params)
        (sent,) = agent.params("session/set_config_option")
        assert {key: sent[key] for key in ("configId", "value")} == {
            "configId": "llm",
            "value": "a",
        }
        assert "type" not in sent


async def test_mcp_servers_are_those_of_version_1_for_the_agent(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        servers = [
            {"type": "stdio", "name": "a", "command": "/bin/a"},
            {"type": "http", "name": "b", "url": "http://b"},
        ]
        await it.editor.ask("session/new", {**CWD, "mcpServers": servers})
        (sent,) = it.agent.params("session/new")
        assert sent["mcpServers"] == [
            {"name": "a", "command": "/bin/a", "args": [], "env": []},
            {"type": "http", "name": "b", "url": "http://b", "headers": []},
        ]


async def test_the_agent_is_offered_neither_files_nor_terminals(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        (told,) = it.agent.params("initialize")[:1]
        can = told["clientCapabilities"]
        assert told["protocolVersion"] == 1
        assert told["clientInfo"] == HELLO["info"]
        assert (can["terminal"], can["fs"]["readTextFile"]) == (False, False)


async def test_commands_and_plans_have_the_form_of_version_2(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        (process,) = it.agent.living
        commands = [{"name": "fix", "description": "Fixes", "input": {"hint": "what"}}]
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        process.shows("agent-1", update)
        entry = {"content": "do", "priority": "high", "status": "pending"}
        process.shows("agent-1", {"sessionUpdate": "plan", "entries": [entry]})
        await until(lambda: it.editor.updates(session, "plan_update"))
        (plan,) = it.editor.updates(session, "plan_update")
        assert plan["plan"] == {"type": "items", "planId": "plan", "entries": [entry]}
        listed = it.editor.updates(session, "available_commands_update")[-1]["availableCommands"]
        (fix,) = [each for each in listed if each["name"] == "fix"]
        assert (fix["type"], fix["input"]["type"]) == ("command", "text")


async def test_a_plan_in_markdown_is_shown_and_replayed_as_it_is(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        (process,) = it.agent.living
        plan = {"type": "markdown", "planId": "plan-mode", "content": "# Then"}
        process.shows("agent-1", {"sessionUpdate": "plan_update", "plan": plan})
        await until(lambda: it.editor.updates(session, "plan_update"))
        await it.editor.resumed(session)
        assert [each["plan"] for each in it.editor.updates(session, "plan_update")] == [plan] * 2


# --- the bridge's own -------------------------------------------------------------------------


@pytest.mark.hazard("X1.9")
async def test_what_the_bridge_says_of_its_own_comes_to_who_has_asked_for_it(
    tmp_path: Path,
) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        second = V2Editor()
        it.it.context.tasks.start_soon(it.it.bridge.join, second.read, second.way)
        own = {"_meta": {"acp_bridge": {"accepted": True, "state": True}}}
        await second.ask("initialize", {**HELLO, "capabilities": own})
        await second.resumed(session)
        asked = second.prompt(session, "hello")
        answer = await second.result(asked)
        (accepted,) = second.asked("_acp_bridge/accepted")
        assert accepted["params"]["requestId"] == asked
        assert accepted["params"]["promptId"] == answer["messageId"]
        assert second.asked("_acp_bridge/state")
        assert not [m for m in it.editor.messages if "_acp_bridge" in str(m.get("method"))]


async def test_words_that_were_edited_are_shown_as_the_prompt_s_own(tmp_path: Path) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "first"))
        second = it.editor.prompt(session, "second")
        list_params = {"sessionId": session}
        (row,) = (await it.editor.ask("_acp_bridge/queue/list", list_params))["prompts"]
        words = [{"type": "text", "text": "better"}]
        params = {"sessionId": session, "promptId": row["promptId"], "prompt": words}
        await it.editor.ask("_acp_bridge/queue/edit", params)
        gate.open()
        answer = await it.editor.result(second)
        await it.editor.idle(session, 2)
        shown = it.editor.updates(session, "user_message", "user_message_chunk")
        assert shown[-1]["content"] == words[0]
        assert shown[-1]["messageId"] == answer["messageId"]


async def test_two_requests_with_one_id_are_told_apart_by_nobody(tmp_path: Path) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        block = {"type": "text", "text": "hello"}
        params = {"sessionId": session, "prompt": [block]}
        first = it.editor.send("session/prompt", params, "same")
        await it.editor.result(first)  # answered: its id is free again, though the turn runs on
        it.editor.send("session/prompt", params, "same")
        await it.editor.handled()
        gate.open()
        await it.editor.idle(session, 2)
        assert len(it.editor.answers("same")) == 2


async def test_a_mode_in_a_replay_is_told_by_the_answer_that_knows_all_modes(
    tmp_path: Path,
) -> None:
    agent = _offering(modes=MODES)
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        update = {"sessionUpdate": "current_mode_update", "currentModeId": "code"}
        agent.living[0].shows("agent-1", update)
        await until(lambda: it.editor.updates(session, "config_option_update"))
        second = await it.joined()
        answer = await second.resumed(session)
        assert not second.updates(session, "config_option_update")
        assert answer["configOptions"][0]["currentValue"] == "code"
