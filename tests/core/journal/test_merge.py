"""Joining chunks: a replay says the same in fewer messages."""

import json
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.journal import merge
from acp_bridge.core.journal.merge import MESSAGE_LIMIT, Entry, Merger, Row, merged
from acp_bridge.core.protocol import MESSAGES
from tests.core.journal.sayings import Params, chunk, lines, text_of, tool

kinds = st.sampled_from(["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"])
chunks = st.builds(chunk, st.text(), st.none() | st.sampled_from("ab"), kinds)
marked_chunks = st.builds(
    lambda params, mark: {**params, "_meta": {"mark": mark}},
    chunks,
    st.sampled_from([1, 1.0, True, None, "1"]),
)
images = st.just(
    {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}}}
)
oddities = st.sampled_from(
    [
        {},
        {"update": 3},
        {"update": {"sessionUpdate": ["agent_message_chunk"], "content": {}}},
        {"update": {"sessionUpdate": "agent_message_chunk", "content": "text"}},
        {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text"}}},
        {"update": {"sessionUpdate": "novelty", "content": {"type": "text", "text": "x"}}},
    ]
)
updates = st.one_of(chunks, chunks, marked_chunks, images, oddities, st.builds(tool, st.just("t")))
turns = st.lists(st.tuples(st.integers(0, 2), updates), max_size=30)


def skeleton(params: Params) -> str:
    """All of an update but its text, types told apart."""
    told = json.loads(json.dumps(params))
    told["update"]["content"]["text"] = ""
    return json.dumps(told, sort_keys=True)


def is_chunk(params: Params) -> bool:
    match params:
        case {"update": {"sessionUpdate": str(kind), "content": {"type": "text", "text": str()}}}:
            return kind in MESSAGES
    return False


def expected(told: list[tuple[int, Params]]) -> list[Params]:
    """Merge in the plainest way."""

    def key(numbered: tuple[int, tuple[int, Params]]) -> object:
        number, (turn, params) = numbered
        return (turn, skeleton(params)) if is_chunk(params) else number

    joined = []
    for _, group in groupby(enumerate(told), key):
        members = [params for _, (_, params) in group]
        first = json.loads(json.dumps(members[0]))
        if is_chunk(first):
            first["update"]["content"]["text"] = "".join(map(text_of, members))
        joined.append(first)
    return joined


def exactly(values: list[Any]) -> list[str]:
    """Return a text to compare by, since `==` holds 1 and True for the same."""
    return [json.dumps(value, sort_keys=True) for value in values]


def replayed(rows: list[tuple[int, bytes]]) -> list[Any]:
    return [entry.params for entry in merged(rows)]


@pytest.mark.hazard("R1", "T3")
@given(turns)
def test_adjacent_chunks_of_one_message_become_one_and_all_else_stays(
    told: list[tuple[int, Params]],
) -> None:
    rows = [(turn, lines(params)) for turn, params in told]
    assert exactly(replayed(rows)) == exactly(expected(told))


@pytest.mark.hazard("R1")
@given(turns, st.data())
def test_what_was_merged_in_any_portions_replays_as_if_it_never_was(
    told: list[tuple[int, Params]], data: st.DataObject
) -> None:
    rows = [(turn, lines(params)) for turn, params in told]
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=5).map(sorted))
    stored: list[tuple[int, bytes]] = []
    for begin, end in pairwise([0, *cuts, len(rows)]):
        for turn, portion in groupby(rows[begin:end], lambda row: row[0]):
            stored.append((turn, b"\n".join(entry.line() for entry in merged(portion))))
    assert exactly(replayed(stored)) == exactly(replayed(rows))


@pytest.mark.hazard("R1", "T3")
@given(st.lists(updates, max_size=20))
def test_words_that_were_joined_as_they_came_replay_as_if_they_never_were(
    told: list[Params],
) -> None:
    row, each = Row(), [lines(params) + b"\n" for params in told]
    for params, line in zip(told, each, strict=True):
        if is_chunk(params) and params.keys() == {"update"}:
            row.append_words(params, line)
        else:
            row.append(line)
    count, joined = row.count, row.take()
    assert count == joined.count(b"\n")
    assert exactly(replayed([(1, joined)])) == exactly(replayed([(1, b"".join(each))]))


def test_words_of_one_message_that_come_in_one_read_are_one_line() -> None:
    row = Row()
    for number in range(3):
        params = chunk(f"{number}", "m")
        row.append_words(params, lines(params) + b"\n")
    assert json.loads(row.take()) == chunk("012", "m")
    assert row.count == 0
    assert row.take() == b""


def test_words_of_more_than_a_message_may_have_stay_apart() -> None:
    row, long = Row(), chunk("x" * MESSAGE_LIMIT)
    for params in (long, chunk("y"), chunk("z")):
        row.append_words(params, lines(params) + b"\n")
    assert [json.loads(line) for line in row.take().splitlines()] == [long, chunk("yz")]


@given(turns, st.integers(1, 8))
def test_a_page_may_end_anywhere(told: list[tuple[int, Params]], size: int) -> None:
    rows = [(turn, lines(params)) for turn, params in told]
    merger, paged = Merger(), list[Entry]()
    for begin in range(0, len(rows), size):
        for turn, said in rows[begin : begin + size]:
            paged += merger.feed(turn, said)
    assert paged + merger.flush() == merged(rows)


def test_a_line_that_joins_with_none_stays_as_it_is_byte_for_byte() -> None:
    odd = b'{ "update" : {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\\u0061"}}, "n":1e400 }'  # noqa: E501
    assert [entry.line() for entry in merged([(1, odd)])] == [odd]


@pytest.mark.hazard("K2.2")
def test_a_line_that_is_no_json_hides_no_other_and_is_not_thrown_away() -> None:
    entries = merged([(1, lines(chunk("a")) + b"\n{\x00broken\n[1]\n" + lines(chunk("b")))])
    assert [entry.params for entry in entries] == [chunk("a"), None, None, chunk("b")]
    assert [entry.line() for entry in entries[1:3]] == [b"{\x00broken", b"[1]"]


MARKS = ({"a": 1}, {"a": True}, {"a": 1.0}, {"b": 1}, None)


@pytest.mark.hazard("T3")
@pytest.mark.parametrize("message", [None, "m"])
@pytest.mark.parametrize("place", ["beside", "update", "content"])
def test_chunks_that_differ_in_anything_but_their_text_are_not_joined(
    message: str | None, place: str
) -> None:
    told = []
    for mark in MARKS:
        params = chunk("x", message)
        at = {"beside": params, "update": params["update"], "content": params["update"]["content"]}
        at[place]["_meta"] = mark
        told += [params, params]
    shown = replayed([(1, lines(chunk("x", message), *told))])
    assert [text_of(params) for params in shown] == ["x"] + ["xx"] * len(MARKS)


def test_two_turns_are_never_joined() -> None:
    assert len(merged([(1, lines(chunk("a"))), (2, lines(chunk("b")))])) == 2


def test_no_message_id_and_a_null_one_are_not_the_same_message() -> None:
    null = {"update": {**chunk("b")["update"], "messageId": None}}
    assert len(merged([(1, lines(chunk("a"), null))])) == 2


def test_halves_of_a_surrogate_pair_are_joined_without_loss() -> None:
    (entry,) = merged([(1, lines(chunk("\ud83d"), chunk("\ude00")))])
    told = json.loads(entry.line())
    assert told["update"]["content"]["text"].encode("utf-16", "surrogatepass").decode("utf-16") == (
        "\N{GRINNING FACE}"
    )


def test_a_very_long_message_comes_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MESSAGE_LIMIT", 10)
    told = [chunk("four"), chunk("four"), chunk("four"), chunk("x" * 30), chunk("y")]
    assert [text_of(params) for params in replayed([(1, lines(*told))])] == [
        "fourfour",
        "four",
        "x" * 30,
        "y",
    ]
