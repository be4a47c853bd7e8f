"""`send`: accepted is done; with `--wait` the turn of this prompt alone is shown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.settings import Delivery
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.core.wire.peer import Call
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.sent import ConnectionLost
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.shared.sending import (
    NotAccepted,
    Sending,
    prompt_params,
)
from acp_bridge.terminal.shared.waiting import Stop
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to
from tests.terminal.shared.screens import MemoryScreen

#: the request that attaches to the session.
JOIN: tuple[str, Json] = ("_acp_bridge/attach", {"sessionId": "s", "history": "pending"})


class Sent:
    """A prompt on its way, with the bridge that it goes to."""

    def __init__(self, json: bool, delivery: Delivery | None) -> None:
        self.bridge = FakeBridge(**{"_acp_bridge/attach": {}})
        self.screen, self.stop = MemoryScreen(), Stop()
        params = prompt_params("s", "do", delivery=delivery)
        self.sending = Sending(params, self.screen, self.stop, shows=True, json=json)

    async def accepted(self) -> Call:
        call = await self.bridge.asked("session/prompt")
        told = {"sessionId": "s", "requestId": call.id, "promptId": "p"}
        self.bridge.peer.notify("_acp_bridge/accepted", told)
        return call

    def state(self, mine: bool | None) -> None:
        turn: Json = {} if mine is None else {"turn": {"promptId": "p", "mine": mine}}
        self.bridge.peer.notify("_acp_bridge/state", {"sessionId": "s", **turn})


@asynccontextmanager
async def sending(
    *, json: bool = False, delivery: Delivery | None = None
) -> AsyncIterator[tuple[Sent, Connection]]:
    sent = Sent(json, delivery)
    with anyio.fail_after(5):
        async with connection_to(sent.bridge, sent.sending) as connection:
            yield sent, connection


async def beside(sent: Sent, connection: Connection) -> Call:
    """Send until it is accepted; returns the prompt as the bridge has it."""
    calls: list[Call] = []
    async with anyio.create_task_group() as tasks:

        async def accept() -> None:
            calls.append(await sent.accepted())

        tasks.start_soon(accept)
        await sent.sending.send(connection, JOIN)
    return calls[0]


async def test_it_is_sent_when_it_is_accepted() -> None:
    async with sending() as (sent, connection):
        call = await beside(sent, connection)
        assert call.params == prompt_params("s", "do")
        assert [each.method for each in sent.bridge.calls] == [
            *("initialize", "_acp_bridge/attach", "session/prompt")
        ]
        own = sent.bridge.calls[0].params["clientCapabilities"]["_meta"]["acp_bridge"]
        assert own == {"accepted": True, "state": True, "ownTurnsOnly": True, "wholeCalls": True}
    assert "$/cancel_request" not in [method for method, _ in sent.bridge.notified]


def test_an_interrupting_prompt_says_so() -> None:
    params = prompt_params("s", "do", delivery=Delivery.INTERRUPT)
    assert params["_meta"] == {"acp_bridge": {"delivery": "interrupt"}}


async def test_a_prompt_that_is_refused_is_not_in_the_queue() -> None:
    async with sending() as (sent, connection):
        sent.bridge.answers["session/prompt"] = RpcError(-32603, "the journal can't be written")
        with pytest.raises(RpcError):
            await sent.sending.send(connection, JOIN)


async def test_a_bridge_that_ends_before_it_accepts_is_told() -> None:
    async with sending() as (sent, connection):

        def end(params: Json) -> None:
            sent.bridge.close()

        sent.bridge.answers["session/prompt"] = end
        with pytest.raises(ConnectionLost):
            await sent.sending.send(connection, JOIN)


async def test_one_who_is_interrupted_before_it_is_accepted_is_told_that_nobody_knows() -> None:
    async with sending() as (sent, connection):

        def stop(params: Json) -> None:
            sent.stop.ask(Exit.INTERRUPTED)

        sent.bridge.answers["session/prompt"] = stop
        with pytest.raises(NotAccepted, match="not known"):
            await sent.sending.send(connection, JOIN)


async def test_of_all_that_comes_only_the_own_turn_is_shown() -> None:
    async with sending() as (sent, connection):
        bridge = sent.bridge
        sent.state(mine=False)
        call = await beside(sent, connection)
        bridge.say("s", "theirs")
        sent.state(mine=None)
        bridge.say("s", "between")
        sent.state(mine=True)
        bridge.say("s", "mine")
        bridge.say("other", "elsewhere")
        bridge.peer.answer(call.id, {"stopReason": "max_tokens"})
        assert await sent.sending.wait() is Exit.LIMIT
        assert sent.screen.told == [
            "acp-bridge: the agent stopped at a limit of tokens or of requests"
        ]
    assert sent.screen.text == "mine\n"


@pytest.mark.parametrize(
    ("delivery", "told"),
    [
        ("steered", ["acp-bridge: the words joined the running turn"]),
        ("queued", ["acp-bridge: the words did not join a running turn"]),
        (None, []),
        ({"odd": 1}, []),
    ],
)
async def test_of_a_turn_that_the_words_are_to_join_all_is_shown_from_then_on(
    delivery: object, told: list[str]
) -> None:
    async with sending(delivery=Delivery.STEER) as (sent, connection):
        bridge = sent.bridge
        sent.state(mine=False)
        bridge.say("s", "before")
        call = await beside(sent, connection)
        assert call.params["_meta"] == {"acp_bridge": {"delivery": "steer"}}
        bridge.say("s", "since")
        meta = {"_meta": {"acp_bridge": {"delivery": delivery}}} if delivery else {}
        bridge.peer.answer(call.id, {"stopReason": "end_turn", **meta})
        assert await sent.sending.wait() is Exit.DONE
        assert sent.screen.told == told
    assert sent.screen.text == "since\n"


@pytest.mark.parametrize("odd", [None, [1], "end_turn"])
async def test_an_answer_that_is_no_object_ends_the_wait_as_one_without_a_reason_does(
    odd: object,
) -> None:
    async with sending() as (sent, connection):
        call = await beside(sent, connection)
        sent.bridge.peer.answer(call.id, odd)
        assert await sent.sending.wait() is Exit.DONE


async def test_as_json_the_last_line_is_the_outcome() -> None:
    async with sending(json=True) as (sent, connection):
        call = await beside(sent, connection)
        sent.state(mine=True)
        sent.bridge.say("s", "mine")
        sent.bridge.peer.answer(call.id, {"stopReason": "end_turn"})
        assert await sent.sending.wait() is Exit.DONE
    assert [line.get("exitCode") for line in sent.screen.lines] == [None, 0]


async def test_as_json_an_error_of_the_turn_is_the_outcome_too() -> None:
    async with sending(json=True) as (sent, connection):
        call = await beside(sent, connection)
        sent.bridge.peer.fail(call.id, RpcError(-32603, "the agent died"))
        with pytest.raises(RpcError):
            await sent.sending.wait()
    (line,) = sent.screen.lines
    assert (line["error"]["message"], line["exitCode"]) == ("the agent died", Exit.AGENT)


async def test_as_json_the_end_of_the_bridge_is_the_outcome_too() -> None:
    async with sending(json=True) as (sent, connection):
        await beside(sent, connection)
        sent.bridge.close()
        with pytest.raises(ConnectionLost):
            await sent.sending.wait()
    (line,) = sent.screen.lines
    assert (line["error"]["code"], line["exitCode"]) == (-32603, Exit.FAILED)


async def test_why_the_bridge_ends_the_connection_is_told() -> None:
    async with sending() as (sent, connection):
        await beside(sent, connection)
        sent.bridge.peer.notify("_acp_bridge/let_go", {"reason": "too much\x1b"})
        sent.bridge.close()
        with pytest.raises(ConnectionLost):
            await sent.sending.wait()
    assert sent.screen.told == ["acp-bridge: too much\\x1b"]


async def test_one_who_leaves_cancels_nothing() -> None:
    async with sending() as (sent, connection):
        await beside(sent, connection)
        sent.stop.ask(Exit.INTERRUPTED)
        assert await sent.sending.wait() is Exit.INTERRUPTED
    assert sent.bridge.notified == []


async def test_an_error_of_the_turn_is_the_bridges() -> None:
    async with sending() as (sent, connection):
        call = await beside(sent, connection)
        sent.bridge.peer.fail(call.id, RpcError(-32603, "the agent died"))
        with pytest.raises(RpcError, match="the agent died"):
            await sent.sending.wait()


async def test_what_the_agent_asks_is_told_and_left_to_others() -> None:
    async with sending() as (sent, connection):
        await beside(sent, connection)
        call: Any = {"toolCallId": "t", "title": "List", "rawInput": {"cmd": "rm\x1b x"}}
        card: Any = {"toolCall": call}
        sent.bridge.ask("session/request_permission", {"sessionId": "s", **card})
        await connection.initialize("again", within=5)
        assert sent.bridge.answered == []
    assert sent.screen.told == ["acp-bridge: asked: List: cmd: rm\\x1b x (acp-bridge approve s)"]


@pytest.mark.parametrize(
    ("last", "code"), [({"budget": {}}, Exit.LIMIT), ({"state": "open"}, Exit.CANCELLED)]
)
async def test_a_turn_that_is_cancelled_while_the_budget_holds_the_session_says_so(
    last: Json, code: Exit
) -> None:
    async with sending() as (sent, connection):
        call = await beside(sent, connection)
        for pause in ({"state": "held", "budget": {}}, last):
            told = {"sessionId": "s", "update": {"sessionUpdate": "session_info_update"}}
            meta = {"_meta": {"acp_bridge": {"pause": pause}}}
            sent.bridge.peer.notify("session/update", {**told, **meta})
        sent.bridge.peer.answer(call.id, {"stopReason": "cancelled"})
        assert await sent.sending.wait() is code
        assert ("budget" in sent.screen.told[-1]) == (code is Exit.LIMIT)
