"""What a client may do that has come from elsewhere, by what its token is for."""

import socket
from pathlib import Path

import pytest

from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.bridge.remote import remote_bench
from tests.core.sessions.agent import Agent, Json, until

pytestmark = pytest.mark.hazard("N6")

LOOKS = ("session/list", "session/load", "session/resume", "_acp_bridge/attach")
PERMISSION: Json = {
    "toolCall": {"toolCallId": "t", "title": "Edit x"},
    "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
}


def chosen(option: str) -> Json:
    return {"outcome": {"outcome": "selected", "optionId": option}}


REFUSED = [
    *("session/new", "session/fork", "session/prompt", "session/set_mode", "session/close"),
    *("session/delete", "authenticate", "logout", "providers/set", "providers/list"),
    *("_acp_bridge/pause", "_acp_bridge/hold", "_acp_bridge/go", "_acp_bridge/ask"),
    *("_acp_bridge/title", "_acp_bridge/close", "_acp_bridge/queue/drop", "_session/steering"),
    *("_acp_bridge/cancel_item", "_x/anything", "session/set_config_option"),
    *("_acp_bridge/queue/move", "_acp_bridge/queue/edit", "session/set_model"),
]


@pytest.mark.hazard("N6.1")
async def test_who_may_only_look_is_refused_all_else_with_a_sentence(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        client = await it.holding("look", session_id)
        prompt = [{"type": "text", "text": "x"}]
        for method in (*REFUSED, "_acp_bridge/cancel"):
            before = it.agent.params(method)
            error = await client.refused(method, {"sessionId": session_id, "prompt": prompt})
            assert (error.code, error.message) == (-32600, "this login may only look"), method
            client.notify("_x/news", {"sessionId": session_id})
            await client.handled()
            assert it.agent.params(method) == before, method
            assert it.agent.params("_x/news") == []


async def test_who_may_only_look_may_read_the_limits(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        it.agent.script["quota/read"] = limits = {"updatedAt": "2026-10-06T13:10:00Z", "pools": []}
        client = await it.holding("look", session_id)
        for named in ({}, {"sessionId": session_id}):
            assert await client.ask("quota/read", named) == limits


@pytest.mark.parametrize("prompt_id", ["another", None])
async def test_who_may_only_look_ends_no_turn_by_its_prompt_s_name(
    tmp_path: Path, prompt_id: str | None
) -> None:
    async with remote_bench(tmp_path) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        turn = it.agent.stops_at("session/prompt")
        owner.prompt(session_id, "work")
        await until(lambda: turn.reached)
        client = await it.holding("look", session_id, state=True)
        (told,) = await client.got("_acp_bridge/state")
        seen = prompt_id and told["params"]["turn"]["promptId"]
        about = {"sessionId": session_id, "promptId": seen}
        error = await client.refused("_acp_bridge/cancel", about)
        assert (error.code, error.message) == (-32600, "this login may only look")
        assert it.agent.params("session/cancel") == []
        turn.open()


@pytest.mark.parametrize("method", ["_acp_bridge/hold", "_acp_bridge/go", "_acp_bridge/pause"])
async def test_what_is_the_bridge_s_own_reaches_no_agent_though_it_names_no_session(
    tmp_path: Path, method: str
) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        error = await client.refused(method, {})
        assert (error.code, error.message) == (-32602, "sessionId: is missing")
        assert it.agent.params(method) == []


@pytest.mark.parametrize("method", [*LOOKS, "session/prompt", "_acp_bridge/ask", "x/y"])
@pytest.mark.parametrize("odd", [[], {}, 5, ["a"]])
async def test_an_odd_id_of_a_session_is_a_refusal_and_no_error_of_the_bridge_s(
    tmp_path: Path, method: str, odd: object
) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        error = await client.refused(method, {**it.setup(), "sessionId": odd})
        assert (error.code, error.message) == (-32602, "sessionId: must be a string")


@pytest.mark.hazard("N6.1")
async def test_who_may_approve_is_refused_what_brings_words_or_sets_something(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        client = await it.holding("approve", session_id)
        for method in REFUSED:
            error = await client.refused(method, {"sessionId": session_id})
            assert error.code == -32600, method
            assert "and no more" in error.message, method


@pytest.mark.hazard("N6.3")
async def test_who_may_only_look_is_asked_nothing_and_its_stop_does_nothing(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        turn = it.agent.stops_at("session/prompt")
        looks, approves = await it.holding("look", session_id), await it.remote("approve")
        owner = await it.holding("all", session_id, ownTurnsOnly=True)
        await approves.ask("_acp_bridge/attach", {"sessionId": session_id})
        prompt = owner.prompt(session_id, "work")
        await until(lambda: turn.reached)
        owner.leaves()
        await owner.parted.wait()
        (process,) = it.agent.living
        params = {**PERMISSION, "sessionId": "agent-1"}
        process.says({"id": 77, "method": "session/request_permission", "params": params})
        (question,) = await approves.got("session/request_permission")
        looks.notify("session/cancel", {"sessionId": session_id})
        looks.answers_with(question, chosen("yes"))
        await looks.handled()
        assert looks.asked("session/request_permission") == []
        assert process.params("session/cancel") == []
        assert [each for each in process.received if each.get("id") == 77] == []
        approves.answers_with(question, chosen("no"))
        await until(lambda: [each for each in process.received if each.get("id") == 77])
        assert process.received[-1]["result"] == chosen("no")
        approves.notify("session/cancel", {"sessionId": session_id})
        await until(lambda: process.params("session/cancel"))
        turn.open()
        assert owner.answers(prompt) == []


async def test_who_may_approve_ends_the_running_turn_whoever_asked_for_it(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        turn = it.agent.stops_at("session/prompt")
        prompt = owner.prompt(session_id, "work")
        await until(lambda: turn.reached)
        approves = await it.holding("approve", session_id)
        answer = await approves.ask("_acp_bridge/cancel", {"sessionId": session_id})
        assert answer == {"cancelled": True}
        turn.open()
        assert await owner.stop_reason(prompt) == "cancelled"


@pytest.mark.hazard("N6.1")
async def test_who_may_do_all_opens_forks_sets_and_logs_in_and_out(tmp_path: Path) -> None:
    agent = Agent(able={"list": {}, "resume": {}, "close": {}, "delete": {}, "fork": {}})
    agent.script |= {"providers/set": {}, "session/set_mode": {}}
    agent.script["session/fork"] = {"sessionId": "fork"}
    async with remote_bench(tmp_path, agent) as it:
        client = await it.remote()
        session_id = await it.new(client)
        assert await client.stop_reason(client.prompt(session_id, "hello")) == "end_turn"
        about = {**it.setup(), "sessionId": session_id}
        assert await client.ask("session/fork", about)
        await client.ask("session/set_mode", {"sessionId": session_id, "modeId": "m"})
        await client.ask("authenticate", {"methodId": "x"})
        await client.ask("providers/set", {"id": "x"})
        await client.ask("logout", {})
        await client.ask("session/delete", {"sessionId": session_id})
        for method in ("authenticate", "providers/set", "logout"):
            assert it.agent.params(method)


async def test_one_that_may_do_all_and_observes_does_only_what_both_may(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        client = await it.holding("all", session_id, observer=True)
        error = await client.refused("_acp_bridge/hold", {"sessionId": session_id})
        assert "observer" in error.message


# --- whose decision it was ----------------------------------------------------------------------


async def decided_by(tmp_path: Path, client: str, option: str, **own: object) -> list[Json]:
    """What the transcript tells of a permission that this client has answered."""
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        turn = it.agent.stops_at("session/prompt")
        asker = await it.holding("all", session_id, ownTurnsOnly=True)
        prompt = asker.prompt(session_id, "work")
        await until(lambda: turn.reached)
        asker.leaves()
        await asker.parted.wait()
        if client == "here":
            answers = await it.attached(session_id, **own)
        else:
            answers = await it.holding("approve", session_id, **own)
        (process,) = it.agent.living
        params = {**PERMISSION, "sessionId": "agent-1"}
        process.says({"id": 77, "method": "session/request_permission", "params": params})
        (question,) = await answers.got("session/request_permission")
        answers.answers_with(question, chosen(option) if option else {"outcome": "?"})
        await until(lambda: [each for each in process.received if each.get("id") == 77])
        done = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}
        process.shows("agent-1", done)
        turn.open()
        assert asker.answers(prompt) == []
        later = await it.holding("look", session_id)
        updates = [each["params"] for each in later.asked("session/update")]
        marks = [each.get("_meta", {}).get("acp_bridge", {}) for each in updates]
        return [mark["decided"] for mark in marks if "decided" in mark]


@pytest.mark.hazard("N6.8")
async def test_the_transcript_tells_the_login_of_who_has_allowed_a_call(tmp_path: Path) -> None:
    assert await decided_by(tmp_path, "remote", "yes", login="somebody else") == [
        {"decision": "allow", "by": "client", "name": "laptop", "option": "allow_once"}
    ]


async def test_who_is_here_has_no_login_but_for_one_that_is_passed_on(tmp_path: Path) -> None:
    said = {"decision": "deny", "by": "client", "option": "reject_once"}
    for number, (own, name) in enumerate([(None, {}), ("phone", {"name": "phone"}), (True, {})]):
        (home := tmp_path / str(number)).mkdir()
        abilities = {} if own is None else {"login": own}
        assert await decided_by(home, "here", "no", **abilities) == [{**said, **name}]


# --- a bridge without a client on stdin ---------------------------------------------------------


async def test_the_agent_is_told_of_no_files_and_no_terminals_whoever_comes(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        client = it.unknown()
        able = {"fs": {"readTextFile": True}, "terminal": True, "auth": {"terminal": True}}
        hello = {"protocolVersion": 1, "clientCapabilities": able}
        await client.ask("initialize", hello)
        await client.ask("session/new", it.setup())
        (told,) = it.agent.params("initialize")
        assert told["clientCapabilities"] == {
            "elicitation": {"form": {}},
            "session": {"quota": {}},
            "subagents": {},
        }
        assert told["clientInfo"]["name"] == "acp-bridge"
        (process,) = it.agent.living
        asked = {"sessionId": "agent-1", "path": "/x"}
        process.says({"id": 5, "method": "fs/read_text_file", "params": asked})
        await until(lambda: process.received[-1].get("id") == 5)
        assert process.received[-1]["error"]["code"] == -32601
        assert client.asked("fs/read_text_file") == []


async def test_an_agent_that_did_not_start_is_started_for_the_next_client(tmp_path: Path) -> None:
    agent = Agent()
    agent.unstartable = StartFailed("no such file", permanent=True)
    async with remote_bench(tmp_path, agent) as it:
        error = await it.unknown().refused("initialize", {"protocolVersion": 1})
        assert "no such file" in error.message
        agent.unstartable = None
        await it.remote()


async def test_it_goes_on_without_clients_until_it_is_told_to_end(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        client = await it.holding("all", session_id)
        client.leaves()
        await client.parted.wait()
        assert not it.ended.is_set()
        assert await it.holding("look", session_id)


# --- logins ------------------------------------------------------------------------------------


async def test_ways_to_log_in_that_need_a_terminal_are_not_offered_to_who_is_elsewhere(
    tmp_path: Path,
) -> None:
    agent = Agent()
    ways: list[Json] = [
        {"id": "terminal", "name": "In a terminal", "type": "terminal"},
        {"id": "old", "name": "The same", "_meta": {"terminal-auth": {"command": "x"}}},
        {"id": "browser", "name": "In a browser"},
    ]
    agent.script["initialize"] = {**agent.script["initialize"], "authMethods": ways}
    async with remote_bench(tmp_path, agent) as it:
        client = it.unknown()
        answer = await client.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        assert [way["id"] for way in answer["authMethods"]] == ["browser"]


async def test_an_error_that_wants_a_login_names_the_machine_once(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/new"] = RpcError(-32000, "log in first")
    async with remote_bench(tmp_path, agent) as it:
        client = await it.remote()
        error = await client.refused("session/new", it.setup())
        told = f"log in first (log in on {socket.gethostname()}, where the agent runs)"
        assert (error.code, error.message) == (-32000, told)
