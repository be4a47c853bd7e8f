"""Requests to an agent: one answer each, withdrawn by a caller that gives up, and their origins."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from acp_bridge.core.agents.requests import Login, Requests
from acp_bridge.core.wire.jsonrpc import Answer, Decoder, Err, Ok, RpcError, encode, error, response
from acp_bridge.core.wire.peer import Call, Peer

GONE = RpcError(-32603, "The agent is gone")


class NoHandler:
    """An agent that sends nothing but answers."""

    def on_request(self, call: Call) -> None:
        raise AssertionError(call)

    def on_notification(self, method: str, params: Any) -> None:
        raise AssertionError(method)

    def on_malformed(self, line: object) -> None:
        raise AssertionError(line)

    def on_batch_end(self) -> None:
        """Nothing is collected."""


class Agent:
    """The agent's end of the wire: what it got, and what it answers."""

    def __init__(self) -> None:
        self._got = bytearray()
        self.peer = Peer(NoHandler(), self._got.extend, towards_client=False)
        self.requests = Requests(self.peer, Login())

    @property
    def got(self) -> list[tuple[str, Any]]:
        messages: list[Any] = Decoder().feed(bytes(self._got))
        return [(message["method"], message["params"]) for message in messages]

    def answers(self, message: dict[str, Any]) -> None:
        self.peer.feed(encode(message))

    async def while_asked(self, then: Callable[[TaskGroup], None], method: str = "a") -> list[Any]:
        """Ask on nobody's behalf, do something once the request was sent, return the results."""
        results: list[Any] = []

        async def run() -> None:
            results.append(await self.requests.ask(None, method, {"x": 1}))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await anyio.wait_all_tasks_blocked()
                then(tasks)
        return results


async def test_asking_returns_the_result() -> None:
    agent = Agent()
    assert await agent.while_asked(lambda tasks: agent.answers(response(1, {"y": 2}))) == [{"y": 2}]
    assert agent.got == [("a", {"x": 1})]


async def test_asking_raises_the_agents_error() -> None:
    agent = Agent()
    agent.peer.close(GONE)
    with anyio.fail_after(5), pytest.raises(RpcError) as raised:
        await agent.requests.ask(None, "a", {})
    assert raised.value == GONE


async def test_a_cancelled_request_is_withdrawn_and_its_late_answer_dropped() -> None:
    agent = Agent()
    assert await agent.while_asked(lambda tasks: tasks.cancel_scope.cancel()) == []
    assert agent.got[1:] == [("$/cancel_request", {"requestId": 1})]
    agent.answers(response(1, "late"))
    assert len(agent.got) == 2


@pytest.mark.parametrize("method", ["session/new", "session/fork", "session/load"])
@pytest.mark.parametrize("late", ["now", "later", "left"])
async def test_a_new_session_that_comes_when_its_request_was_cancelled_is_told_once(
    method: str, late: str
) -> None:
    agent, answers, made = Agent(), list[Answer](), response(1, {"sessionId": "late"})
    agent.requests.late = answers.append

    def cancel(tasks: TaskGroup) -> None:
        tasks.cancel_scope.cancel()
        if late == "now":
            agent.answers(made)

    assert await agent.while_asked(cancel, method) == []
    if late == "left":
        agent.requests.give_up(GONE)
        answers.clear()
    if late != "now":
        agent.answers(made)
    assert answers == ([] if method == "session/load" else [Ok({"sessionId": "late"})])


@pytest.mark.parametrize("answer", [response(1, 5), error(1, GONE)])
async def test_an_origin_is_remembered_until_the_answer(answer: dict[str, Any]) -> None:
    agent, origin, answers = Agent(), object(), list[Answer]()
    first = agent.requests.send(origin, "a", {}, answers.append)
    agent.requests.send(None, "b", {}, answers.append)
    assert agent.requests.on_behalf == {first: origin}
    agent.answers(answer)
    assert agent.requests.on_behalf == {}
    assert answers in ([Ok(5)], [Err(GONE)])


async def test_a_request_that_is_refused_at_once_leaves_no_origin() -> None:
    agent, answers = Agent(), list[Answer]()
    agent.peer.close(GONE)
    agent.requests.send(object(), "a", {}, answers.append)
    assert answers == [Err(GONE)]
    assert agent.requests.on_behalf == {}
