"""What agents ask of the client on stdin: whose the answers are, what a dead one leaves there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.machine import events as ev
from tests.core.sessions.agent import Json, Process, until
from tests.core.sessions.world import World, world

CREATE, RELEASE, TAKE_BACK = "terminal/create", "terminal/release", "$/cancel_request"
PERMISSION, FORM, READ = (
    "session/request_permission",
    "elicitation/create",
    "fs/read_text_file",
)
CAN: Json = {"fs": {"readTextFile": True}, "terminal": True, "elicitation": {"form": {}}}
CANCELLED: Json = {"outcome": {"outcome": "cancelled"}}


@asynccontextmanager
async def asking(home: Path, count: int = 1, **more: Any) -> AsyncIterator[tuple[World, Any]]:
    """A world with so many sessions, whose processes are given, and a client that can all this."""
    async with world(home, process_per_session=True, **more) as it:
        it.editor.client.abilities = ClientAbilities(CAN)
        for _ in range(count):
            await it.new()
        yield it, it.agent.living


def asks(process: Process, method: str, request_id: Any = 0, **params: Any) -> None:
    """Let an agent ask this in its session."""
    given = {"sessionId": process.agent_session_id, **params}
    process.says({"id": request_id, "method": method, "params": given})


def asked(it: World, method: str) -> list[Json]:
    """Return what the client was asked or told by this method since it was looked at last."""
    taken = it.editor.out.take()
    return [message for message in taken if message.get("method") == method]


def answers(it: World, question: Json, result: Any) -> None:
    it.editor.says({"id": question["id"], "result": result})


def told(process: Process) -> list[tuple[Any, Any]]:
    """Return what an agent was answered: the id, and the result, or the code of the error."""
    return [
        (each["id"], each["error"]["code"] if "error" in each else each["result"])
        for each in process.received
        if "method" not in each
    ]


def creates(it: World, process: Process, *terminals: object) -> None:
    """Let an agent create these terminals at the client."""
    for number, terminal in enumerate(terminals):
        asks(process, CREATE, f"create {number}")
        answers(it, asked(it, CREATE)[0], {"terminalId": terminal})


@pytest.mark.hazard("P13.1", "P10.1", "T3")
async def test_requests_of_two_agents_with_one_id_are_two_at_the_client_and_answered_apart(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, 2) as (it, (one, two)):
        for process in (one, two):
            asks(process, "_x/y", name=process.agent_session_id, n=[1, 1.0, None])
        first, second = asked(it, "_x/y")
        ids = [*it.sessions.live]
        assert first["params"] == {"sessionId": ids[0], "name": "agent-1", "n": [1, 1.0, None]}
        assert second["params"] == {"sessionId": ids[1], "name": "agent-2", "n": [1, 1.0, None]}
        assert first["id"] != second["id"]
        answers(it, second, {"for": "two"})
        error = {"code": -7, "message": "no", "data": {"kept": 1}}
        it.editor.says({"id": first["id"], "error": error})
        assert two.received[-1] == {"jsonrpc": "2.0", "id": 0, "result": {"for": "two"}}
        assert one.received[-1] == {"jsonrpc": "2.0", "id": 0, "error": error}


@pytest.mark.hazard("T3")
@pytest.mark.parametrize("params", [[1], "text", {"toolCall": "odd"}, {"toolCallId": "unknown"}])
async def test_parameters_that_are_odd_pass_as_they_are(tmp_path: Path, params: Any) -> None:
    async with asking(tmp_path) as (it, (process,)):
        process.says({"id": 1, "method": "_x/y", "params": params})
        assert asked(it, "_x/y")[0]["params"] == params


@pytest.mark.hazard("P13")
async def test_an_agent_takes_back_its_own_requests_only(tmp_path: Path) -> None:
    async with asking(tmp_path, 2) as (it, (one, two)):
        for process in (one, two):
            asks(process, "_x/y", "same")
        _, second = asked(it, "_x/y")
        for odd in ("unknown", None, [1], {"a": 1}):
            two.says({"method": TAKE_BACK, "params": {"requestId": odd}})
        assert asked(it, TAKE_BACK) == []
        two.says({"method": TAKE_BACK, "params": {"requestId": "same"}})
        assert asked(it, TAKE_BACK)[0]["params"] == {"requestId": second["id"]}
        # Its answer comes all the same, and once.
        for _ in range(2):
            it.editor.says({"id": second["id"], "error": {"code": -32800, "message": "no"}})
        assert told(two) == [("same", -32800)]
        assert told(one) == []


@pytest.mark.hazard("P13")
async def test_true_is_no_number_where_the_id_of_a_request_is_meant(tmp_path: Path) -> None:
    async with asking(tmp_path) as (it, (process,)):
        asks(process, "_x/y", 1)
        (question,) = asked(it, "_x/y")
        for odd in (True, "01", [1], None):
            process.says({"method": TAKE_BACK, "params": {"requestId": odd}})
            assert asked(it, TAKE_BACK) == []
        for same in (1, 1.0):  # one number in JSON
            process.says({"method": TAKE_BACK, "params": {"requestId": same}})
            assert asked(it, TAKE_BACK)[0]["params"] == {"requestId": question["id"]}


@pytest.mark.hazard("P13.2")
async def test_what_is_asked_for_a_request_names_it_as_the_client_that_sent_it_does(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as (it, (process,)):
        it.agent.script["session/set_mode"] = {}
        gate = it.agent.stops_at("session/set_mode")
        (session_id,) = it.sessions.live
        it.editor.send("session/set_mode", {"sessionId": session_id}, "mine")
        number = process.received[-1]["id"]
        for named in (number, float(number), number - 1, str(number), True, None):
            asks(process, READ, f"of {named!r}", requestId=named)
            given = asked(it, READ)[0]["params"]["requestId"]
            assert given == ("mine" if named == number else named)
        gate.open()
        assert await it.editor.result("mine") == {}


@pytest.mark.hazard("P3", "C10")
async def test_an_answer_to_a_dead_agent_is_nobodys_and_an_agent_is_answered_once(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as (it, (process,)):
        for number in (1, 2):
            asks(process, "_x/y", number)
        first, second = asked(it, "_x/y")
        answers(it, first, {"n": 1})
        answers(it, first, {"n": 2})
        process.dies()
        answers(it, second, {"n": 3})
        assert told(process) == [(1, {"n": 1})]


@pytest.mark.hazard("C15.2", "C18")
async def test_questions_end_with_the_turn_and_a_late_answer_of_the_client_is_nobodys(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, drain_timeout=3600) as (it, (process,)):
        gate = it.agent.stops_at("session/prompt")
        (session_id,) = it.sessions.live
        prompt = it.editor.prompt(session_id, "go")
        await until(lambda: gate.reached)
        asks(process, PERMISSION, "p", options=[{"optionId": "a", "kind": "allow_once"}])
        asks(process, FORM, "f", mode="form")
        asks(process, READ, "r")
        permission, form, reading = [m for m in it.editor.out.take() if "id" in m and "method" in m]
        it.sessions.live[session_id].feed(ev.Cancel())
        called_back = [each["params"]["requestId"] for each in asked(it, TAKE_BACK)]
        assert called_back == [permission["id"], form["id"]]
        ended = [("p", CANCELLED), ("f", -32800)]
        assert told(process) == ended
        answers(it, permission, {"outcome": {"outcome": "selected", "optionId": "a"}})
        answers(it, form, {"action": "accept"})
        assert told(process) == ended
        answers(it, reading, {"content": "c"})
        assert told(process) == [*ended, ("r", {"content": "c"})]
        gate.open()
        assert await it.editor.stop_reason(prompt) == "cancelled"


# --- terminals ------------------------------------------------------------------------------------


@pytest.mark.hazard("C19.3", "C10")
async def test_a_dead_agents_terminals_are_released_its_requests_called_back_and_no_others(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, 2) as (it, (dead, other)):
        creates(it, dead, "t1", "t2")
        creates(it, other, "t3")
        asks(dead, RELEASE, "r", terminalId="t2")
        answers(it, asked(it, RELEASE)[0], {})
        asks(dead, CREATE, "late")
        asks(other, "_x/y", "kept")
        late, _ = [m for m in it.editor.out.take() if "id" in m]
        session_id = next(iter(it.sessions.live))
        dead.dies()
        called_back, released = [m for m in it.editor.out.take() if m["method"] != "session/update"]
        assert called_back["params"] == {"requestId": late["id"]}
        assert released["method"] == RELEASE
        assert released["params"] == {"sessionId": session_id, "terminalId": "t1"}
        # The client made it nevertheless: nobody else would release it.
        answers(it, late, {"terminalId": "t4"})
        assert asked(it, RELEASE)[0]["params"]["terminalId"] == "t4"


@pytest.mark.hazard("C19")
@pytest.mark.parametrize("odd", [True, 1, None, ["t1"]])
async def test_a_release_that_names_no_terminal_releases_none(tmp_path: Path, odd: object) -> None:
    async with asking(tmp_path) as (it, (process,)):
        names = ("True", "1", "None")
        creates(it, process, *names, odd)
        asks(process, RELEASE, "r", terminalId=odd)
        answers(it, asked(it, RELEASE)[0], {})
        process.dies()
        assert [each["params"]["terminalId"] for each in asked(it, RELEASE)] == [*names]
