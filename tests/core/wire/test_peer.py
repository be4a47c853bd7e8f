"""One end of a conversation: every request gets one answer, whatever comes in."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.protocol import ErrorCode
from acp_bridge.core.wire.jsonrpc import (
    UNSET,
    Answer,
    Decoder,
    Err,
    Malformed,
    Ok,
    RpcError,
    encode,
    notification,
    request,
    response,
)
from acp_bridge.core.wire.peer import Call, Peer
from tests.core.wire.json_values import hostile_lines

GONE = RpcError(-32603, "The agent is gone")


class Recorder:
    """A handler that writes down what it was told, and answers as the test says."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.react: Callable[[Call], None] = lambda call: None

    def on_request(self, call: Call) -> None:
        self.told.append(call)
        self.react(call)

    def on_notification(self, method: str, params: Any) -> None:
        self.told.append((method, params))
        if method == "raise":
            raise ValueError("secret")

    def on_malformed(self, line: Malformed) -> None:
        self.told.append(line)

    def on_batch_end(self) -> None:
        self.told.append("end")


class Conversation:
    """A peer with its handler, and what it has sent."""

    def __init__(self, *, towards_client: bool = True, **options: Any) -> None:
        self.handler = Recorder()
        self._sent = bytearray()
        self.peer = Peer(self.handler, self._sent.extend, towards_client=towards_client, **options)

    @property
    def sent(self) -> list[Any]:
        return Decoder().feed(bytes(self._sent))

    def hear(self, *messages: dict[str, Any]) -> None:
        self.peer.feed(b"".join(map(encode, messages)))


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def errors(sent: list[Any]) -> list[tuple[Any, int]]:
    return [(message["id"], message["error"]["code"]) for message in sent]


# -- what comes in


def test_messages_reach_the_handler_in_read_order_and_the_batch_is_closed(
    talk: Conversation,
) -> None:
    talk.hear(notification("a", {"x": 1}), request("7", "b"), notification("c"))
    assert talk.handler.told == [("a", {"x": 1}), Call("7", "b", UNSET), ("c", UNSET), "end"]
    assert talk.sent == []


def test_a_feed_that_completes_no_message_is_no_batch(talk: Conversation) -> None:
    talk.peer.feed(b'{"method":')
    talk.peer.feed(b"")
    assert talk.handler.told == []
    talk.peer.feed(b'"a"}')
    talk.peer.eof()
    assert talk.handler.told == [("a", UNSET), "end"]


def test_null_params_are_told_from_none(talk: Conversation) -> None:
    talk.hear(request(1, "a", None), notification("b", None))
    assert talk.handler.told == [Call(1, "a", None), ("b", None), "end"]


@pytest.mark.parametrize("id", [0, -1, 2**70, "", "x", "1", 1.5, None])
def test_an_answer_echoes_the_id_exactly(talk: Conversation, id: Any) -> None:
    talk.hear(request(id, "a"))
    talk.peer.answer(id, {"ok": True})
    assert repr(talk.sent) == repr([response(id, {"ok": True})])


@pytest.mark.hazard("Q9.1")
def test_a_request_gets_one_answer_however_often_it_is_answered(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    talk.hear(request(1, "a"))
    talk.peer.answer(1, "first")
    talk.peer.answer(1, "second")
    talk.peer.fail(1, GONE)
    assert talk.sent == [response(1, "first")]
    assert len(caplog.records) == 1


def test_an_id_may_be_used_again_once_it_was_answered(talk: Conversation) -> None:
    for result in ("first", "second"):
        talk.hear(request(1, "a"))
        talk.peer.answer(1, result)
    assert talk.sent == [response(1, "first"), response(1, "second")]


def test_an_id_in_flight_is_refused_and_the_first_request_goes_on(talk: Conversation) -> None:
    talk.hear(request(1, "a"), request(1, "b"))
    assert talk.handler.told == [Call(1, "a", UNSET), "end"]
    assert errors(talk.sent) == [(1, -32600)]
    talk.peer.answer(1, "first")
    assert talk.sent[1:] == [response(1, "first")]


def test_the_same_id_as_text_is_another_id(talk: Conversation) -> None:
    talk.hear(request(1, "a"), request("1", "b"))
    talk.peer.answer("1", "text")
    talk.peer.answer(1, "number")
    assert talk.sent == [response("1", "text"), response(1, "number")]


def test_an_answer_may_be_given_while_the_request_is_handed_over(talk: Conversation) -> None:
    talk.handler.react = lambda call: talk.peer.answer(call.id, call.params)
    talk.hear(request(1, "a", [1]), request(2, "a", [2]))
    assert talk.sent == [response(1, [1]), response(2, [2])]


def test_an_rpc_error_raised_by_the_handler_is_the_answer(talk: Conversation) -> None:
    def refuse(call: Call) -> None:
        raise RpcError(ErrorCode.INVALID_PARAMS, "cwd: must be absolute")

    talk.handler.react = refuse
    talk.hear(request(1, "a"))
    assert talk.sent[0]["error"] == {
        "code": -32602,
        "message": "cwd: must be absolute",
        "data": {"details": "cwd: must be absolute"},
    }


def test_an_unexpected_exception_says_nothing_of_itself_on_the_wire(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(call: Call) -> None:
        raise ValueError("secret")

    talk.handler.react = fail
    talk.hear(request(1, "a"), notification("raise"), notification("b"))
    assert [message["error"] for message in talk.sent] == [
        {"code": -32603, "message": "Internal error", "data": {"details": "Internal error"}}
    ]
    assert talk.handler.told[-2:] == [("b", UNSET), "end"]
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_the_owner_chooses_what_is_said_of_an_unexpected_exception() -> None:
    seen: list[Exception] = []

    def opaque(exc: Exception) -> RpcError:
        seen.append(exc)
        return RpcError.received(-32603, "Internal error", {"id": "e-1"})

    talk = Conversation(internal_error=opaque)
    talk.handler.react = lambda call: talk.handler.told.remove("nothing")
    talk.hear(request(1, "a"))
    assert talk.sent[0]["error"]["data"] == {"id": "e-1"}
    assert [type(exc) for exc in seen] == [ValueError]


def test_an_exception_after_the_answer_adds_no_second_one(talk: Conversation) -> None:
    def answer_and_fail(call: Call) -> None:
        talk.peer.answer(call.id, "done")
        raise ValueError

    talk.handler.react = answer_and_fail
    talk.hear(request(1, "a"))
    assert talk.sent == [response(1, "done")]


def test_a_failing_end_of_batch_does_not_end_the_conversation(talk: Conversation) -> None:
    seen: list[Exception] = []

    def opaque(exc: Exception) -> RpcError:
        seen.append(exc)
        return GONE

    talk = Conversation(internal_error=opaque)
    talk.handler.on_batch_end = lambda: talk.handler.told.remove("nothing")  # type: ignore[method-assign]
    talk.hear(notification("a"))
    talk.hear(notification("b"))
    assert talk.handler.told == [("a", UNSET), ("b", UNSET)]
    assert len(seen) == 2


@pytest.mark.parametrize("reply", ["answer", "fail"])
def test_a_result_that_json_cannot_hold_is_answered_with_an_internal_error(
    talk: Conversation, reply: str
) -> None:
    talk.hear(request(1, "a"))
    if reply == "answer":
        talk.peer.answer(1, {"v": object()})
    else:
        talk.peer.fail(1, RpcError.received(-1, "m", object()))
    assert errors(talk.sent) == [(1, -32603)]


# -- malformed lines


def test_a_client_is_answered_for_each_malformed_line(talk: Conversation) -> None:
    talk.peer.feed(b'{\n[]\n{"id":7,"method":5}\n{"id":8}\n{"id":9,"method":"a"}\n')
    assert errors(talk.sent) == [(None, -32700), (None, -32600), (7, -32600), (8, -32600)]
    assert [type(told).__name__ for told in talk.handler.told] == ["Malformed"] * 4 + [
        "Call",
        "str",
    ]


def test_noise_on_an_agents_stdout_is_told_to_the_handler_and_not_answered() -> None:
    talk = Conversation(towards_client=False)
    talk.peer.feed(b"Warning: noise\n\n[]\n")
    assert talk.sent == []
    assert [type(told).__name__ for told in talk.handler.told] == ["Malformed", "Malformed", "str"]


def test_a_line_over_the_limit_is_answered_once_and_the_rest_goes_on() -> None:
    talk = Conversation(limit=50)
    for _ in range(10):
        talk.peer.feed(b"x" * 20)
    talk.peer.feed(b"\n" + encode(notification("a")))
    assert errors(talk.sent) == [(None, -32600)]
    assert talk.handler.told[-2:] == [("a", UNSET), "end"]


# -- what goes out


def test_requests_are_numbered_and_each_answer_finds_its_own(talk: Conversation) -> None:
    answers: list[Any] = []
    for method in ("a", "b", "c"):

        def keep(answer: Answer, method: str = method) -> None:
            answers.append((method, answer))

        talk.peer.request(method, {}, keep)
    assert [(message["id"], message["method"]) for message in talk.sent] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]
    talk.hear(response(3, "C"), response(1, "A"))
    talk.hear({"id": 2, "error": {"code": -5, "message": "m", "data": None}})
    assert answers == [("c", Ok("C")), ("a", Ok("A")), ("b", Err(RpcError(-5, "m")))]


def test_a_request_without_params_leaves_the_key_out(talk: Conversation) -> None:
    talk.peer.request("a", UNSET, lambda answer: None)
    talk.peer.notify("b")
    talk.peer.notify("c", None)
    assert ["params" in message for message in talk.sent] == [False, False, True]


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"error":{"code":"x"}}',
        b'{"id":1,"error":null}',
        b'{"id":1}',
        b'{"jsonrpc":"2.0","id":1,"params":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":1,}}',
        b'{"jsonrpc":"2.0","id":"1","result":{"x":1,}}',
    ],
)
@pytest.mark.parametrize("towards_client", [True, False])
def test_a_spoiled_answer_settles_its_request(line: bytes, towards_client: bool) -> None:
    talk = Conversation(towards_client=towards_client)
    answers: list[Answer] = []
    talk.peer.request("a", {}, answers.append)
    talk.peer.feed(line + b"\n" + line + b"\n")
    assert answers == [Err(RpcError(-32603, "The answer was malformed"))]


@pytest.mark.parametrize("id", [2, "01", " 1", "1.0", 0, 1.5])
def test_an_answer_to_nothing_is_dropped_and_logged(
    talk: Conversation, id: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Answer] = []
    talk.peer.request("a", {}, answers.append)
    talk.hear(response(id, "x"), response(id, "y"))
    assert answers == []
    assert len(talk.sent) == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_fault_that_is_made_again_and_again_is_logged_once_and_briefly(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            talk.hear(request("x" * 100_000, "ask"), response(f"{number}" + "y" * 100_000, {}))
    assert len(caplog.records) == 2
    assert max(len(each.getMessage()) for each in caplog.records) < 200


def test_a_second_answer_is_dropped(talk: Conversation) -> None:
    answers: list[Answer] = []
    talk.peer.request("a", {}, answers.append)
    talk.hear(response(1, "x"), response(1, "y"))
    assert answers == [Ok("x")]


def test_true_is_no_yes_to_request_one(talk: Conversation) -> None:
    answers: list[Answer] = []
    talk.peer.request("a", {}, answers.append)
    talk.peer.feed(b'{"id":true,"result":1}\n')
    assert answers == [Err(RpcError(-32603, "The answer was malformed"))]


def test_a_failing_callback_does_not_stop_the_next_message(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(answer: Answer) -> None:
        raise ValueError

    talk.peer.request("a", {}, fail)
    talk.hear(response(1, 1), notification("b"))
    assert talk.handler.told == [("b", UNSET), "end"]
    assert len(caplog.records) == 1


def test_a_request_that_json_cannot_hold_is_refused_and_not_in_flight(talk: Conversation) -> None:
    answers: list[Answer] = []
    with pytest.raises(TypeError):
        talk.peer.request("a", object(), answers.append)
    talk.peer.close(GONE)
    assert talk.sent == []
    assert answers == []


def test_a_request_in_flight_can_be_cancelled_and_is_still_answered(talk: Conversation) -> None:
    answers: list[Answer] = []
    first = talk.peer.request("a", {}, answers.append)
    talk.peer.cancel(first)
    talk.peer.cancel(99)
    assert talk.sent[1:] == [notification("$/cancel_request", {"requestId": first})]
    talk.hear({"id": first, "error": {"code": -32800, "message": "Cancelled"}})
    talk.peer.cancel(first)
    assert answers == [Err(RpcError.received(-32800, "Cancelled"))]
    assert len(talk.sent) == 2


# -- the end


@pytest.mark.hazard("P3")
def test_closing_settles_every_request_in_flight_exactly_once(talk: Conversation) -> None:
    answers: list[Answer] = []
    for _ in range(3):
        talk.peer.request("a", {}, answers.append)
    talk.hear(response(2, "in time"))
    talk.peer.close(GONE)
    talk.peer.close(RpcError(-1, "again"))
    talk.hear(response(1, "late"), response(3, "late"))
    assert answers == [Ok("in time"), Err(GONE), Err(GONE)]


def test_a_request_after_closing_is_settled_at_once_and_not_sent(talk: Conversation) -> None:
    answers: list[Answer] = []
    talk.peer.close(GONE)
    talk.peer.request("a", {}, answers.append)
    assert answers == [Err(GONE)]
    assert talk.sent == []


def test_a_callback_that_asks_again_while_closing_is_told_the_end(talk: Conversation) -> None:
    answers: list[Answer] = []

    def ask_again(answer: Answer) -> None:
        talk.peer.request("b", {}, answers.append)

    talk.peer.request("a", {}, ask_again)
    talk.peer.close(GONE)
    assert answers == [Err(GONE)]


def test_what_the_other_side_asked_can_be_answered_after_closing(talk: Conversation) -> None:
    talk.hear(request(1, "a"))
    talk.peer.close(GONE)
    talk.peer.answer(1, "x")
    assert talk.sent == [response(1, "x")]


# -- anything at all


@given(
    st.lists(hostile_lines, max_size=12), st.booleans(), st.sampled_from(["now", "late", "raise"])
)
@pytest.mark.hazard("Q9.1")
def test_whatever_comes_in_every_line_that_asks_gets_one_answer(
    lines: list[bytes], towards_client: bool, how: str
) -> None:
    talk = Conversation(towards_client=towards_client, internal_error=lambda exc: GONE)
    calls: list[Call] = []

    def react(call: Call) -> None:
        calls.append(call)
        if how == "now":
            talk.peer.answer(call.id, call.params or None)
        elif how == "raise":
            raise ValueError

    talk.handler.react = react
    data = b"\n".join(lines)
    talk.peer.feed(data)
    talk.peer.eof()
    for call in calls if how == "late" else []:
        talk.peer.answer(call.id, None)

    decoder = Decoder()
    asked = Counter(
        repr(found.id if isinstance(found, Malformed) else found["id"])
        for found in decoder.feed(data) + decoder.eof()
        if (towards_client if isinstance(found, Malformed) else {"id", "method"} <= found.keys())
    )
    assert Counter(repr(message["id"]) for message in talk.sent) == asked


@pytest.mark.hazard("Q9.2", "P5")
@pytest.mark.parametrize("towards_client", [True, False])
def test_an_answer_that_is_too_long_is_an_answer_that_failed_and_a_request_is_refused(
    towards_client: bool,
) -> None:
    talk = Conversation(towards_client=towards_client, limit=200)
    answers: list[Answer] = []
    talk.peer.request("a", {}, answers.append)
    talk.hear(response(1, "x" * 300), request(5, "b", ["x" * 300]))
    assert answers == [Err(RpcError(-32603, "The answer was malformed"))]
    assert errors(talk.sent[1:]) == [(5, -32600)]
