"""The process without a session: what it may say and ask."""

from typing import Any

import pytest

from tests.core.sessions.agent import Process
from tests.core.sessions.room import Room, room


def ask(process: Process, method: str, params: Any, request_id: str = "q") -> None:
    process.says({"id": request_id, "method": method, "params": params})


async def test_what_it_asks_goes_to_the_client_and_the_answer_back() -> None:
    async with room() as it:
        await it.pool.ready()
        (process,) = it.agent.processes
        ask(process, "elicitation/create", {"mode": "form"})
        (asked,) = it.editor.sent.take()
        it.editor.answers(asked["id"], {"action": "accept"})
        assert process.received[-1]["result"] == {"action": "accept"}


@pytest.mark.hazard("T3")
@pytest.mark.parametrize("odd", [None, [1], "text", {"sessionId": 5, "toolCall": "odd"}])
async def test_parameters_that_are_odd_pass_as_they_are(odd: Any) -> None:
    async with room() as it:
        await it.pool.ready()
        ask(it.agent.processes[0], "_x/y", odd)
        (asked,) = it.editor.sent.take()
        assert asked.get("params") == odd


@pytest.mark.parametrize("there", [True, False])
async def test_it_is_refused_what_the_client_can_not_do_or_if_there_is_none(there: bool) -> None:
    async with room() as it:
        await it.pool.ready()
        (process,) = it.agent.processes
        if not there:
            it.asked = None
        ask(process, "terminal/create" if there else "elicitation/create", {"mode": "form"})
        process.says({"method": "_x/news", "params": {"n": 1}})
        assert process.received[-1]["error"]["code"] == -32601
        told = [(message["method"], message["params"]) for message in it.editor.sent.take()]
        assert told == ([("_x/news", {"n": 1})] if there else [])


@pytest.mark.hazard("P8")
async def test_updates_of_a_process_without_a_session_reach_nobody() -> None:
    async with room() as it:
        await it.pool.ready()
        it.agent.processes[0].update("s", "early")
        process = it.agent.processes[0]
        process.says({"method": "session/update", "params": {"update": {"sessionUpdate": "plan"}}})
        assert it.editor.sent.take() == []


async def test_what_it_asked_is_called_back_when_it_says_so_and_when_it_dies() -> None:
    async with room() as it:
        await it.pool.ready()
        (process,) = it.agent.processes
        for request_id in ("one", "two"):
            ask(process, "elicitation/create", {"mode": "form"}, request_id)
        first, second = it.editor.sent.take()
        process.says({"method": "$/cancel_request", "params": {"requestId": "one"}})
        assert called_back(it) == [first["id"]]
        it.editor.refuses(first["id"], -32800)
        process.dies()
        assert called_back(it) == [second["id"]]


def called_back(it: Room) -> list[Any]:
    """Return the ids of the requests that the client was told nobody waits for."""
    told = it.editor.sent.take()
    assert {message["method"] for message in told} == {"$/cancel_request"}
    return [message["params"]["requestId"] for message in told]
