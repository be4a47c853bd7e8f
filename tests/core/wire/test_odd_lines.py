"""What other people's programs really write: odd ids, odd bytes, odd errors."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.wire.jsonrpc import (
    UNSET,
    Answer,
    Decoder,
    Err,
    Malformed,
    Ok,
    RpcError,
    encode,
    known_id,
    read_answer,
    request,
    response,
    withdrawn,
    without_id,
)
from tests.core.wire.json_values import values
from tests.core.wire.test_peer import Conversation

BOM = b"\xef\xbb\xbf"
SAID = b'{"jsonrpc":"2.0","method":"m","params":"%s"}'


def decoded(data: bytes) -> list[Any]:
    return Decoder(joins=True).feed(data)


def messages(data: bytes) -> list[Any]:
    return [each for each in decoded(data) if not isinstance(each, Malformed)]


def said(data: bytes) -> list[str]:
    return [each["params"] for each in messages(data)]


# --- ids ----------------------------------------------------------------------------------------


@pytest.mark.hazard("Q9.2")
def test_an_answer_whose_id_came_back_as_a_text_ends_its_request_once() -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    for _ in range(5):
        talk.peer.request("a", {}, answers.append)
    talk.hear(response("5", "x"), response(5, "y"), response("5", "z"))
    assert answers == [Ok("x")]


def test_a_text_that_is_known_itself_is_taken_before_its_number() -> None:
    assert known_id("5", {"5": 1, 5: 2}) == "5"
    assert known_id(5, {"5": 1}) == "5"
    assert known_id("5", {5: 1}) == 5
    for odd in ("05", "+5", "5.0", " 5", "\u0665", "", "9" * 5000, "-5"):
        assert known_id(odd, {5: 1, -5: 1}) == odd


@pytest.mark.hazard("Q9")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":null,"params":null,"result":"x","error":null}',
        b'{"jsonrpc":"2.0","id":1,"method":"a","result":"x"}',
        b'{"jsonrpc":"2.0","id":"1","method":"","params":null,"result":"x"}',
        b'[{"jsonrpc":"2.0","id":1,"result":"x"}]',
        b'{"id":1.0,"result":"x","error":""}',
        b'{"id":1,"result":"x","error":false}',
    ],
)
def test_an_answer_with_more_members_than_one_has_is_an_answer(line: bytes) -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.peer.feed(line + b"\n")
    assert answers == [Ok("x")]


def test_a_request_with_the_members_of_an_answer_is_a_request() -> None:
    talk, answers = Conversation(), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.hear({**request(1, "b", {"x": 1}), "result": None, "error": None})
    talk.hear({**request(1.5, "b"), "result": None, "error": None})
    assert [call.method for call in talk.handler.told if call != "end"] == ["b", "b"]
    assert answers == []


def test_a_request_with_parameters_is_no_answer_to_one_of_another_method() -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.peer.feed(b'{"jsonrpc":"2.0","id":1,"method":"b","params":{},"result":"x"}\n')
    assert answers == []


def test_an_error_that_repeats_the_method_of_its_request_is_its_answer() -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.peer.feed(b'{"id":1,"method":"a","error":{"code":7,"message":"no"}}\n')
    assert answers == [Err(RpcError.received(7, "no"))]


def test_an_answer_whose_method_is_null_has_none() -> None:
    for outcome in ({"result": "x"}, {"error": {"code": 7, "message": "no"}}):
        line = json.dumps({"id": 1, "method": None, **outcome}).encode()
        assert decoded(line + b"\n") == [{"id": 1, **outcome}]


@pytest.mark.parametrize(
    ("line", "id", "answer"),
    [
        (b'{"id":[1],"result":1}', 1, True),
        (b'{"id":[1],"error":{}}', 1, True),
        (b'{"id":[[1]],"result":1}', None, True),
        (b'{"id":[1],"method":"m","result":1}', None, False),
        (b'{"id":[1]}', None, False),
    ],
)
def test_of_an_odd_id_it_is_known_whether_an_answer_has_it_and_whose(
    line: bytes, id: object, answer: bool
) -> None:
    (odd,) = decoded(line + b"\n")
    assert (odd.id, odd.answer) == (id, answer)


@pytest.mark.parametrize("form", [b"%s", BOM + b"%s", b"[%s]"])
def test_where_consent_is_read_an_answer_may_say_nothing_twice(form: bytes) -> None:
    twice = form % b'{"id":1,"result":"a","result":"b"}'
    (odd,) = Decoder(strict=True).feed(twice + b"\n")
    assert isinstance(odd, Malformed)
    assert (odd.id, odd.answer, odd.reason) == (1, True, "it may say something twice")


def test_where_consent_is_read_a_request_that_says_something_twice_is_one() -> None:
    asked = b'{"id":1,"method":"m","params":"a","params":"b"}\n'
    assert Decoder(strict=True).feed(asked) == [{"id": 1, "method": "m", "params": "b"}]


def test_by_default_a_message_is_not_spread_over_lines() -> None:
    (odd,) = Decoder().feed(b'{"id":1,\n')
    assert isinstance(odd, Malformed)


def test_who_is_asked_about_an_error_that_says_nothing_learns_whose_answer_it_is() -> None:
    asked = list[Malformed]()

    def spoiled(line: Malformed) -> RpcError:
        asked.append(line)
        return RpcError(7, "spoiled")

    assert read_answer({"id": 5, "error": {}}, spoiled) == Err(RpcError(7, "spoiled"))
    (line,) = asked
    assert (line.id, line.answer, line.reason) == (5, True, "its error says nothing")


def test_an_answer_without_an_id_is_spoiled_and_may_be_meant_for_one_request() -> None:
    line = without_id(5)
    assert (line.id, line.answer, line.reason) == (5, True, "it has no id")


def test_a_list_of_errors_says_what_each_of_them_does() -> None:
    assert read_answer({"error": ["a", {"detail": "b"}]}) == Err(RpcError(-32603, "a; b"))


def test_the_lowest_code_of_32_bits_is_kept() -> None:
    lowest = -(2**31)
    answer = read_answer({"error": {"code": lowest, "message": "m"}})
    assert answer == Err(RpcError.received(lowest, "m"))


def test_an_id_that_is_like_no_known_one_stays_as_it_is() -> None:
    for id in ("5", 5, 5.5, None):
        assert known_id(id, {7: 1, "5.5": 1, "None": 1}) is id


def test_a_request_is_withdrawn_under_any_of_its_names() -> None:
    assert [withdrawn({name: 5}) for name in ("requestId", "request_id", "id")] == [5, 5, 5]
    assert withdrawn({"id": 1, "requestId": 2}) == 2
    assert (withdrawn({}), withdrawn("5"), withdrawn(None)) == (UNSET, UNSET, UNSET)


def test_a_next_line_of_latin_1_ends_no_line() -> None:
    assert encode({"said": "a\x85b"}) == b'{"said":"a\\u0085b"}\n'


# --- bytes --------------------------------------------------------------------------------------


def test_a_byte_order_mark_at_the_beginning_is_dropped() -> None:
    assert said(BOM + SAID % b"a" + b"\n" + SAID % b"b" + b"\n") == ["a", "b"]
    assert decoded(BOM + b"\n") == []
    decoder = Decoder(joins=True)
    found = [each for byte in BOM + SAID % b"a" + b"\n" for each in decoder.feed(bytes([byte]))]
    assert [each["params"] for each in found if not isinstance(each, Malformed)] == ["a"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"caf\xe9", "caf\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"a\tb\x1b[0m\x00", "a\tb\x1b[0m\x00"),
        (b"\\ud800\xff", "\ud800\ufffd"),
    ],
)
def test_a_byte_that_is_not_utf_8_and_a_raw_control_character_cost_nothing_else(
    raw: bytes, text: str
) -> None:
    assert said(SAID % raw + b"\n") == [text]


def test_a_number_that_json_does_not_have_costs_nothing_else() -> None:
    (found,) = messages(b'{"method":"m","params":[NaN,Infinity,-Infinity,1]}\n')
    assert found["params"] == [None, math.inf, -math.inf, 1]
    assert encode(found) == b'{"method":"m","params":[null,1e999,-1e999,1]}\n'


@pytest.mark.parametrize("between", [b"", b" ", b"\r", BOM, b"\x1b[2K", b"50% ", b"log: [1] {x} "])
def test_messages_on_one_line_are_all_read_also_behind_other_text(between: bytes) -> None:
    line = between.join(SAID % each for each in (b"a", b"b", b"c"))
    assert said(line + b"\n") == ["a", "b", "c"]
    assert said(between + line + b"\n") == ["a", "b", "c"]


def test_the_message_behind_one_that_was_cut_off_is_read() -> None:
    assert said(SAID[:40] + SAID % b"a" + b"\n") == ["a"]
    assert said(SAID % b"a" + SAID[:40] + b"\n") == ["a"]


def test_several_answers_on_one_line_and_a_spoiled_one_behind_them_end_their_requests() -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    for _ in range(3):
        talk.peer.request("a", {}, answers.append)
    talk.peer.feed(b'{"id":1,"result":1}{"id":"2","result":2}{"id":3,"result":{"x":}}\n')
    assert answers[:2] == [Ok(1), Ok(2)]
    assert isinstance(answers[2], Err)


def test_a_line_full_of_beginnings_is_given_up_soon() -> None:
    line = b'{"jsonrpc":' * 100_000
    assert all(isinstance(each, Malformed) for each in decoded(line + b"\n"))


@given(st.lists(values, min_size=1, max_size=3), st.binary(max_size=12))
def test_whatever_stands_behind_messages_on_their_line_they_are_read(
    params: list[Any], behind: bytes
) -> None:
    line = b"".join(encode({"method": "m", "params": each})[:-1] for each in params)
    found = messages(line + behind.replace(b"\n", b"").replace(b"{", b"") + b"\n")
    assert repr([each["params"] for each in found]) == repr(params)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        "overloaded",
        {"error": "overloaded"},
        {"code": "E1", "details": "overloaded"},
        {"data": {"message": "overloaded"}},
        {"message": {"text": 1, "message": "overloaded"}},
        {"message": None, "reason": "overloaded"},
        ["overloaded"],
    ],
)
def test_the_words_of_an_error_are_kept_in_whatever_form_they_come(error: object) -> None:
    answer = read_answer({"id": 1, "error": error})
    assert answer == Err(RpcError(-32603, "overloaded"))


@pytest.mark.parametrize("code", ["-32000", -32000.0, -32000])
def test_the_code_of_an_error_is_read_in_whatever_form_it_comes(code: object) -> None:
    answer = read_answer({"id": 1, "error": {"code": code, "message": "log in"}})
    assert isinstance(answer, Err)
    assert answer.error.code == -32000


@pytest.mark.parametrize("result", [None, {}])
def test_an_error_beside_a_result_is_an_error(result: object) -> None:
    answer = read_answer({"id": 1, "result": result, "error": "denied"})
    assert answer == Err(RpcError(-32603, "denied"))


# --- what goes out ------------------------------------------------------------------------------


@pytest.mark.hazard("T3.6")
@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_no_reader_finds_the_end_of_a_line_inside_of_one(end: str) -> None:
    message = {"method": "m", f"k{end}": [f"ä{end}\\{end}", "\ud800"]}
    for told in (message, {"v": f"ä{end}"}):
        line = encode(told)
        assert len(line.decode().splitlines()) == 1
        assert json.loads(line) == told
        assert messages(line.replace(b"v", b"method", 1)) or told is message


# --- messages spread over lines ---------------------------------------------------------------


def spread(message: Any) -> bytes:
    return json.dumps(message, indent=2).encode() + b"\n"


@given(values, st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.integers(1, 40))
def test_a_message_spread_over_lines_is_read_however_its_bytes_are_cut(
    params: Any, end: bytes, size: int
) -> None:
    message = {"jsonrpc": "2.0", "method": "m", "params": params}
    data = spread(message).replace(b"\n", end) + SAID % b"behind" + b"\n"
    decoder = Decoder(joins=True)
    found = [
        each for at in range(0, len(data), size) for each in decoder.feed(data[at : at + size])
    ]
    assert repr(found[0]) == repr(message)
    assert [each["params"] for each in found[1:] if not isinstance(each, Malformed)] == ["behind"]
    assert not decoder.waits


@pytest.mark.parametrize(
    "data",
    [
        SAID % b"one\ntwo",
        SAID % b"one\r\ntwo",
        b'\n{"jsonrpc":"2.0"\n,"method":"m"\n,"params":"one\\ntwo"\n}',
        BOM + b'{\n"method":"m", "params":\n\n"one\\ntwo"}',
        b'{"method":"m","params":{"a":"\\\\","b":"\\"{[",\n"c":[]}}',
    ],
)
def test_a_newline_in_a_message_costs_nothing(data: bytes) -> None:
    (found,) = decoded(data + b"\n")
    assert found["method"] == "m"
    assert isinstance(found["params"], dict) or found["params"].split() == ["one", "two"]


@pytest.mark.hazard("P5")
@pytest.mark.parametrize("begun", [b"{", b'{"a":"', b'{"jsonrpc":"2.0","result":[', b"{ it's \"so"])
def test_a_message_on_its_own_line_ends_the_lines_before_it(begun: bytes) -> None:
    lines = [begun, b"noise", b"", b"{}", SAID % b"a", begun, b'[{"method":"b"}]', b""]
    found = messages(b"\n".join(lines))
    assert [each["method"] for each in found] == ["m", "b"]


@pytest.mark.hazard("P5", "Q9")
def test_lines_that_are_waited_for_in_vain_count_by_themselves() -> None:
    decoder = Decoder(joins=True)
    assert decoder.feed(b'{"jsonrpc":"2.0","id":7,"result":{"cut":\n') == []
    assert decoder.waits
    assert decoder.unfinished == 41
    (answer,) = decoder.give_up()
    assert isinstance(answer, Malformed)
    assert (answer.id, answer.answer) == (7, True)
    assert decoder.feed(b'{\n"jsonrpc": "2.0",\n "id":7,\n "result":{\n') == []
    found = decoder.eof()
    assert isinstance(found[0], Malformed)
    assert (found[0].id, found[0].answer) == (7, True)
    assert not decoder.waits
    assert decoder.give_up() == []


@pytest.mark.hazard("P5.3", "P5.4")
@pytest.mark.parametrize("line", [b"{", b'{"', b"[[[[", b'"a', b"x" * 1000])
def test_lines_that_never_end_are_bounded_and_each_is_read_a_few_times(line: bytes) -> None:
    decoder, kept = Decoder(1_000, joins=True), 0
    for _ in range(1_000):
        decoder.feed(b"{\n" if not decoder.waits else line + b"\n")
        kept = max(kept, decoder.unfinished)
    assert kept < 3_000
    decoder.feed(SAID % b"a" + b"\n")
    assert decoder.unfinished == 0


def test_a_message_that_lacks_only_its_newline_is_read_when_nothing_more_comes() -> None:
    decoder = Decoder(joins=True)
    for whole in (SAID % b"a", spread({"method": "m", "params": "b"})[:-1], b"\n" + SAID % b"c"):
        assert [*decoder.feed(whole[:9]), *decoder.feed(whole[9:])] == []
        assert decoder.waits
        (found,) = decoder.feed(b"")
        assert isinstance(found, dict)
        assert decoder.feed(b"\n") == []
        assert not decoder.waits


@pytest.mark.parametrize("part", [b'{"method":', b"5", b'"x"', b"[1]", b"x"])
def test_a_line_that_is_no_object_yet_goes_on_whenever_it_comes(part: bytes) -> None:
    decoder = Decoder(joins=True)
    assert decoder.feed(part) == decoder.feed(b"") == decoder.feed(b"") == []
    assert decoder.waits
    assert len(decoder.feed(b'"m"}\n')) == 1


# --- answers without an id that can be read -----------------------------------------------------


@pytest.mark.hazard("Q9.5")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","result":{"stopReason":"end_turn"}}',
        b'{"jsonrpc":"2.0","id":null,"result":{"stopReason":"end_turn"}}',
        b'{"id":[1],"result":{}}',
        b'{"id":{"n":1},"result":{}}',
        b'{"id":true,"result":{}}',
        b'{"jsonrpc":"2.0","result":{"cut":}}',
        b'{"jsonrpc":"2.0","result":{"cut":',
        b"{'jsonrpc': '2.0', 'id': 1, 'result': {'stopReason': 'end_turn'}}",
        b"{'result': {}, 'id': '1'}",
        b'{"id":null,"error":{}}',
    ],
)
def test_an_answer_whose_id_can_t_be_read_ends_the_only_open_request_with_an_error(
    line: bytes,
) -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.peer.feed(line + b"\n")
    talk.peer.feed(b"")
    assert answers == [Err(RpcError(-32603, "The answer was malformed"))]


def test_the_words_of_an_error_without_an_id_are_kept() -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.hear({"id": None, "error": {"code": -1, "message": "overloaded"}})
    assert answers == [Err(RpcError.received(-1, "overloaded"))]


@pytest.mark.parametrize("odd", [b"[1]", b'"1"', b"1.0"])
def test_an_odd_id_that_can_be_read_ends_its_request_among_several(odd: bytes) -> None:
    talk, first, second = Conversation(towards_client=False), list[Answer](), list[Answer]()
    talk.peer.request("a", {}, first.append)
    talk.peer.request("a", {}, second.append)
    talk.peer.feed(b'{"id":%s,"result":5}\n' % odd)
    assert len(first) == 1
    assert second == []


@pytest.mark.parametrize(
    "answer", [{"error": {"code": -32601, "message": "x"}}, {"result": None}, {"result": {}}]
)
@pytest.mark.parametrize("more", ["notification", "cancel", "request"])
def test_an_answer_without_an_id_that_can_be_for_something_else_ends_nothing(
    answer: dict[str, Any], more: str
) -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    asked = talk.peer.request("a", {}, answers.append)
    if more == "notification":
        talk.peer.notify("b")
    elif more == "cancel":
        talk.peer.cancel(asked)
    else:
        talk.peer.request("a", {}, answers.append)
    talk.hear({"id": None, **answer}, {"jsonrpc": "2.0", **answer})
    assert answers == []
    talk.hear(response(asked, "x"))
    assert answers == [Ok("x")]


@pytest.mark.parametrize(
    "line", [b'{"level":"info","result":{"x":1}}', b'{"error":"full"}', b'{"error": full}', b'"x"']
)
def test_a_line_of_a_log_answers_nothing(line: bytes) -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.peer.feed(line + b"\n")
    assert answers == []


def test_a_client_s_error_without_an_id_ends_nothing_and_its_result_ends_with_an_error() -> None:
    for answer, ended in (
        ({"error": {"code": -32700, "message": "x"}}, 0),
        ({"result": {}}, 0),
        ({"result": {"outcome": 1}}, 1),
    ):
        talk, answers = Conversation(), list[Answer]()
        talk.peer.request("a", {}, answers.append)
        talk.hear({"jsonrpc": "2.0", "id": None, **answer})
        assert len(answers) == ended
        assert all(isinstance(each, Err) for each in answers)


def test_a_result_that_says_something_is_no_answer_to_a_notification() -> None:
    talk, answers = Conversation(towards_client=False), list[Answer]()
    talk.peer.request("a", {}, answers.append)
    talk.peer.notify("b")
    talk.hear({"jsonrpc": "2.0", "result": {"stopReason": "cancelled"}})
    assert answers == [Err(RpcError(-32603, "The answer was malformed"))]


# --- what is nested too deep --------------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b'"]"' + b"]}" * (depth // 2)


@pytest.mark.hazard("P5", "T2")
@pytest.mark.parametrize("depth", [200, 900, 5_000, 20_000])
def test_what_is_nested_too_deep_in_a_notification_costs_nothing_else(depth: int) -> None:
    deep = nested(depth)
    data = b'{"method":"m","x":%s,"params":{"_meta":%s,"text":"\\"a"}}' % (deep, deep)
    (found,) = decoded(data + b"\n")
    assert found["params"]["text"] == '"a'
    assert "nested too deep" in json.dumps(found)
    assert decoded(encode(found)) == [found]
    assert decoded(data.replace(b":{", b":\n{") + b"\n") == [found]


def test_a_request_that_is_nested_too_deep_is_refused_and_so_is_consent() -> None:
    asks = b'{"id":1,"method":"m","params":%s}\n' % nested(900)
    answers = b'{"id":1,"result":{"x":%s,"y":1}}\n' % nested(900)
    assert messages(asks) == []
    (answer,) = messages(answers)
    assert answer["result"]["y"] == 1
    (spoiled,) = Decoder(strict=True, joins=True).feed(answers)
    assert isinstance(spoiled, Malformed)
    assert (spoiled.id, spoiled.answer) == (1, True)


@pytest.mark.parametrize("line", [b"[" * 200_000, b'"' + b'\\"' * 100_000, nested(900)[:-9]])
def test_what_is_nested_too_deep_and_no_json_is_given_up_soon(line: bytes) -> None:
    decoder = Decoder(joins=True)
    found = [*decoder.feed(b'{"method":' + line + b"\n"), *decoder.give_up()]
    assert all(isinstance(each, Malformed) for each in found)


@pytest.mark.hazard("Q9.2")
@pytest.mark.parametrize("params", [b"{,}", b'{"cut', nested(900), b"{'a': None}"])
@pytest.mark.parametrize("from_client", [True, False])
def test_a_request_that_can_t_be_read_is_answered_if_its_id_can_be(
    params: bytes, from_client: bool
) -> None:
    talk = Conversation(towards_client=from_client)
    talk.peer.feed(b'{"jsonrpc":"2.0","id":"x","method":"m","params":%s}\n' % params)
    talk.peer.feed(b"")
    (answer,) = talk.sent
    assert (answer["id"], answer["error"]["code"]) == ("x", -32700)


def test_a_message_that_was_written_as_json_twice_is_read_but_is_no_consent() -> None:
    answer = json.dumps(json.dumps({"id": 1, "result": {"x": 1}})).encode() + b"\n"
    assert decoded(answer) == [{"id": 1, "result": {"x": 1}}]
    (spoiled,) = Decoder(strict=True, joins=True).feed(answer)
    assert isinstance(spoiled, Malformed)
    assert (spoiled.id, spoiled.answer) == (1, True)
    assert said(json.dumps((SAID % b"a").decode()).encode() + b"\n") == ["a"]
