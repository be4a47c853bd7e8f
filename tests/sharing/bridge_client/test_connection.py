"""A command's connection: requests and their ends, what the bridge asks, how it is closed."""

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.wire.jsonrpc import UNSET, Err, Ok, RpcError
from acp_bridge.sharing.bridge_client.by_socket import over_socket
from acp_bridge.sharing.bridge_client.connection import Connection, connected
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from tests.sharing.bridge_client.fake_bridge import FakeBridge, Notes, connection_to, living


@pytest.fixture
def notes() -> Notes:
    return Notes()


@asynccontextmanager
async def talking(notes: Notes, **answers: object) -> AsyncIterator[tuple[FakeBridge, Connection]]:
    bridge = FakeBridge(**answers)
    with anyio.fail_after(5):
        async with connection_to(bridge, notes) as connection:
            yield bridge, connection


async def test_it_initializes_with_the_abilities_that_it_is_given(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        result = await connection.initialize(
            "c", own={"accepted": True}, within=5, capabilities={"terminal": False}
        )
        assert result["protocolVersion"] == 1
        params = bridge.calls[0].params
        assert params["clientCapabilities"] == {
            "terminal": False,
            "_meta": {"acp_bridge": {"accepted": True}},
        }
        assert params["clientInfo"]["name"] == "c"


async def test_what_comes_before_an_answer_is_heard_before_it(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        sent = connection.send("session/prompt", {"sessionId": "s"})
        call = await bridge.asked("session/prompt")
        bridge.say("s", "first")
        bridge.peer.answer(call.id, {"stopReason": "end_turn"})
        bridge.say("s", "late")
        assert await sent.result(within=5) == {"stopReason": "end_turn"}
        said = [params["update"]["content"]["text"] for _, params in notes.heard]
        assert said[0] == "first"


async def test_an_error_of_the_bridge_is_raised_with_its_code(notes: Notes) -> None:
    async with talking(notes, m=RpcError(-32002, "unknown session")) as (_, connection):
        with pytest.raises(RpcError) as raised:
            await connection.request("m", {}, within=5)
        assert raised.value.code == -32002


async def test_a_request_that_is_not_answered_in_its_time_is_given_up(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        with pytest.raises(NoAnswer, match="did not answer m within"):
            await connection.request("m", {}, within=0)
        assert await bridge.told("$/cancel_request") == {"requestId": 1}


async def test_a_request_whose_caller_is_cancelled_is_given_up(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await connection.request("m", {}, within=None)

            tasks.start_soon(ask)
            await bridge.asked("m")
            tasks.cancel_scope.cancel()
        assert await bridge.told("$/cancel_request") == {"requestId": 1}


async def test_a_request_that_was_sent_may_be_left_alone(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        connection.send("session/prompt", {})
        await connection.request("initialize", {}, within=5)
    assert bridge.notified == []
    assert [call.method for call in bridge.calls] == ["session/prompt", "initialize"]


async def test_the_end_of_the_bridge_ends_every_request_also_later_ones(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        sent = connection.send("m", {})
        await bridge.asked("m")
        bridge.close()
        with pytest.raises(ConnectionLost):
            await sent.result()
        with pytest.raises(ConnectionLost):
            await connection.request("m", {}, within=5)
        await connection.ended.wait()


async def test_what_was_sent_just_before_the_end_arrives(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        connection.notify("session/cancel", {"sessionId": "s"})
        connection.close()
        await bridge.gone.wait()
        assert bridge.notified == [("session/cancel", {"sessionId": "s"})]


async def test_a_request_of_the_bridge_is_answered_once(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        bridge.ask("session/request_permission", {"sessionId": "s"})
        await connection.initialize("c", within=5)
        (request,) = notes.requests
        assert (request.method, request.params, request.open) == (
            *("session/request_permission", {"sessionId": "s"}, True),
        )
        request.answer({"outcome": 1})
        request.fail(RpcError(-1, "late"))
        assert not request.open
        await bridge.until(lambda: bridge.answered)
        assert bridge.answered == [Ok({"outcome": 1})]


async def test_a_request_that_the_bridge_withdraws_is_answered_and_told(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        request_id = bridge.ask("session/request_permission", {})
        bridge.peer.cancel(request_id)
        await bridge.until(lambda: bridge.answered)
        assert notes.withdrawn == notes.requests
        assert not notes.requests[0].open
        notes.requests[0].answer({"late": True})
        (answer,) = bridge.answered
        assert isinstance(answer, Err)
        assert answer.error.code == -32800
        await connection.initialize("c", within=5)


async def test_what_a_bridge_withdraws_after_its_answer_is_a_notification_as_any(
    notes: Notes,
) -> None:
    async with talking(notes) as (bridge, connection):
        request_id = bridge.ask("session/request_permission", {})
        await connection.initialize("c", within=5)
        notes.requests[0].answer({})
        bridge.peer.cancel(request_id)
        await connection.initialize("c", within=5)
        assert notes.withdrawn == []
        assert notes.heard == [("$/cancel_request", {"requestId": request_id})]


async def test_parameters_of_any_kind_reach_the_listener_as_they_came(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        bridge.peer.notify("a", [1, {"b": None}])
        bridge.peer.notify("b")
        bridge.ask("c", "text")  # type: ignore[arg-type]
        await connection.initialize("c", within=5)
        assert notes.heard == [("a", [1, {"b": None}]), ("b", UNSET)]
        assert notes.requests[0].call.params == "text"
        assert notes.requests[0].params == {}


async def test_a_tap_has_each_line_before_anything_is_done_about_it(notes: Notes) -> None:
    seen: list[tuple[str, bytes, int]] = []
    async with living(FakeBridge()) as bridge:

        def tap(direction: str, line: bytes) -> None:
            seen.append((direction, line, len(notes.heard)))

        async with connected(bridge.end, notes, tap=tap) as connection:
            bridge.say("s", "one")
            bridge.say("s", "two")
            await connection.initialize("c", within=5)
    (asked,) = [json.loads(line) for direction, line, _ in seen if direction == "out"]
    assert asked["method"] == "initialize"
    read = [(json.loads(line), heard) for direction, line, heard in seen if direction == "in"]
    assert [message.get("method", "answer") for message, _ in read] == [
        *("session/update", "session/update", "answer")
    ]
    assert [heard for _, heard in read] == [0, 1, 2]


async def test_a_bridge_that_refuses_the_connection_says_why(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        bridge.refuse("agents may not connect")
        bridge.close()
        await connection.ended.wait()
        assert connection.refusal == "agents may not connect"


async def test_the_bridge_is_not_read_while_the_listener_has_no_room(notes: Notes) -> None:
    async with talking(notes) as (bridge, connection):
        notes.free = anyio.Event()
        bridge.say("s", "one")
        await bridge.until(lambda: True)
        await anyio.wait_all_tasks_blocked()
        bridge.say("s", "two")
        await anyio.wait_all_tasks_blocked()
        assert len(notes.heard) == 1
        notes.free.set()
        await connection.initialize("c", within=5)
        assert len(notes.heard) == 2


async def test_an_exception_of_the_block_comes_out_as_it_is(notes: Notes) -> None:
    async with living(FakeBridge()) as bridge:
        with pytest.raises(LookupError, match="mine"):
            async with connected(bridge.end, notes):
                raise LookupError("mine")


async def test_a_socket_on_which_nobody_listens_is_an_os_error(
    tmp_path: Path, notes: Notes
) -> None:
    with pytest.raises(OSError, match="No such file"):
        async with over_socket(str(tmp_path / "none"), notes):
            pass


async def test_what_comes_while_a_connection_is_closed_is_no_error_of_the_event_loop(
    notes: Notes,
) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    # A socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(folder, "s"))
        listener.bind(path)
        listener.listen()
        async with over_socket(path, notes):
            with listener.accept()[0] as bridge:
                await anyio.wait_all_tasks_blocked()
                bridge.send(b"{}\n")
                await anyio.lowlevel.checkpoint()  # it is read in the step in which it is closed
    assert told == []
