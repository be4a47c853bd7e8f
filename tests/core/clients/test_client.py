"""A client's end of the wire: its bytes, its requests in flight, and how it leaves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from acp_bridge.core import errors
from acp_bridge.core.clients.client import ANSWERED, Client, ClientRequest, Stage
from acp_bridge.core.wire.jsonrpc import Err, Ok, RequestId, RpcError, encode
from tests.core.clients.streams import Bytes, Way
from tests.core.session.memory import ClientEnd, Json
from tests.core.sessions.agent import Gate, until

FLOOD = 64 * 1024 * 1024


class Wire(ClientEnd):
    """A client whose bytes go through `Client.serve`; its requests are kept, or refused."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.way = Bytes(), Way()
        self.client = Client(self, self.read, self.way)
        #: raised by the handler instead of keeping a request.
        self.trouble: Exception | None = None

    def on_client_request(self, request: ClientRequest) -> None:
        if self.trouble:
            raise self.trouble
        super().on_client_request(request)

    def got(self) -> list[Json]:
        return self.way.take()


@asynccontextmanager
async def served() -> AsyncIterator[Wire]:
    """A client that is served; when the block ends it must be gone."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            wire = Wire()
            tasks.start_soon(wire.client.serve)
            yield wire


def line(method: str, request_id: Any = None, params: Any = None) -> bytes:
    head: Json = {"jsonrpc": "2.0", "method": method, "params": params}
    return encode(head if request_id is None else {**head, "id": request_id})


# --- what is read ----------------------------------------------------------------------------


async def test_messages_are_handed_over_in_the_order_of_reading_however_they_are_cut() -> None:
    async with served() as wire:
        whole = line("one", 1) + line("news") + line("two", 2)
        wire.read.give(whole[:5], whole[5:70], whole[70:], line("three", 3)[:-1], b"")
    assert [request.method for request in wire.requests] == ["one", "two", "three"]
    assert wire.notifications == [("news", None)]


@pytest.mark.hazard("Q9.2")
async def test_garbage_is_answered_by_its_code_and_what_follows_goes_on() -> None:
    async with served() as wire:
        garbage = (b"garbage\n", b"[1]\n", b'{"id": 7}\n', b'{"id": true, "method": "x"}\n', b"\n")
        wire.read.give(*garbage, b'{"id": 9, "result": 1}\n', line("one", 1), b"")
    assert [(m["id"], m["error"]["code"]) for m in wire.got()] == [
        (None, -32700),
        (None, -32600),
        (7, -32600),
        (None, -32600),
    ]
    assert [request.method for request in wire.requests] == ["one"]


@pytest.mark.hazard("Q9.2")
async def test_an_id_that_is_in_flight_is_refused_and_the_first_request_goes_on() -> None:
    async with served() as wire:
        wire.read.give(line("first", 1), line("second", 1), line("other", "1"), b"")
    (refusal,) = wire.got()
    assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
    for request in wire.requests:
        request.answer(request.method)
        request.answer("again")
    assert [(m["id"], m["result"]) for m in wire.got()] == [(1, "first"), ("1", "other")]


@pytest.mark.hazard("Q9.3", "K5")
@pytest.mark.parametrize(
    ("trouble", "code"), [(RpcError(-32602, "odd"), -32602), (ValueError("secret"), -32603)]
)
async def test_what_the_handler_raises_is_the_answer_without_a_librarys_text(
    trouble: Exception, code: int
) -> None:
    async with served() as wire:
        wire.trouble = trouble
        wire.read.give(line("one", 1), line("two", 2), b"")
    answers = wire.got()
    assert [(m["id"], m["error"]["code"]) for m in answers] == [(1, code), (2, code)]
    assert "secret" not in str(answers)


async def test_a_client_that_asks_and_never_reads_is_read_no_further() -> None:
    async with served() as wire:
        wire.way.stuck = FLOOD
        wire.read.give(line("one", 1), line("two", 2), b"")
        await until(lambda: wire.requests)
        await anyio.wait_all_tasks_blocked()
        assert len(wire.requests) == 1
        wire.way.take_all()
    assert len(wire.requests) == 2


# --- its first word --------------------------------------------------------------------------


async def test_one_that_does_not_begin_in_time_is_told_so_and_is_gone() -> None:
    wire = Wire()
    wire.read.give(line("session/list", 1))
    with anyio.fail_after(5):
        await wire.client.serve(greeting=0)
    last = wire.got()[-1]
    assert last["method"] == "_acp_bridge/let_go"
    assert "initialize" in last["params"]["reason"]


async def test_one_that_has_begun_in_time_stays() -> None:
    wire = Wire()
    wire.client.stage = Stage.INITIALIZING
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.client.serve, 0)
            await anyio.wait_all_tasks_blocked()
            wire.read.give(line("one", 1), b"")
    assert [request.method for request in wire.requests] == ["one"]


# --- how it leaves ---------------------------------------------------------------------------


async def test_it_is_gone_when_nothing_more_can_be_written_to_it() -> None:
    async with served() as wire:
        wire.read.give(line("one", 1))
        await until(lambda: wire.requests)
        wire.way.broken.set()
    wire.requests[0].answer("into the void")


async def test_it_is_gone_when_nothing_more_can_be_read_from_it() -> None:
    async with served() as wire:
        wire.read.give(line("one", 1), OSError(5, "input/output error"))
    assert len(wire.requests) == 1


async def test_it_is_gone_while_it_is_a_flood() -> None:
    async with served() as wire:
        wire.way.stuck = FLOOD
        wire.read.give(line("one", 1))
        await until(lambda: wire.requests)
        wire.way.broken.set()


async def test_what_was_answered_reaches_it_before_both_streams_are_closed() -> None:
    wire = Wire()
    await wire.client.end(0.3)
    assert wire.way.ended == [0.3, "closed"]
    assert wire.read.closed


# --- requests in flight ----------------------------------------------------------------------


class Desk(ClientEnd):
    """A client whose requests are answered by tasks; `work` says how."""

    def __init__(self, tasks: TaskGroup, capabilities: Json | None = None) -> None:
        super().__init__(capabilities)
        self.tasks = tasks
        self.gate = Gate()

    async def work(self, request: ClientRequest, params: Any) -> Any:
        await self.gate.passed()
        return params

    def starts(self, request_id: Any, work: Any = None) -> None:
        request = self.asks("x", {"n": request_id}, request_id)
        self.client.run(self.tasks, request, work or self.work, request.params)

    async def got(self, count: int = 1) -> list[Json]:
        """Return what it got, waiting for so many messages."""
        await until(lambda: len(self.sent.messages) >= count)
        await anyio.wait_all_tasks_blocked()
        return self.sent.take()


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            yield Desk(tasks)
            tasks.cancel_scope.cancel()


@pytest.mark.hazard("Q9.1")
async def test_a_request_is_answered_with_what_its_work_returns_raises_or_has_said() -> None:
    async def refused(request: ClientRequest, params: Any) -> Any:
        raise errors.invalid("odd")

    async def broken(request: ClientRequest, params: Any) -> Any:
        raise OSError("secret path")

    async def answers(request: ClientRequest, params: Any) -> Any:
        request.respond(Ok("by itself"))
        return ANSWERED

    async def fails(request: ClientRequest, params: Any) -> Any:
        request.respond(Err(errors.cancelled()))
        return ANSWERED

    async with desk() as it:
        it.gate.open()
        for number, work in enumerate((it.work, refused, broken, answers, fails)):
            it.starts(number, work)
        answers_by_id = sorted(await it.got(5), key=lambda message: message["id"])
        returned, refusal, internal, said, failed = answers_by_id
        assert returned["result"] == {"n": 0}
        assert refusal["error"]["code"] == -32602
        assert internal["error"]["code"] == -32603
        assert "secret" not in str(internal)
        assert said["result"] == "by itself"
        assert failed["error"]["code"] == -32800


@pytest.mark.hazard("Q9.1")
@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_that_is_cancelled_is_answered_so_and_its_work_is_ended(
    begun: bool,
) -> None:
    async with desk() as it:
        it.starts(1)
        if begun:
            await until(lambda: it.gate.reached)
        assert it.client.cancel_request(1)
        assert it.client.cancel_request(1)  # twice is no more than once
        (answer,) = await it.got()
        assert (answer["id"], answer["error"]["code"]) == (1, -32800)
        assert not it.client.cancel_request(1)
        it.gate.open()
        # The id is free again, and the next request of it is not the cancelled one.
        it.starts(1)
        assert (await it.got())[0]["result"] == {"n": 1}


@pytest.mark.hazard("Q9.1")
async def test_a_cancel_behind_the_answer_does_nothing() -> None:
    async with desk() as it:
        it.gate.open()
        it.starts(1)
        assert (await it.got())[0]["result"] == {"n": 1}
        assert not it.client.cancel_request(1)
        it.starts(1)
        assert (await it.got())[0]["result"] == {"n": 1}


@pytest.mark.hazard("Q9.1")
async def test_work_that_finishes_in_spite_of_a_cancel_is_answered_with_its_result() -> None:
    async def stubborn(request: ClientRequest, params: Any) -> Any:
        with anyio.CancelScope(shield=True):
            await it.gate.passed()
        return "done"

    async with desk() as it:
        it.starts(1, stubborn)
        await until(lambda: it.gate.reached)
        it.client.cancel_request(1)
        it.gate.open()
        (answer,) = await it.got()
        assert answer["result"] == "done"


@pytest.mark.hazard("Q9.1")
async def test_work_that_has_answered_and_is_cancelled_then_answers_no_second_time() -> None:
    async def slow_to_end(request: ClientRequest, params: Any) -> Any:
        request.answer("early")
        await it.gate.passed()
        return ANSWERED

    async with desk() as it:
        it.starts(1, slow_to_end)
        await until(lambda: it.gate.reached)
        it.client.cancel_request(1)
        (answer,) = await it.got()
        assert answer["result"] == "early"


@pytest.mark.parametrize("odd", [2, "1", None, 1.5])
async def test_an_id_of_no_request_cancels_none(odd: RequestId) -> None:
    async with desk() as it:
        it.starts(1)
        await until(lambda: it.gate.reached)
        assert not it.client.cancel_request(odd)
        it.gate.open()
        assert (await it.got())[0]["result"] == {"n": 1}


@pytest.mark.hazard("P13")
async def test_requests_of_two_clients_have_ids_of_their_own() -> None:
    async with desk() as it:
        other = Desk(it.tasks)
        for each in (it, other):
            each.starts(1)
        await until(lambda: it.gate.reached and other.gate.reached)
        assert other.client.cancel_request(1)
        assert (await other.got())[0]["error"]["code"] == -32800
        it.gate.open()
        assert (await it.got())[0]["result"] == {"n": 1}
        one, two = it.asks("x", {}, 5), other.asks("x", {}, 5)
        assert one.is_of(it.client, 5)
        assert not one.is_of(other.client, 5)
        assert not two.is_of(other.client, 6)


async def test_work_that_ends_with_the_bridge_is_not_answered() -> None:
    async with desk() as it:
        it.starts(1)
        await until(lambda: it.gate.reached)
        it.tasks.cancel_scope.cancel()
    assert it.sent.take() == []


@pytest.mark.parametrize(
    ("capabilities", "hears"),
    [
        (None, False),
        ({"_meta": {"acp_bridge": {}}}, False),
        ({"_meta": {"acp_bridge": {"accepted": True}}}, True),
    ],
)
async def test_it_hears_of_prompts_on_disk_if_it_asked_for_that(
    capabilities: Json | None, hears: bool
) -> None:
    assert ClientEnd(capabilities).client.abilities.hears_accepted is hears


# --- what is held back -----------------------------------------------------------------------


@pytest.mark.hazard("T2")
async def test_a_session_whose_id_begins_as_that_of_another_has_a_lane_of_its_own() -> None:
    end = ClientEnd()
    client = end.client
    of_s, of_s2, of_s3 = (client.hold(name) for name in ("s", "s-2", "s:3"))
    client.write(line("news", "news"), "s-2")
    for number, name in enumerate(("s", "s-2", "s-4", "s:1", "s:3")):
        end.asks("ask", {"sessionId": name}, number).answer({})
    assert [each["id"] for each in end.sent.take()] == [2]
    of_s2()
    assert [each["id"] for each in end.sent.take()] == ["news", 1]
    of_s()
    assert [each["id"] for each in end.sent.take()] == [0, 3], "a subagent of s is one of s"
    of_s3()
    assert [each["id"] for each in end.sent.take()] == [4]
