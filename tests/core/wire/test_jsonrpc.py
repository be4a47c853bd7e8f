"""The codec: what becomes of every line, good or bad."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.protocol import ErrorCode
from acp_bridge.core.records import replace
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import (
    UNSET,
    Decoder,
    Err,
    Malformed,
    Ok,
    RpcError,
    dumps,
    encode,
    loads,
    read_answer,
    read_object,
)
from acp_bridge.core.wire.slow_json import MAX_DEPTH
from tests.core.wire.json_values import hostile_lines, messages, values

received = RpcError.received


def decode(data: bytes, limit: int = jsonrpc.DEFAULT_LIMIT) -> list[Any]:
    decoder = Decoder(limit, joins=True)
    return decoder.feed(data) + decoder.eof()


def only(data: bytes) -> Any:
    (found,) = decode(data)
    return found


def malformed(data: bytes) -> Malformed:
    found = only(data)
    assert isinstance(found, Malformed)
    return found


# -- round trips


@given(messages)
@pytest.mark.hazard("T3.1")
def test_a_message_comes_back_equal_after_encoding_and_decoding(message: Any) -> None:
    # repr tells 1 from 1.0 and True, and the order of keys.
    assert repr(only(encode(message))) == repr(message)


@given(values)
@pytest.mark.hazard("T3")
def test_another_json_reader_agrees_on_what_was_encoded(value: Any) -> None:
    assert repr(json.loads(encode({"v": value}))) == repr({"v": value})


@given(messages)
@pytest.mark.hazard("T3")
def test_a_message_written_by_another_json_writer_is_read_equal(message: Any) -> None:
    wire = json.dumps(message).replace("Infinity", "1e999").encode()
    assert repr(only(wire)) == repr(json.loads(wire))


@given(values)
def test_an_encoded_message_is_exactly_one_line(value: Any) -> None:
    line = encode({"v": value})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_a_newline_in_a_text_is_escaped() -> None:
    assert encode({"v": "a\nb\u2028"}).count(b"\n") == 1


def test_lines_are_compact_whichever_encoder_wrote_them() -> None:
    assert encode({"a": [1, "x"]}) == b'{"a":[1,"x"]}\n'
    assert encode({"a": [1, "\ud800"]}) == b'{"a":[1,"\\ud800"]}\n'


def test_text_is_written_as_it_is_and_not_escaped_also_beside_a_null() -> None:
    assert encode({"t": "é"}) == '{"t":"é"}\n'.encode()
    assert encode({"t": "é", "n": None}) == '{"t":"é","n":null}\n'.encode()


def test_a_number_beyond_a_double_stays_a_number() -> None:
    message = only(b'{"method":"m","params":[1e400,-1e400]}\n')
    assert message["params"] == [math.inf, -math.inf]
    assert encode(message) == b'{"method":"m","params":[1e999,-1e999]}\n'
    assert only(encode(message)) == message


def test_a_big_integer_keeps_every_digit() -> None:
    digits = b"1234567890" * 20
    line = b'{"id":' + digits + b',"method":"m"}\n'
    assert only(line)["id"] == int(digits)
    assert encode(only(line)) == line


def test_nan_of_our_own_goes_out_as_null() -> None:
    assert encode({"v": math.nan, "w": [math.inf]}) == b'{"v":null,"w":[1e999]}\n'
    # On the slow way too.
    assert encode({"v": math.nan, "w": "\ud800"}) == b'{"v":null,"w":"\\ud800"}\n'


@pytest.mark.parametrize("text", ["NaN", "Infinity", '"-Infinity', 'a\\"NaN', "\\", 'NaN\\\\"'])
def test_the_names_of_constants_inside_texts_are_left_alone(text: str) -> None:
    message = {"method": "m", text: [text, math.inf, text]}
    assert only(encode(message)) == message


def test_what_json_cannot_hold_is_refused_by_the_encoder() -> None:
    with pytest.raises(TypeError):
        encode({"v": object()})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="Circular"):
        encode({"v": loop})


def nested(containers: int, inner: bytes) -> bytes:
    """A message of that many containers, itself included, around `inner`."""
    brackets = containers - 1
    return b'{"id":1,"method":"m","p":' + b"[" * brackets + inner + b"]" * brackets + b"}\n"


# The second is read by the slow way: both draw the line at the same depth.
@pytest.mark.parametrize("inner", [b"1", b'"\\ud800"'])
def test_a_message_may_be_nested_just_as_deep_as_the_limit(inner: bytes) -> None:
    message = only(nested(MAX_DEPTH, inner))
    assert message["method"] == "m"
    assert only(encode(message)) == message
    for depth in (MAX_DEPTH + 1, 900, 200_000):
        assert malformed(nested(depth, inner)).error.code == ErrorCode.PARSE_ERROR


def test_objects_count_as_levels_too() -> None:
    deep = b'{"a":' * 100 + b"[" * 101 + b'"\\ud800"' + b"]" * 101 + b"}" * 100
    assert malformed(deep).error.code == ErrorCode.PARSE_ERROR


def test_a_message_wrapped_deeper_than_the_fast_encoder_goes_still_goes_out() -> None:
    value: Any = "x"
    for _ in range(400):
        value = [value]
    assert json.loads(encode({"v": value})) == {"v": value}


# -- lines


def test_a_line_of_letters_alone_is_no_blank_line() -> None:
    [found] = decode(b"X\n")
    assert isinstance(found, Malformed)


def test_blank_lines_are_skipped() -> None:
    assert decode(b'\n\r\n \t\r\n{"method":"a"}\r\n\n{"method":"b"}\n \r') == [
        {"method": "a"},
        {"method": "b"},
    ]


def test_a_last_line_without_newline_is_given_at_eof() -> None:
    decoder = Decoder(joins=True)
    assert decoder.feed(b'{"method":"a"}') == []
    assert decoder.eof() == [{"method": "a"}]
    assert decoder.eof() == []


def test_a_last_line_cut_short_is_malformed_at_eof() -> None:
    assert malformed(b'{"method":"a"').error.code == ErrorCode.PARSE_ERROR


@given(
    st.lists(hostile_lines, max_size=8), st.lists(st.integers(1, 60), max_size=20), st.booleans()
)
def test_how_the_bytes_are_cut_changes_nothing(
    lines: list[bytes], cuts: list[int], ended: bool
) -> None:
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    for limit in (10, 64, 100_000):
        decoder, found, rest = Decoder(limit), [], data
        for cut in cuts:
            found += decoder.feed(rest[:cut])
            rest = rest[cut:]
        found += decoder.feed(rest)
        assert told(found + decoder.eof()) == told(decode(data, limit))


def told(found: list[Any]) -> list[str]:
    """What was found. The id of a line that is too long may stand in bytes that come too late."""
    return [
        repr(replace(each, id=None, asks=False) if "longer than" in repr(each) else each)
        for each in found
    ]


@given(st.lists(hostile_lines, max_size=8))
def test_each_line_that_is_not_blank_gives_an_outcome(lines: list[bytes]) -> None:
    blank = [not line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r") for line in lines]
    assert [not decode(line + b"\n") for line in lines] == blank


@given(hostile_lines, messages)
@pytest.mark.hazard("P5.2")
def test_a_bad_line_hurts_neither_neighbour(bad: bytes, good: dict[str, Any]) -> None:
    found = decode(encode(good) + bad + b"\n" + encode(good))
    assert repr(found[0]) == repr(found[-1]) == repr(good)


@given(hostile_lines)
def test_whatever_was_accepted_can_be_encoded_and_answered(line: bytes) -> None:
    for found in decode(line):
        if isinstance(found, Malformed):
            assert only(encode(jsonrpc.error(found.id, found.error)))["error"]["code"] < 0
        else:
            assert repr(only(encode(found))) == repr(found)


# -- lines that are no messages


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"x",
        b"{'method':'m'}",
        b'{"method":"m",}',
        '{"method":"m"}'.encode("utf-16-le"),
        b"\x0c",
        b'{"id":' + b"9" * 10_000 + b',"method":"m"}',
    ],
)
def test_what_is_not_json_is_a_parse_error_without_id(line: bytes) -> None:
    found = malformed(line + b"\n")
    assert found == Malformed(None, RpcError(-32700, "Parse error"))


@pytest.mark.parametrize(
    ("line", "id", "reason"),
    [
        (b"[]", None, "not an object"),
        (b"5", None, "not an object"),
        (b"null", None, "not an object"),
        (b'"\\ud800"', None, "not an object"),
        (b'{"id":7,"method":5}', 7, "the method is not a string"),
        (b'{"id":"a","method":null}', "a", "the method is not a string"),
        (b'{"method":["m"]}', None, "the method is not a string"),
        (b'{"id":true,"method":"m"}', None, "the id is neither a string nor a number"),
        (b'{"id":{},"method":"m"}', None, "the id is neither a string nor a number"),
        (b"{}", None, "no method"),
        (b'{"params":{}}', None, "no method"),
    ],
)
def test_json_that_is_no_message_is_an_invalid_request(line: bytes, id: Any, reason: str) -> None:
    assert malformed(line) == Malformed(id, RpcError(-32600, f"Invalid request: {reason}"))


@pytest.mark.parametrize(
    ("id", "meant"), [("[1]", 1), ("{}", None), ("[1,2]", None), ("true", None)]
)
def test_an_answer_with_an_odd_id_is_a_spoiled_answer(id: str, meant: Any) -> None:
    reason = "the id is neither a string nor a number"
    refusal = RpcError(-32600, f"Invalid request: {reason}")
    line = b'{"id":%s,"result":1}' % id.encode()
    assert malformed(line) == Malformed(meant, refusal, answer=True)


def test_an_id_is_a_number_a_text_or_null() -> None:
    values: tuple[object, ...] = (7, 1.5, "a", None, True, {}, [1])
    assert [value for value in values if jsonrpc.is_id(value)] == [7, 1.5, "a", None]


@pytest.mark.parametrize("id", [1, "a", None])
def test_an_id_alone_is_taken_for_a_spoiled_answer(id: Any) -> None:
    found = malformed(encode({"jsonrpc": "2.0", "id": id}))
    assert found == Malformed(id, RpcError(-32600, "Invalid request: no method"), answer=True)


# -- long lines


@pytest.mark.hazard("P5.1")
def test_a_line_of_ten_megabytes_in_small_pieces_is_read() -> None:
    message = {"method": "m", "params": "x" * 10_000_000}
    line, decoder = encode(message), Decoder()
    found: list[Any] = []
    for start in range(0, len(line), 1024):  # were it quadratic, this would never end
        found += decoder.feed(line[start : start + 1024])
    assert found == [message]


@pytest.mark.hazard("P5.2")
def test_a_line_over_the_limit_is_refused_alone() -> None:
    refusal = Malformed(None, RpcError(-32600, "Invalid request: the line is longer than 20 bytes"))
    good = b'{"method":"m"}\n'
    long = b'{"method":"m","params":1}\n'
    assert decode(good + long + good, 20) == [{"method": "m"}, refusal, {"method": "m"}]
    assert decode(good + long[:-1], 20) == [{"method": "m"}, refusal]


@pytest.mark.hazard("P5.2")
def test_the_limit_itself_is_still_accepted() -> None:
    line = b'{"method":"m"}'
    assert decode(line + b"\n", len(line)) == [{"method": "m"}]
    assert decode(line, len(line)) == [{"method": "m"}]
    assert isinstance(decode(line + b"\n", len(line) - 1)[0], Malformed)
    assert isinstance(decode(line, len(line) - 1)[0], Malformed)


@pytest.mark.hazard("P5")
def test_a_line_over_the_limit_is_reported_once_and_not_kept_while_it_streams_in() -> None:
    decoder, piece = Decoder(100_000), b"x" * 50_000
    tracemalloc.start()
    try:
        found = [outcome for _ in range(1000) for outcome in decoder.feed(piece)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 1
    assert peak < 1_000_000
    assert decoder.feed(b'\n{"method":"m"}\n') == [{"method": "m"}]
    assert decoder.eof() == []


def test_a_line_over_the_limit_that_never_ends_is_reported_before_eof() -> None:
    decoder = Decoder(10)
    assert len(decoder.feed(b"x" * 11)) == 1
    assert decoder.feed(b"x" * 11) == []
    assert decoder.eof() == []
    # The stream may go on in theory (a test's pipe): the next line is a line again.
    assert decoder.feed(b"[]\n") == [
        Malformed(None, RpcError(-32600, "Invalid request: not an object"))
    ]


# -- building and telling messages


def test_messages_are_built_as_the_specification_writes_them() -> None:
    assert jsonrpc.request(1, "m", {"a": 1}) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "m",
        "params": {"a": 1},
    }
    assert jsonrpc.request("x", "m") == {"jsonrpc": "2.0", "id": "x", "method": "m"}
    assert jsonrpc.request(1, "m", None)["params"] is None
    assert jsonrpc.notification("m", []) == {"jsonrpc": "2.0", "method": "m", "params": []}
    assert jsonrpc.notification("m") == {"jsonrpc": "2.0", "method": "m"}
    assert jsonrpc.response(None, None) == {"jsonrpc": "2.0", "id": None, "result": None}
    assert jsonrpc.error(2, RpcError.received(-1, "no", [1])) == {
        "jsonrpc": "2.0",
        "id": 2,
        "error": {"code": -1, "message": "no", "data": [1]},
    }


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({"result": {"a": 1}}, Ok({"a": 1})),
        ({"result": None}, Ok(None)),
        ({"result": 1, "error": None}, Ok(1)),
        ({"error": {"code": -1, "message": "e"}}, Err(received(-1, "e"))),
        ({"error": {"code": -1, "message": "e", "data": [1]}}, Err(received(-1, "e", [1]))),
        ({"result": 1, "error": {"code": -1, "message": "e"}}, Err(received(-1, "e"))),
        ({"result": None, "error": {"code": 5, "message": ""}}, Err(received(5, ""))),
    ],
)
def test_an_answer_is_read_exactly(message: Any, answer: Any) -> None:
    read = read_answer({"id": 1, **message})
    assert read == answer
    if isinstance(read, Err):
        assert read.error.to_wire() == message["error"]


@pytest.mark.parametrize(
    "wire",
    [
        None,
        " ",
        [],
        {},
        False,
        {"code": 1},
        {"code": 1, "message": None},
    ],
)
def test_an_error_that_says_nothing_is_an_internal_error(wire: Any) -> None:
    spoiled = Err(RpcError(-32603, "The answer was malformed"))
    assert read_answer({"id": 1, "error": wire}) == spoiled


def test_an_error_that_is_a_mere_text_keeps_what_it_says() -> None:
    assert read_answer({"id": 1, "error": "no key"}) == Err(RpcError(-32603, "no key"))


@pytest.mark.hazard("P16")
@pytest.mark.parametrize("code", [{}, {"code": "ENOENT"}, {"code": True}, {"code": 1.5}])
def test_an_error_without_a_number_for_its_code_keeps_what_it_says(code: Any) -> None:
    answer = read_answer({"id": 1, "error": {**code, "message": "no such file", "data": [1]}})
    assert answer == Err(received(-32603, "no such file", [1]))


@pytest.mark.hazard("Q9.2")
@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 7, "result": {"cost": 1,}}',
        b'{"result":{"x":},"id":7}',
        b'log: {"jsonrpc":"2.0","id":7,"result":{"cut":',
        b'{"jsonrpc":"2.0","id":7,"result":{"cut":',
    ],
)
def test_an_answer_that_is_no_json_is_known_by_its_id(line: bytes) -> None:
    assert malformed(line + b"\n") == Malformed(7, RpcError(-32700, "Parse error"), answer=True)


@pytest.mark.hazard("P16.1")
def test_an_error_of_ours_says_its_sentence_where_clients_show_it() -> None:
    told = {"code": 1, "message": "m", "data": {"details": "m"}}
    assert RpcError(1, "m").to_wire() == told


@pytest.mark.hazard("P16.2")
def test_an_error_of_the_other_side_keeps_its_data_but_never_a_null() -> None:
    assert received(1, "m").to_wire() == {"code": 1, "message": "m"}
    assert received(1, "m", {"x": None}).to_wire()["data"] == {"x": None}
    null = {"code": 1, "message": "m", "data": None}
    answer = read_answer({"id": 1, "error": null})
    assert answer == Err(RpcError(1, "m"))


def test_errors_are_equal_when_they_say_the_same() -> None:
    assert received(1, "m") != RpcError(1, "m")
    assert received(1, "m", {"details": "m"}) == RpcError(1, "m")
    assert RpcError(1, "m") != (1, "m")
    assert hash(received(1, "m", [1])) == hash(received(1, "m", [1]))


def test_an_error_reads_well_in_a_log() -> None:
    assert str(RpcError(ErrorCode.AUTH_REQUIRED, "Log in")) == "Log in (-32000)"
    assert repr(UNSET) == "UNSET"
    assert not UNSET


def test_an_error_code_is_a_plain_number_on_the_wire() -> None:
    assert type(RpcError(ErrorCode.PARSE_ERROR, "m").to_wire()["code"]) is int


def test_the_codes_are_those_of_json_rpc_and_acp() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
        "AUTH_REQUIRED": -32000,
        "UNSUPPORTED_VERSION": -32022,
        "RESOURCE_NOT_FOUND": -32002,
        "REQUEST_CANCELLED": -32800,
    }


def test_the_default_limit_is_64_mib() -> None:
    assert jsonrpc.DEFAULT_LIMIT == 67_108_864


# -- lines that are too long to be read

LONG = b'{"text": "' + b"x" * 300 + b'"}'


@pytest.mark.hazard("P5", "Q9")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":' + LONG + b"}", (7, True, False)),
        (b'{ "id" : "a\\"b" , "error" : ' + LONG + b"}", ('a"b', True, False)),
        (b'{"result":' + LONG + b',"id":7}', (7, True, False)),
        (b'{"result":["' + b"x" * 99 + b'"],"id":"' + b"y" * 99 + b'"}', ("y" * 99, True, False)),
        (b'{"result":{"id":3,"x":' + LONG + b',"id":4}}', (None, True, False)),
        (b'{"jsonrpc":"2.0","id":9,"method":"m","params":' + LONG + b"}", (9, False, True)),
        (b'{"method":"m","params":' + LONG + b',"id":9}', (9, False, True)),
        (b'{"method":"m","params":' + LONG + b"}", (None, False, False)),
        (b"x" * 400, (None, False, False)),
        (b'{"id":' + b"1" * 400 + b"}", (None, False, False)),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_of_a_line_that_is_too_long_it_is_told_which_request_it_is_about(
    line: bytes, told: tuple[Any, bool, bool], piece: int
) -> None:
    decoder = Decoder(200)
    lines = line + b'\n{"method":"m"}\n'
    cut = [lines[at : at + piece] for at in range(0, len(lines), piece)]
    found = [each for data in cut for each in decoder.feed(data)]
    malformed, following = found
    assert isinstance(malformed, Malformed)
    assert "longer than 200 bytes" in malformed.error.message
    assert following == {"method": "m"}
    # A request whose id stands behind is refused before its end is known.
    seen = (malformed.id, malformed.answer, malformed.asks)
    assert seen in (told, (None, False, False))
    assert seen == told or told[2]


@pytest.mark.hazard("P5", "Q9")
def test_an_id_where_a_piece_of_a_long_answer_ends_is_not_taken_for_its_own() -> None:
    decoder = Decoder(200)
    assert decoder.feed(b'{"result":{"a":' + LONG + b',"id":3}') == []
    [found] = decoder.feed(b',"id":4}\n')
    assert isinstance(found, Malformed)
    assert (found.id, found.answer) == (4, True)


# --- who listens to the lines ---------------------------------------------------------------------


@pytest.mark.parametrize("odd", [b"", b"x", b'{"method":"\\ud800"}', b'{"method":"a long word"}'])
def test_who_listens_is_told_lines_with_their_messages_or_without_if_one_is_not_plain(
    odd: bytes,
) -> None:
    heard: list[Any] = []
    decoder = Decoder(20)
    decoder.heard = lambda *told: heard.append(told)
    one, two = b'{"method":"1"}', b'{"method":"2"}'
    assert decoder.feed(one[:9]) == []
    assert heard == []
    decoder.feed(one[9:] + b"\n" + one + b"\n" + two + b"\n" + odd + b"\n" + two)
    decoder.feed(b"\n" + two + b"\n")
    first, second = {"method": "1"}, {"method": "2"}
    assert heard == [([one], [first]), ([one, two, odd], None)] + [([two], [second])] * 2


# --- values as text -------------------------------------------------------------------------------


@given(values)
def test_a_value_as_text_comes_back_equal_from_bytes_and_from_str(value: Any) -> None:
    text = dumps(value)
    assert b"\n" not in text
    assert loads(text) == loads(text.decode()) == value
    assert read_object(text) == (value if isinstance(value, dict) else None)


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":\xff}', b"[" * 100_000])
def test_a_damaged_text_has_no_value(text: bytes) -> None:
    assert loads(text) is None
    assert read_object(text) is None
