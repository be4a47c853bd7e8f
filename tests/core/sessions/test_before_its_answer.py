"""What an agent asks the client before `session/new` is answered: under the bridge's own id."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.machine import events as ev
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Gate, Json, Process, until
from tests.core.sessions.world import SETUP, World, world

RAW = "0"
QUESTION = "elicitation/create"
CAN: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}},
}
ASKED = pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/request_permission", {"toolCall": {"toolCallId": "t"}, "options": []}),
        ("fs/read_text_file", {"path": "/w/a"}),
        ("fs/write_text_file", {"path": "/w/a", "content": "c"}),
        ("terminal/create", {"command": "ls"}),
        ("terminal/output", {"terminalId": "t"}),
        ("elicitation/create", {"mode": "form", "message": "?"}),
        ("_x/y", {"n": 1}),
    ],
)


def ask(process: Process, method: str, params: Json, request_id: Any = "q") -> None:
    process.says({"id": request_id, "method": method, "params": {"sessionId": RAW, **params}})


def told(process: Process, request_id: Any = "q") -> list[Json]:
    """Return the answers to a request of the process."""
    answers = [m for m in process.received if "method" not in m]
    return [m for m in answers if m["id"] == request_id]


def asked(it: World, method: str) -> list[Json]:
    return it.editor.asked(method)


def asking(it: World, *before: tuple[str, Json], wait: bool = True) -> None:
    """Let the agent ask all this before it answers `session/new`, and wait for the answers."""
    it.editor.client.abilities = ClientAbilities(CAN)

    async def new(process: Process, params: Json) -> Json:
        for number, (method, given) in enumerate(before):
            ask(process, method, given, number)
        if wait:
            await until(lambda: all(told(process, number) for number in range(len(before))))
        return {"sessionId": RAW}

    it.agent.script["session/new"] = new


@pytest.mark.hazard("P8.3", "P13")
@ASKED
async def test_a_request_carries_the_id_that_the_answer_will_give_and_is_answered(
    tmp_path: Path, method: str, params: Json
) -> None:
    async with world(tmp_path) as it:
        asking(it, (method, params))
        request = it.editor.send("session/new", SETUP)
        await until(lambda: asked(it, method))
        (question,) = asked(it, method)
        assert it.editor.answers(request) == []
        it.editor.says({"id": question["id"], "result": {"n": 1}})
        session_id = (await it.editor.result(request))["sessionId"]
        assert question["params"] == {**params, "sessionId": session_id}
        assert told(it.agent.processes[0], 0)[0]["result"] == {"n": 1}
        assert f'"{RAW}"' not in str(it.editor.messages).replace("'agentSessionId': '0'", "")


@pytest.mark.hazard("P8")
async def test_an_agent_takes_back_what_it_asked_before_and_after_the_answer(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        asking(it, ("_x/y", {"n": 1}), ("_x/y", {"n": 2}), wait=False)
        it.agent.script["session/new"] = before_and(it, it.agent.script["session/new"])
        await it.new()
        first, second = asked(it, "_x/y")
        (process,) = it.agent.processes
        process.says({"method": "$/cancel_request", "params": {"requestId": 1}})
        called_back = [message["params"] for message in asked(it, "$/cancel_request")]
        assert called_back == [{"requestId": first["id"]}, {"requestId": second["id"]}]
        it.editor.says({"id": second["id"], "error": {"code": -32800, "message": "taken back"}})
        assert told(process, 1)[0]["error"]["code"] == -32800


def before_and(it: World, work: Any) -> Any:
    """Let the agent also take its first request back, naming the session beside it."""

    async def new(process: Process, params: Json) -> Any:
        result = await work(process, params)
        named = {"requestId": 0, "sessionId": RAW}
        process.says({"method": "$/cancel_request", "params": named})
        assert asked(it, "$/cancel_request")
        return result

    return new


@pytest.mark.hazard("C19", "Q12")
async def test_what_is_open_when_the_session_has_the_process_is_called_back_when_that_dies(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        asking(it, ("terminal/create", {"command": "ls"}), ("_x/y", {}), wait=False)
        session_id = await it.new()
        (terminal,), (question,) = asked(it, "terminal/create"), asked(it, "_x/y")
        it.editor.says({"id": terminal["id"], "result": {"terminalId": "t1"}})
        it.agent.processes[0].dies()
        assert [m["params"] for m in asked(it, "$/cancel_request")] == [
            {"requestId": question["id"]}
        ]
        assert [m["params"] for m in asked(it, "terminal/release")] == [
            {"sessionId": session_id, "terminalId": "t1"}
        ]
        await it.says(session_id, "hello")


@pytest.mark.hazard("C15")
async def test_a_permission_that_was_asked_before_ends_with_the_cancel_of_the_first_turn(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, drain_timeout=3600) as it:
        asking(it, ("session/request_permission", {"options": []}), wait=False)
        session_id = await it.new()
        (process,) = it.agent.processes

        async def turn(process: Process, params: Json) -> Json:
            await until(lambda: told(process, 0))
            return {"stopReason": "cancelled"}

        it.agent.script["session/prompt"] = turn
        prompt = it.editor.prompt(session_id, "hello")
        await until(lambda: process.params("session/prompt"))
        it.sessions.live[session_id].feed(ev.Cancel())
        assert await it.editor.stop_reason(prompt) == "cancelled"
        assert told(process, 0)[0]["result"] == {"outcome": {"outcome": "cancelled"}}
        (question,) = asked(it, "session/request_permission")
        assert asked(it, "$/cancel_request")[0]["params"] == {"requestId": question["id"]}


@pytest.mark.hazard("Q9")
@pytest.mark.parametrize("named", [True, False])
async def test_what_was_asked_for_a_session_that_came_to_nothing_is_over_with_it(
    tmp_path: Path, named: bool
) -> None:
    async with world(tmp_path) as it:
        it.editor.client.abilities = ClientAbilities(CAN)

        async def new(process: Process, params: Json) -> RpcError:
            given = {"sessionId": RAW} if named else {}
            create = {"command": "ls", "sessionId": RAW}
            process.says({"id": "t", "method": "terminal/create", "params": create})
            it.editor.says(
                {"id": asked(it, "terminal/create")[0]["id"], "result": {"terminalId": "t1"}}
            )
            question = {"mode": "form", **given}
            process.says({"id": "q", "method": "elicitation/create", "params": question})
            return RpcError(-32603, "no")

        before, it.agent.script["session/new"] = it.agent.script["session/new"], new
        await it.editor.refused("session/new", SETUP)
        (process,) = it.agent.processes
        (question,) = asked(it, "elicitation/create")
        assert [m["params"] for m in asked(it, "$/cancel_request")] == (
            [{"requestId": question["id"]}] if named else []
        )
        assert [m["error"]["code"] for m in told(process)] == ([-32800] if named else [])
        assert [m["params"]["terminalId"] for m in asked(it, "terminal/release")] == ["t1"]
        it.agent.script["session/new"] = before
        await it.says(await it.new(), "hello")
        assert it.agent.processes == [process]


@pytest.mark.hazard("P8.4", "P13")
@ASKED
async def test_what_a_process_asks_for_a_session_while_none_is_made_is_refused(
    tmp_path: Path, method: str, params: Json
) -> None:
    async with world(tmp_path) as it:
        it.editor.client.abilities = ClientAbilities(CAN)
        await it.pool.ready()
        (process,) = it.agent.processes
        ask(process, method, params)
        assert told(process)[0]["error"]["code"] == -32002
        it.agent.script["session/new"] = RpcError(-32603, "no")
        await it.editor.refused("session/new", SETUP)
        ask(process, method, params, "again")
        assert told(process, "again")[0]["error"]["code"] == -32002
        assert [m for m in it.editor.messages if "method" in m] == []


@pytest.mark.hazard("Q9", "Q12")
async def test_what_is_open_is_called_back_when_the_client_gives_the_session_up(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        asking(it, ("terminal/create", {"command": "ls"}), ("_x/y", {}))
        request = it.editor.send("session/new", SETUP)
        await until(lambda: asked(it, "_x/y"))
        (terminal,), (question,) = asked(it, "terminal/create"), asked(it, "_x/y")
        it.editor.says({"id": terminal["id"], "result": {"terminalId": "t1"}})
        it.editor.cancel_request(request)
        assert (await it.editor.refusal(request)).code == -32800
        assert [m["params"] for m in asked(it, "$/cancel_request")] == [
            {"requestId": question["id"]}
        ]
        assert len(asked(it, "terminal/release")) == 1
        it.editor.says({"id": question["id"], "result": {}})  # too late, and nobody's


@pytest.mark.hazard("Q9")
@pytest.mark.parametrize("then_silent", [True, False])
async def test_an_agent_that_waits_for_the_user_is_not_silent(
    tmp_path: Path, then_silent: bool
) -> None:
    async with world(tmp_path, request_timeout=0.05) as it:
        asking(it, (QUESTION, {"mode": "form"}))
        waits, silent = it.agent.script["session/new"], Gate()

        async def new(process: Process, params: Json) -> Any:
            first = len(it.agent.params("session/new")) == 1
            result = await waits(process, params) if first else None
            if then_silent or not first:
                await silent.passed()
            return result

        it.agent.script["session/new"] = new
        request = it.editor.send("session/new", SETUP)
        await until(lambda: asked(it, QUESTION))
        # By the time at which another one is given up, this one would have been, too.
        assert "did not answer" in (await it.editor.refused("session/new", SETUP)).message
        assert it.editor.answers(request) == []
        it.editor.says({"id": asked(it, QUESTION)[0]["id"], "result": {}})
        if then_silent:
            assert "did not answer" in (await it.editor.refusal(request)).message
        else:
            assert (await it.editor.result(request))["sessionId"]


@pytest.mark.hazard("Q9")
async def test_a_setting_for_which_the_agent_asks_the_user_is_waited_for(tmp_path: Path) -> None:
    async with world(tmp_path, request_timeout=0.05) as it:
        it.editor.client.abilities = ClientAbilities(CAN)
        session_id, other = await it.new(), await it.new()

        async def set_mode(process: Process, params: Json) -> Any:
            if params["sessionId"] != "agent-1":
                await Gate().passed()
            process.says({"id": "q", "method": QUESTION, "params": {"mode": "form"}})
            await until(lambda: told(process))
            return {}

        it.agent.script["session/set_mode"] = set_mode
        first = it.editor.send("session/set_mode", {"sessionId": session_id, "modeId": "plan"})
        await until(lambda: asked(it, QUESTION))
        setting = {"sessionId": other, "modeId": "plan"}
        assert "did not answer" in (await it.editor.refused("session/set_mode", setting)).message
        assert it.editor.answers(first) == []
        it.editor.says({"id": asked(it, QUESTION)[0]["id"], "result": {}})
        assert await it.editor.result(first) == {}


@pytest.mark.hazard("Q9")
async def test_an_agent_that_waits_for_a_command_is_silent_all_the_same(tmp_path: Path) -> None:
    async with world(tmp_path, request_timeout=0.05) as it:
        asking(it, ("terminal/wait_for_exit", {"terminalId": "t"}))
        assert "did not answer" in (await it.editor.refused("session/new", SETUP)).message
