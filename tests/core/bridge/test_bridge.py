"""A whole bridge in memory: where requests and notifications of its clients go."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients import handshake
from acp_bridge.core.clients.client import Stage
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Agent, Json, Process, until
from tests.core.sessions.bench import HELLO, bench
from tests.core.sessions.editor import Editor
from tests.core.sessions.world import SETUP

AUTH_REQUIRED = RpcError(-32000, "who are you")
TOKEN: Json = {"methodId": "token", "_meta": {"token": "t"}}


# --- initialize ------------------------------------------------------------------------------


@pytest.mark.hazard("Q9.1")
@pytest.mark.parametrize(
    "method",
    ["session/new", "session/prompt", "session/list", "authenticate", "session/fork", "_x/y"],
)
async def test_before_initialize_every_other_request_is_refused(
    tmp_path: Path, method: str
) -> None:
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        assert (await it.editor.refused(method, SETUP)).code == -32600
        assert (await it.editor.refused("initialize", {})).code == -32602
        assert (await it.editor.refused(method, SETUP)).code == -32600
        hello = it.editor.send("initialize", HELLO)
        await until(lambda: gate.reached)
        it.editor.notify("session/cancel", {"sessionId": "s"})
        it.editor.notify("_x/news", {})
        gate.open()
        await it.editor.result(hello)
        assert it.agent.params("_x/news") == []
        await it.new()


async def test_initialize_tells_each_side_of_the_other(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False, process_per_session=True) as it:
        asked = {"protocolVersion": 7, "clientCapabilities": {"terminal": True}, "x": 1}
        told = await it.editor.ask("initialize", asked)
        can = {"terminal": True, "session": {"quota": {}}, "subagents": {}}
        able = {"clientCapabilities": can}
        assert it.agent.params("initialize") == [{**asked, "protocolVersion": 1, **able}]
        assert told["agentCapabilities"]["loadSession"] is True
        own = told["agentCapabilities"]["_meta"]["acp_bridge"]
        assert (own["delivery"], own["onCancel"]) == ("queue", "keep")
        # The process that answered becomes the first session's; later ones are told the same.
        await it.new()
        await it.new()
        assert it.agent.params("initialize") == [{**asked, "protocolVersion": 1, **able}] * 2


async def test_a_second_initialize_is_refused_during_the_first_and_behind_it(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        first = it.editor.send("initialize", HELLO)
        await until(lambda: gate.reached)
        assert "already" in (await it.editor.refused("initialize", HELLO)).message
        gate.open()
        await it.editor.result(first)
        assert "already" in (await it.editor.refused("initialize", HELLO)).message
        await it.new()


async def test_an_initialize_that_came_to_nothing_can_be_repeated(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        assert (await it.editor.refused("initialize", {})).code == -32602
        assert (await it.editor.refused("initialize", [1])).code == -32602
        it.agent.unstartable = OSError(24, "too many files")
        assert (await it.editor.refused("initialize", HELLO)).code == -32603
        it.agent.unstartable = None
        gate = it.agent.stops_at("initialize")
        given_up = it.editor.send("initialize", HELLO)
        await until(lambda: gate.reached)
        it.editor.cancel_request(given_up)
        assert (await it.editor.refusal(given_up)).code == -32800
        gate.open()
        await it.editor.ask("initialize", HELLO)
        assert len(it.agent.living) == 1


async def test_the_built_in_agent_is_not_waited_for_and_its_failure_is_said_to_who_needs_it(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, initialized=False, builtin=True) as it:
        gate = it.agent.stops_at("initialize")
        told = await it.editor.ask("initialize", HELLO)
        assert told["agentInfo"] == handshake.BUILTIN["agentInfo"]
        await until(lambda: gate.reached)  # it starts already
        new = it.editor.send("session/new", SETUP)
        it.agent.processes[0].dies()
        gate.open()
        await it.editor.result(new)
        assert len(it.agent.processes) == 2


# --- where a request goes --------------------------------------------------------------------


@pytest.mark.parametrize("odd", [[1], "x", 7, True])
async def test_parameters_that_are_no_object_are_refused(tmp_path: Path, odd: object) -> None:
    async with bench(tmp_path) as it:
        for method in ("session/new", "session/prompt", "_x/y"):
            error = await it.editor.refused(method, odd)
            assert (error.code, error.message) == (-32602, "params: must be an object")
        assert await it.editor.ask("session/list", None) == {"sessions": []}


async def test_a_request_that_must_name_a_session_names_one_that_is_live(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        for method in ("session/prompt", "session/set_mode"):
            assert (await it.editor.refused(method, {})).code == -32602
            assert (await it.editor.refused(method, {"sessionId": 1})).code == -32602
            assert (await it.editor.refused(method, {"sessionId": "s"})).code == -32002
        for method in ("_x/y", "session/not_known_yet"):  # the agent may know the session
            it.agent.script[method] = {"done": 1}
            assert await it.editor.ask(method, {"sessionId": "s"}) == {"done": 1}
        assert (await it.editor.refused("session/fork", {"sessionId": "s"})).code == -32601


@pytest.mark.hazard("Q8")
async def test_an_odd_prompt_is_refused_and_the_next_one_runs(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        error = await it.editor.refused("session/prompt", {"sessionId": session_id, "prompt": []})
        assert error.code == -32602
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "hello")) == "end_turn"
        assert it.editor.texts(session_id) == ["echo hello"]


@pytest.mark.hazard("T3.1")
async def test_what_the_bridge_does_not_know_goes_to_the_agent_as_it_is_and_back(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        it.agent.script["_x/y"] = {"kept": [1]}
        it.agent.script["_x/no"] = RpcError(-1, "no")
        assert await it.editor.ask("_x/y", {"sessionId": session_id, "n": 1}) == {"kept": [1]}
        assert await it.editor.ask("_x/y", {"n": 2}) == {"kept": [1]}
        assert await it.editor.ask("_x/y", []) == {"kept": [1]}
        assert (await it.editor.refused("_x/no", {})).code == -1
        assert it.agent.params("_x/y") == [{"sessionId": "agent-1", "n": 1}, {"n": 2}, []]
        # It is asked though no process runs.
        await it.editor.ask("session/close", {"sessionId": session_id})
        assert await it.editor.ask("_x/y", {"n": 3}) == {"kept": [1]}
        assert len(it.agent.processes) == 2


@pytest.mark.parametrize("alone", [True, False])
async def test_a_notification_goes_to_the_session_that_it_names_or_to_every_process(
    tmp_path: Path, alone: bool
) -> None:
    async with bench(tmp_path, process_per_session=alone) as it:
        one, two = await it.new(), await it.new()
        it.editor.notify("_x/news", {"sessionId": two, "n": 1})
        it.editor.notify("_x/news", {"sessionId": "nobody's", "n": 2})
        it.editor.notify("_x/news", {"n": 3})
        it.editor.notify("_x/news", [4])
        for session_id in (one, two):
            await it.editor.stop_reason(it.editor.prompt(session_id, "hello"))
        heard = [process.params("_x/news") for process in it.agent.processes]
        named = {"sessionId": "agent-2" if alone else "agent-1-2", "n": 1}
        assert heard == [[{"n": 3}, [4]]] * alone + [[named, {"n": 3}, [4]]]


@pytest.mark.hazard("C1.1")
async def test_a_cancel_reaches_its_session_and_no_other(tmp_path: Path) -> None:
    async with bench(tmp_path, drain_timeout=60) as it:
        one, two = await it.new(), await it.new()
        gate = it.agent.stops_at("session/prompt")
        prompts = [it.editor.prompt(session_id, "hello") for session_id in (one, two)]
        await until(lambda: gate.reached == 2)
        for odd in ({"sessionId": "nobody's"}, {"sessionId": [two]}, {}, [two], None):
            it.editor.notify("session/cancel", odd)
        it.editor.notify("session/cancel", {"sessionId": two})
        await until(lambda: it.agent.params("session/cancel"))
        assert it.agent.params("session/cancel") == [{"sessionId": "agent-1-2"}]
        gate.open()
        reasons = [await it.editor.stop_reason(prompt) for prompt in prompts]
        assert reasons == ["end_turn", "cancelled"]


async def test_a_client_that_has_not_initialized_reaches_no_session(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id, stranger = await it.new(), it.another()
        stranger.client.stage = Stage.NEW
        turn = it.agent.stops_at("session/prompt")
        prompt = it.editor.prompt(session_id, "hello")
        await until(lambda: turn.reached)
        for named in ({"sessionId": session_id}, {}):
            stranger.notify("session/cancel", named)
            stranger.notify("_x/news", named)
            stranger.cancel_request(prompt)
        turn.open()
        assert await it.editor.stop_reason(prompt) == "end_turn"
        assert it.agent.params("_x/news") == it.agent.params("session/cancel") == []


# --- $/cancel_request ------------------------------------------------------------------------


@pytest.mark.hazard("Q9.1")
async def test_a_request_is_cancelled_wherever_it_is(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        turn = it.agent.stops_at("session/prompt")
        it.agent.script["_x/y"] = {}
        passed_on, listing = it.agent.stops_at("_x/y"), it.agent.stops_at("session/list")
        running, queued = (it.editor.prompt(session_id, text) for text in ("runs", "waits"))
        await until(lambda: turn.reached)
        asked = it.editor.send("_x/y", {"sessionId": session_id})
        listed = it.editor.send("session/list", {})
        await until(lambda: passed_on.reached and listing.reached)
        it.editor.cancel_request(queued)
        assert await it.editor.stop_reason(queued) == "cancelled"
        it.editor.cancel_request(listed)
        assert (await it.editor.refusal(listed)).code == -32800
        # One that the agent has is called back there, and answered as the agent answers it.
        it.editor.cancel_request(asked)
        await until(lambda: len(it.agent.params("$/cancel_request")) == 2)
        assert it.editor.answers(asked) == it.editor.answers(running) == []
        passed_on.open()
        assert await it.editor.result(asked) == {}
        turn.open()
        assert await it.editor.stop_reason(running) == "end_turn"
        it.editor.cancel_request(running)
        await it.settled()


@pytest.mark.hazard("Q9", "C1.6")
@pytest.mark.parametrize("odd", [True, [1], {"id": 1}, 2])
async def test_what_is_no_id_of_a_request_cancels_none(tmp_path: Path, odd: object) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        turn = it.agent.stops_at("session/prompt")
        it.editor.out.take()
        block = {"type": "text", "text": "hello"}
        given = {"sessionId": session_id, "prompt": [block]}
        it.editor.send("session/prompt", given, 1)
        it.editor.says({"id": None, "method": "session/prompt", "params": given})
        await until(lambda: turn.reached)
        it.editor.cancel_request(odd)
        nothing: object
        for nothing in (None, {}, []):
            it.editor.notify("$/cancel_request", nothing)
        await it.settled()
        turn.open()
        assert await it.editor.stop_reason(1) == "end_turn"
        await until(lambda: it.editor.texts(session_id) == ["echo hello"] * 2)


@pytest.mark.hazard("P13")
async def test_two_clients_of_a_bridge_cancel_their_own_requests_only(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        editors: list[Editor] = [it.editor, it.another()]
        sessions = [await it.new(editor) for editor in editors]
        turn, listing = it.agent.stops_at("session/prompt"), it.agent.stops_at("session/list")
        block = {"type": "text", "text": "hello"}
        for editor, session_id in zip(editors, sessions, strict=True):
            for request_id in (100, 101):
                given = {"sessionId": session_id, "prompt": [block]}
                editor.send("session/prompt", given, request_id)
            editor.send("session/list", {}, 102)
        await until(lambda: turn.reached == listing.reached == 2)
        for request_id in (101, 102):
            editors[1].cancel_request(request_id)
        assert await editors[1].stop_reason(101) == "cancelled"
        assert (await editors[1].refusal(102)).code == -32800
        assert it.editor.answers(101) == it.editor.answers(102) == []
        turn.open()
        listing.open()
        for editor, session_id in zip(editors, sessions, strict=True):
            assert await editor.stop_reason(100) == "end_turn"
            assert set(editor.texts(session_id)) == {"echo hello"}
        assert await it.editor.stop_reason(101) == "end_turn"
        await it.editor.result(102)


# --- authenticate and logout -----------------------------------------------------------------


def wants_login(agent: Agent, *methods: str) -> None:
    """Let a process refuse these methods until it was given `authenticate`."""
    for method in methods:
        agent.script[method] = _checked(agent.script[method])


def _checked(answer: Any) -> Any:
    async def checked(process: Process, params: Json) -> Any:
        if not process.params("authenticate"):
            return AUTH_REQUIRED
        return await answer(process, params) if callable(answer) else answer

    return checked


async def test_authenticate_goes_to_the_process_that_waits_and_is_repeated_in_later_ones(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        wants_login(it.agent, "session/new")
        assert (await it.editor.refused("session/new", SETUP)).code == -32000
        it.agent.script["authenticate"] = RpcError(-32603, "wrong token")
        assert "wrong token" in (await it.editor.refused("authenticate", TOKEN)).message
        it.agent.script["authenticate"] = {"kept": 1}
        assert await it.editor.ask("authenticate", TOKEN) == {"kept": 1}
        await it.new()
        await it.new()
        given = [process.params("authenticate") for process in it.agent.processes]
        assert given == [[TOKEN, TOKEN], [TOKEN]]


async def test_an_agent_may_ask_the_user_while_it_authenticates(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        able: Json = {"clientCapabilities": {"elicitation": {"form": {}}}}
        await it.editor.ask("initialize", {**HELLO, **able})

        async def authenticate(process: Process, params: Json) -> Any:
            on_behalf = {"mode": "form", "requestId": process.received[-1]["id"]}
            process.says({"id": "q", "method": "elicitation/create", "params": on_behalf})
            await until(lambda: process.received[-1].get("id") == "q")
            return process.received[-1]["result"]

        it.agent.script["authenticate"] = authenticate
        login = it.editor.send("authenticate", TOKEN)
        await until(lambda: it.editor.asked("elicitation/create"))
        (question,) = it.editor.asked("elicitation/create")
        assert question["params"] == {"mode": "form", "requestId": login}
        it.editor.says({"id": question["id"], "result": {"action": "accept"}})
        assert await it.editor.result(login) == {"action": "accept"}


async def test_what_carries_nothing_but_a_method_is_not_repeated(tmp_path: Path) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        wants_login(it.agent, "session/new")
        await it.editor.ask("authenticate", {"methodId": "browser"})
        await it.new()
        assert (await it.editor.refused("session/new", SETUP)).code == -32000
        assert it.agent.params("authenticate") == [{"methodId": "browser"}]


async def test_every_process_that_waits_for_authenticate_gets_it(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        wants_login(it.agent, "session/resume", "session/load")
        sessions = [await it.new() for _ in range(2)]
        for process in it.agent.processes:
            process.dies()
        for session_id in sessions:
            prompt = it.editor.prompt(session_id, "hello")
            assert (await it.editor.refusal(prompt)).code == -32000
        await it.editor.ask("authenticate", {"methodId": "browser"})
        await until(
            lambda: [len(process.params("authenticate")) for process in it.agent.living] == [1, 1]
        )
        for session_id in sessions:
            prompt = it.editor.prompt(session_id, "hello")
            assert await it.editor.stop_reason(prompt) == "end_turn"


@pytest.mark.parametrize("asking", [1, 2])
async def test_a_process_of_two_sessions_that_waits_for_authenticate_gets_it_once(
    tmp_path: Path, asking: int
) -> None:
    async with bench(tmp_path) as it:
        sessions = [await it.new() for _ in range(2)]
        wants_login(it.agent, "session/prompt")
        for session_id in sessions[:asking]:
            prompt = it.editor.prompt(session_id, "hello")
            assert (await it.editor.refusal(prompt)).code == -32000
        await it.editor.ask("authenticate", {"methodId": "browser"})
        for session_id in sessions:
            prompt = it.editor.prompt(session_id, "hello")
            assert await it.editor.stop_reason(prompt) == "end_turn"
        assert [process.params("authenticate") for process in it.agent.processes] == [
            [{"methodId": "browser"}]
        ]


async def test_a_logout_reaches_every_process_and_what_was_given_is_forgotten(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        wants_login(it.agent, "session/new")
        await it.editor.ask("authenticate", TOKEN)
        for _ in range(2):
            await it.new()
        it.agent.script["logout"] = {"kept": 1}
        assert await it.editor.ask("logout", {}) == {"kept": 1}
        await until(lambda: it.agent.params("logout") == [{}, {}])
        assert (await it.editor.refused("session/new", SETUP)).code == -32000
        assert len(it.agent.params("authenticate")) == 2


async def test_a_logout_needs_a_process_and_its_refusal_is_told(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.ask("session/close", {"sessionId": session_id})
        it.agent.script["logout"] = RpcError(-32603, "not now")
        assert "not now" in (await it.editor.refused("logout", {})).message
        assert len(it.agent.processes) == 2


# --- two bridges -----------------------------------------------------------------------------


@pytest.mark.hazard("K3", "P12", "P13")
async def test_the_clients_of_two_bridges_share_the_listing_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as one, bench(tmp_path) as two:
        benches = (one, two)
        sessions = [await each.new() for each in benches]
        turns = [each.agent.stops_at("session/prompt") for each in benches]
        prompts = [
            each.editor.prompt(session_id, "hello")
            for each, session_id in zip(benches, sessions, strict=True)
        ]
        assert prompts[0] == prompts[1]
        await until(lambda: all(turn.reached for turn in turns))
        for each in benches:  # behind what it has to write itself
            await each.editor.ask("session/list", {})
        for each in benches:
            rows = (await each.editor.ask("session/list", {}))["sessions"]
            assert {row["sessionId"] for row in rows} == set(sessions)
        named = {"sessionId": sessions[0]}
        assert (await two.editor.refused("session/load", {**SETUP, **named})).code == -32600
        assert (await two.editor.refused("session/delete", named)).code == -32600
        for method in ("session/close", "session/set_mode"):
            assert (await two.editor.refused(method, named)).code == -32002
        two.editor.notify("session/cancel", named)
        two.editor.cancel_request(prompts[1])
        await until(lambda: two.agent.params("session/cancel"))
        for turn in turns:
            turn.open()
        reasons = [
            await each.editor.stop_reason(prompt)
            for each, prompt in zip(benches, prompts, strict=True)
        ]
        assert reasons == ["end_turn", "cancelled"]
        assert one.agent.params("session/cancel") == []
