"""Messages of agents with odd lines, ids, names and sessions, in a living session."""

import json
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.protocol import REQUEST_PERMISSION, SESSION_PROMPT
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.session.living import DONE, first, living
from tests.core.session.memory import Json
from tests.core.session.test_from_agent import says, told
from tests.core.session.test_odd_agents import (
    CALL,
    NO,
    ONCE,
    answer,
    asks,
    chunk,
    question,
    selects,
    text,
)

pytestmark = pytest.mark.usefixtures("no_errors")


# --- the form of lines ------------------------------------------------------------------------


@pytest.mark.hazard("Q9.3")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"jsonrpc": "2.0", "result": {"stopReason": "end_turn"}}', "it has no id"),
        ('{"id": null, "result": {"stopReason": "end_turn"}}', "it has no id"),
        ('{"id": [ID], "result": {"stopReason": "end_turn"}}', "the id is neither"),
        ('{"id": {"n": ID}, "result": {}}', "the id is neither"),
        ("{'id': ID, 'result': {'stopReason': 'end_turn'}}", "Parse error"),
    ],
)
async def test_a_turn_whose_answer_can_t_be_read_ends_with_an_error_that_names_the_agent(
    tmp_path: Path, line: str, said: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        request_id = here.prompt()
        request = await agent.asked(SESSION_PROMPT)
        agent.peer.feed(line.replace("ID", str(request["id"])).encode() + b"\n")
        error = await here.answered(request_id)
        assert error["code"] == -32603
        assert error["message"].startswith(f"the agent's answer can't be read: {said}")
        await here.turn(agent, "again")


async def test_updates_and_an_answer_that_are_spread_over_lines_are_those_of_the_turn(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        request_id = here.prompt()
        request = await agent.asked(SESSION_PROMPT)
        params = {"sessionId": "0", "update": chunk(text("a\nb"))}
        update = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        agent.peer.feed(json.dumps(update, indent=2).encode() + b"\n\n")
        agent.peer.feed(json.dumps(update).replace("\\n", "\n").encode() + b"\n")
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": DONE}
        agent.peer.feed(json.dumps(reply, indent="\t").encode() + b"\n")
        assert await here.answered(request_id) == DONE
        assert here.texts() == ["a\nb", "a\nb"]


# --- messages about no session that is named ----------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"sessionId": None}, {"session_id": "0"}, {"sessionId": 0}])
async def test_what_an_agent_with_one_session_says_without_its_id_is_of_that_session(
    tmp_path: Path, named: Json
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        agent.says({"method": "session/update", "params": {**named, "update": chunk(text("a"))}})
        params = {**named, "toolCall": CALL, "options": [ONCE, NO]}
        agent.says({"id": "p", "method": REQUEST_PERMISSION, "params": params})
        assert here.texts() == ["a"]
        assert question(here)["params"]["sessionId"] == "s"


async def test_what_an_agent_with_a_fork_says_without_an_id_is_of_nobody(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        for other in ("forks", "children"):
            if other == "forks":
                agent.forks.add("f", Beside())
            else:
                agent.forks._forks.clear()
                agent.children.add("c")
            agent.says({"method": "session/update", "params": {"update": chunk(text("a"))}})
        says(agent, chunk(text("b")))
        assert here.texts() == ["b"]


class Beside:
    """A fork that nothing is said of."""

    def on_update(self, params: Json) -> None:
        raise AssertionError

    def on_agent_request(self, peer: Any, call: Any) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "kind", ["agent_message_chunk", "agentMessageChunk", "AGENT_MESSAGE_CHUNK"]
)
@pytest.mark.parametrize("name", ["sessionUpdate", "session_update", "type", "kind", "updateType"])
async def test_the_kind_of_an_update_is_found_under_other_names_and_in_other_spellings(
    tmp_path: Path, kind: str, name: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        says(agent, {name: kind, "content": text("a")})
        flat = {"sessionId": "0", name: kind, "content": text("b")}
        agent.says({"method": "session/update", "params": flat})
        assert here.updates() == [chunk(text("a")), chunk(text("b"))]


async def test_a_kind_beside_its_update_and_a_meta_that_is_no_object_cost_nothing(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        beside = {"sessionUpdate": "agent_message_chunk", "update": {"content": text("a")}}
        agent.says({"method": "session/update", "params": {"sessionId": "0", **beside}})
        says(agent, chunk(text("b"), _meta="x"))
        assert here.updates() == [chunk(text("a")), chunk(text("b"))]


@pytest.mark.hazard("V6.8")
async def test_no_other_name_of_a_kind_makes_an_update_of_the_bridge_s_own(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        own = {"type": "_acp_bridge_said", "said": {}}
        says(await here.agent(), own, {"type": "x", "content": text("a")}, {"content": text("b")})
        assert here.updates() == []


@pytest.mark.hazard("V9", "C18")
@pytest.mark.parametrize("call", [None, "rm x", [], {}, {"title": "rm x"}, {"toolCallId": None}])
async def test_a_question_about_a_call_that_is_not_described_is_about_one_with_an_id(
    tmp_path: Path, call: Any
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        params = {"sessionId": "0", "toolCall": call, "options": [ONCE, NO]}
        agent.says({"id": "p", "method": REQUEST_PERMISSION, "params": params})
        shown = question(here)["params"]["toolCall"]
        assert shown["toolCallId"] == "permission-p"
        assert here.updates()[-1]["toolCallId"] == "permission-p"
        answer(here, question(here), selects("no"))
        assert told(agent) == [{"outcome": selects("no")["outcome"]}]


@pytest.mark.hazard("C18.6")
@pytest.mark.parametrize("odd", [{"n": 1}, [], None, True])
async def test_an_answer_to_a_question_under_an_odd_id_is_no_yes_and_ends_the_question(
    tmp_path: Path, odd: Any
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent)
        here.client.client.peer.feed(encode({"id": odd, "result": selects("yes")}))
        assert told(agent) == [-32603]
        assert "nothing was allowed" in here.texts()[-1]


@pytest.mark.parametrize("spelled", ["$/cancelRequest", "$/cancel_request"])
@pytest.mark.parametrize("named", ["requestId", "id"])
async def test_an_agent_s_cancel_of_its_question_is_understood_however_it_is_spelled(
    tmp_path: Path, spelled: str, named: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent)
        agent.says({"method": spelled, "params": {named: "p"}})
        assert told(agent) == [-32800]


YES = '{"outcome":"selected","optionId":"yes"}'


@pytest.mark.hazard("C18.6")
@pytest.mark.parametrize(
    "result",
    [
        '{"outcome":{"outcome":"selected","optionId":"no","optionId":"yes"}}',
        '{"outcome":{"outcome":"selected","optionId":"no","option\\u0049d":"yes"}}',
        '{"outcome":{"outcome":"cancelled","outcome":"selected","optionId":"yes"}}',
        '{"outcome":{"outcome":"cancelled"},"outcome":' + YES + "}",
        '{"outcome":{"outcome":"cancelled"}},"result":{"outcome":' + YES + "}",
        '{"outcome":' + YES + ',"cancelled":true,"cancelled":false}',
        '{"x":NaN,"outcome":{"outcome":"selected","optionId":"no","optionId":"yes"}}',
        '{"outcome":{"outcome":"selected",\n"optionId":"no",\n"optionId":"yes"}}',
    ],
)
async def test_an_answer_that_says_something_twice_is_no_yes(tmp_path: Path, result: str) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent)
        line = f'{{"jsonrpc":"2.0","id":{question(here)["id"]},"result":{result}}}'
        here.client.client.peer.feed(line.encode() + b"\n")
        assert told(agent) == [-32603]
        assert "nothing was allowed" in here.texts()[-1]


@pytest.mark.hazard("C18.6")
async def test_an_answer_that_says_the_same_twice_says_it(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent)
        result = '{"outcome":{"outcome":"selected","optionId":"yes","optionId":"yes"}}'
        line = f'{{"jsonrpc":"2.0","id":{question(here)["id"]},"result":{result}}}'
        here.client.client.peer.feed(line.encode() + b"\n")
        assert told(agent) == [selects("yes")]


@pytest.mark.hazard("T2")
async def test_an_update_whose_meta_is_nested_thousands_deep_keeps_its_text(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        deep = '{"a":' * 5_000 + "1" + "}" * 5_000
        update = json.dumps(chunk(text("a"), _meta="DEEP")).replace('"DEEP"', deep)
        params = f'{{"sessionId":"0","update":{update}}}'
        line = f'{{"jsonrpc":"2.0","method":"session/update","params":{params}}}'
        agent.peer.feed(line.encode() + b"\n")
        assert here.texts() == ["a"]


# --- values that a client of version 1 can't read -------------------------------------------------


def state(kind: str, **told: Any) -> Json:
    return {"sessionUpdate": kind, **told}


@pytest.mark.hazard("X1.4")
@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        ({"currentModeId": "plan"}, {"currentModeId": "plan"}),
        ({"modeId": "plan", "x": 1}, {"currentModeId": "plan", "x": 1}),
        ({"current_mode_id": "plan"}, {"currentModeId": "plan"}),
        ({"currentModeId": {"id": "plan"}}, {"currentModeId": "plan"}),
        ({"currentModeId": None}, None),
        ({}, None),
    ],
)
async def test_a_mode_has_the_form_of_version_1_or_is_not_shown(
    tmp_path: Path, odd: Json, shown: Json | None
) -> None:
    async with living(tmp_path, first=first()) as here:
        says(await here.agent(), state("current_mode_update", **odd))
        told = [] if shown is None else [state("current_mode_update", **shown)]
        assert here.updates() == told


@pytest.mark.hazard("X1.4")
@pytest.mark.parametrize(
    ("name", "odd", "shown"),
    [
        (
            "availableCommands",
            ["a", {"name": "b"}, {"name": "c", "description": None, "input": "x"}, None, {}, 5],
            [
                {"name": "a", "description": ""},
                {"name": "b", "description": ""},
                {"name": "c", "description": "", "input": {"hint": "x"}},
            ],
        ),
        (
            "availableCommands",
            [{"name": "a", "description": "d", "input": {}}],
            [{"name": "a", "description": "d"}],
        ),
        (
            "available_commands",
            [{"name": "a", "description": "d", "input": None, "_meta": {"x_y": 1}}],
            [{"name": "a", "description": "d", "input": None, "_meta": {"x_y": 1}}],
        ),
        ("availableCommands", None, None),
        ("availableCommands", 5, None),
    ],
)
async def test_commands_have_the_form_of_version_1_or_are_left_out(
    tmp_path: Path, name: str, odd: Any, shown: Any
) -> None:
    async with living(tmp_path, first=first()) as here:
        says(await here.agent(), state("available_commands_update", **{name: odd}))
        told = here.updates()
        assert [each["availableCommands"][: len(shown or ())] for each in told] == (
            [] if shown is None else [shown]
        )


@pytest.mark.hazard("X1.4")
async def test_figures_and_titles_have_the_types_of_version_1(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        says(agent, state("usage_update", used=5.0, size="200000", x=[1]))
        assert here.updates() == [state("usage_update", used=5, size=200000, x=[1])]
        says(
            agent, state("usage_update", used=2, size=3, cost={"amount": "1.5", "currency": "USD"})
        )
        says(agent, state("usage_update", used=3, size=3, cost={"amount": 1.5, "currency": "USD"}))
        one, two = here.updates()[-2:]
        assert (one["used"], "cost" in one, two["cost"]["amount"]) == (2, False, 1.5)


@pytest.mark.hazard("X1.4")
@pytest.mark.parametrize("odd", [-1, 2**64, 10**400, float("inf"), 1.5, True, "many", [1]])
@pytest.mark.parametrize("name", ["used", "size"])
async def test_tokens_that_are_no_number_of_version_1_are_not_shown(
    tmp_path: Path, odd: object, name: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        says(agent, state("usage_update", **{"used": 1, "size": 2, name: odd}))
        says(agent, state("usage_update", used=1, size=2))
        assert here.updates() == [state("usage_update", used=1, size=2)]
        says(agent, state("session_info_update", title=5, updatedAt={}, x=1))
        assert here.updates()[-1] == state("session_info_update", title=None, updatedAt=None, x=1)


@pytest.mark.hazard("X1.4")
async def test_a_plan_without_a_list_is_not_shown_and_options_are_objects(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        says(agent, state("plan", entries=None), state("plan", entries="one"))
        (plan,) = here.updates()
        assert [each["content"] for each in plan["entries"]] == ["one"]
        option = {"id": "a", "name": "A", "type": "select", "currentValue": "x", "options": []}
        says(agent, state("config_option_update", configOptions=[option, None, "x"]))
        assert here.updates()[-1]["configOptions"] == [option]


@pytest.mark.hazard("X1", "T3")
async def test_blocks_and_items_in_snake_case_are_named_as_the_protocol_has_them(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.client.client.abilities.takes_unknown = True
        image = {"type": "image", "data": "aGk=", "mime_type": "image/png"}
        linked = {"type": "resource", "resource": {"uri": "x", "text": "y", "mime_type": "t"}}
        diff = {"type": "diff", "path": "/x", "old_text": None, "new_text": "a"}
        other = {"type": "z", "my_own": {"mime_type": 1}}
        says(agent, chunk(image), chunk(linked), chunk(other))
        content: list[Any] = [{"type": "content", "content": each} for each in (image, "hi")]
        content.insert(1, diff)
        says(agent, {**CALL, "sessionUpdate": "tool_call", "content": content, "kind": "bash"})
        named = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        assert [each["content"] for each in here.updates()[:3]] == [
            named,
            {"type": "resource", "resource": {"uri": "x", "text": "y", "mimeType": "t"}},
            other,
        ]
        assert here.updates()[3]["kind"] == "other"
        assert here.updates()[3]["content"] == [
            {"type": "content", "content": named},
            {"type": "diff", "path": "/x", "oldText": None, "newText": "a"},
            {"type": "content", "content": text("hi")},
        ]


@pytest.mark.parametrize(
    ("method", "params", "lacks"),
    [
        ("fs/write_text_file", {"path": "/x", "content": None}, "content"),
        ("fs/write_text_file", {"path": "/x"}, "content"),
        ("fs/write_text_file", {"path": None, "content": ""}, "path"),
        ("fs/read_text_file", {"path": ["/x"]}, "path"),
        ("terminal/create", {"command": None}, "command"),
    ],
)
async def test_a_request_for_the_machine_without_a_text_where_one_has_to_be_reaches_no_client(
    tmp_path: Path, method: str, params: Json, lacks: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.client.client.abilities = ClientAbilities(
            {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
        )
        agent.says({"id": "w", "method": method, "params": {"sessionId": "0", **params}})
        assert [m for m in here.got if m.get("method") == method] == []
        error = agent.sent.messages[-1]["error"]
        assert (error["code"], error["message"]) == (-32602, f"{lacks}: must be a string")
        agent.says(
            {
                "id": "v",
                "method": "fs/write_text_file",
                "params": {"sessionId": "0", "path": "/x", "content": ""},
            }
        )
        assert here.got[-1]["method"] == "fs/write_text_file"
