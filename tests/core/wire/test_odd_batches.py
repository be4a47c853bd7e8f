"""Messages that come together in a list, and lines that belong to no message before one."""

import json
from typing import Any

import pytest

from acp_bridge.core.wire.jsonrpc import Answer, Decoder, Err, Malformed, Ok, request, response
from acp_bridge.core.wire.peer import Call
from tests.core.wire.test_peer import Conversation

SAID = {"jsonrpc": "2.0", "method": "m", "params": "a"}
ASKED = {"jsonrpc": "2.0", "id": 9, "method": "b"}


@pytest.mark.hazard("Q9.4")
@pytest.mark.parametrize("spoil", [b"", b"\xff"])
def test_of_messages_that_come_together_each_counts_and_each_request_is_refused(
    spoil: bytes,
) -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    line = json.dumps([SAID, ASKED, "noise", response(1, "x")]).encode()
    talk.peer.feed(line.replace(b"noise", b"noise" + spoil) + b"\n")
    assert answers == [Ok("x")]
    assert ("m", "a") in talk.handler.told
    (_, refused) = talk.sent
    assert (refused["id"], refused["error"]["code"]) == (9, -32600)


@pytest.mark.hazard("C1", "Q9")
def test_a_stop_that_comes_together_with_a_request_counts() -> None:
    talk = Conversation()
    stop = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}
    talk.peer.feed(json.dumps([ASKED, stop, {**stop, "id": 3}]).encode() + b"\n")
    assert ("session/cancel", {"sessionId": "s"}) in talk.handler.told
    assert Call(3, "session/cancel", {"sessionId": "s"}) in talk.handler.told
    assert [each["id"] for each in talk.sent] == [9]


@pytest.mark.hazard("P5", "T3")
def test_a_list_on_a_line_of_its_own_does_not_end_the_message_around_it() -> None:
    lines = [b'{"jsonrpc":"2.0",', b'"method":"m","params":{"prompt":', b'[{"type":"text"}]', b"}}"]
    (found,) = Decoder(joins=True).feed(b"\n".join([*lines, b""]))
    assert found == {"jsonrpc": "2.0", "method": "m", "params": {"prompt": [{"type": "text"}]}}


@pytest.mark.hazard("Q9", "P5.3")
@pytest.mark.parametrize("before", [b"{", b'{"a": [', b"{\n{\n{", b'{"a":"'])
@pytest.mark.parametrize("ends", [True, False])
def test_a_message_over_lines_behind_lines_that_begin_none_is_read(
    before: bytes, *, ends: bool
) -> None:
    decoder = Decoder(joins=True)
    spread = json.dumps(response(1, {"list": [{"b": 1}, {"c": 2}]}), indent=1).encode()
    found = decoder.feed(before + b"\n" + spread + b"\n")
    found += decoder.eof() if ends else decoder.feed(b"")
    assert found[-1] == response(1, {"list": [{"b": 1}, {"c": 2}]})
    assert [type(each) for each in found[:-1]] == [Malformed] * len(before.split(b"\n"))
    assert not decoder.waits


# --- requests and answers in one ----------------------------------------------------------------


@pytest.mark.hazard("Q9")
def test_an_answer_that_repeats_its_whole_request_is_an_answer() -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {"x": 1}, answers.append)
    talk.hear({**request(1, "a", {"x": 1}), "result": "x"})
    assert answers == [Ok("x")]
    assert len(talk.sent) == 1


@pytest.mark.hazard("C18", "C1")
def test_of_a_client_only_the_method_that_was_asked_makes_an_answer() -> None:
    talk, answers = Conversation(), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.hear({"id": 1, "method": "session/cancel", "result": "yes"})
    assert answers == []
    assert [each.method for each in talk.handler.told if isinstance(each, Call)] == [
        "session/cancel"
    ]
    talk.hear({"id": 1, "method": "a", "result": "x"})
    assert answers == [Ok("x")]


# --- odd ids and errors -------------------------------------------------------------------------


@pytest.mark.hazard("C1.8")
@pytest.mark.parametrize("odd", [{}, [1], True])
@pytest.mark.parametrize("method", ["session/cancel", "$/cancel_request"])
def test_a_stop_with_an_id_that_is_none_is_a_notification(odd: Any, method: str) -> None:
    talk = Conversation()
    talk.hear({"jsonrpc": "2.0", "id": odd, "method": method, "params": 1})
    assert (method, 1) in talk.handler.told
    assert not talk.sent


@pytest.mark.hazard("C1.8", "Q9")
def test_a_stop_under_the_id_of_an_open_request_counts_and_is_not_answered_there() -> None:
    talk = Conversation()
    talk.hear(request(5, "session/prompt", {}))
    talk.hear(request(5, "session/cancel", 1))
    assert ("session/cancel", 1) in talk.handler.told
    assert not talk.sent


@pytest.mark.parametrize("code", [2**31, -(2**31) - 1, 10**400, "4000000000"])
def test_a_code_that_clients_can_t_read_becomes_an_internal_error(code: object) -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.hear({"id": 1, "error": {"code": code, "message": "bad", "data": 5}})
    (answer,) = answers
    assert isinstance(answer, Err)
    assert answer.error.to_wire() == {"code": -32603, "message": "bad", "data": 5}


def test_a_request_that_comes_together_with_others_is_refused_with_the_reason() -> None:
    said, refused = Decoder().feed(json.dumps([SAID, ASKED]).encode() + b"\n")
    assert said == SAID
    assert isinstance(refused, Malformed)
    assert (refused.id, refused.asks) == (9, True)
    assert refused.reason == "requests do not come together"


def test_a_message_that_begins_over_lines_ends_the_wait_for_the_one_before_it() -> None:
    lines = b'{"id":1,\n{"jsonrpc":"2.0","id":2,\n"result":"x"}\n'
    odd, answer = Decoder(joins=True).feed(lines)
    assert isinstance(odd, Malformed)
    assert answer == response(2, "x")


def test_lines_that_are_more_than_any_message_are_given_up_and_none_is_lost() -> None:
    before, behind = b'{"id":5,"method":"m"}\n', b'{"id":6,"method":"m"}\n'
    lines = b'{"a":\n' + b'"0123456789012345",\n' * 2
    first, *given_up, last = Decoder(30, joins=True).feed(before + lines + behind)
    assert (first, last) == ({"id": 5, "method": "m"}, {"id": 6, "method": "m"})
    assert [type(each) for each in given_up] == [Malformed] * 3


def test_the_id_in_a_line_of_a_log_is_nobodys() -> None:
    (odd,) = Decoder().feed(b'{"id":5,"level":1 x\n')
    assert isinstance(odd, Malformed)
    assert (odd.id, odd.answer, odd.asks) == (None, False, False)
