"""Places in a transcript: the same before and after merging, and of no other transcript."""

import json
from base64 import urlsafe_b64encode
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.journal.merge import merged
from acp_bridge.core.journal.place import Cursor, From, Place, WrongCursor
from acp_bridge.core.protocol import kind_of
from acp_bridge.core.updates.growing import supersedes
from acp_bridge.core.wire.jsonrpc import read_object
from tests.core.journal.sayings import Params, chunk, lines, text_of, tool
from tests.core.journal.test_merge import is_chunk, turns

Row = tuple[int, bytes]


def said(text: str) -> Params:
    """A piece of a tool call's content in the words of version 2."""
    content = {"type": "content", "content": {"type": "text", "text": text}}
    piece = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "t", "content": content}
    return {"update": {"sessionUpdate": "_acp_bridge_said", "said": piece}}


def shown(text: str) -> Params:
    """The whole content that version 1 is shown meanwhile."""
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": content}
    return {"update": update, "_meta": {"acp_bridge": {"ofVersion1": True}}}


pieces = st.lists(
    st.tuples(st.integers(0, 1), st.builds(said, st.text(max_size=3)) | st.builds(shown, st.text()))
)
transcripts = turns | pieces


def cursors(told: list[tuple[int, Params]]) -> list[Cursor]:
    """The cursors behind each update, and at first that of the beginning."""
    place = Place("s")
    found = [place.cursor]
    for _, params in told:
        place.add(json.loads(json.dumps(params)))
        found.append(place.cursor)
    return found


def stored(told: list[tuple[int, Params]], cuts: list[int]) -> list[Row]:
    """The rows of a journal in which some portions have been merged."""
    rows = [(turn, lines(params)) for turn, params in told]
    if not cuts:
        return rows
    kept: list[Row] = []
    for begin, end in pairwise(sorted([0, *cuts, len(rows)])):
        for turn, portion in groupby(rows[begin:end], lambda row: row[0]):
            kept.append((turn, b"\n".join(entry.line() for entry in merged(portion))))
    return kept


def read_from(cursor: Cursor, rows: list[Row]) -> list[Params]:
    """What a client is shown that goes on at a cursor."""
    divided = From("s", cursor)
    found = [divided.divide(entry.params).after for entry in merged(rows) if entry.params]
    divided.end()
    return [params for params in found if params is not None]


def told_once(told: list[Params]) -> list[str]:
    """A transcript in a form that is the same however it is cut: letters, each with what it is of.

    What version 1 is shown of a content is left out, and so are texts without a letter.
    """
    flat: list[str] = []
    for params in told:
        if params.get("_meta") == {"acp_bridge": {"ofVersion1": True}}:
            continue
        if is_chunk(params):
            of = json.dumps({**params, "update": {**params["update"], "content": None}})
            flat += [of + letter for letter in text_of(params)]
        elif kind_of(params) == "_acp_bridge_said":
            flat += params["update"]["said"]["content"]["content"]["text"]
        else:
            flat.append(json.dumps(params))
    return flat


@pytest.mark.hazard("N5.2")
@given(transcripts, st.data())
def test_who_goes_on_at_any_cursor_has_the_whole_text_once_whatever_was_merged(
    told: list[tuple[int, Params]], data: st.DataObject
) -> None:
    told = [(turn, params) for turn, params in told if params]
    cuts = data.draw(st.lists(st.integers(0, len(told)), max_size=4))
    at = data.draw(st.integers(0, len(told)))
    rows = stored(told, cuts)
    had = [params for _, params in told[:at]]
    rest = read_from(cursors(told)[at], rows)
    assert told_once([*had, *rest]) == told_once([params for _, params in told])


@pytest.mark.hazard("N5.2")
@given(transcripts, st.data())
def test_the_last_place_is_the_same_before_and_after_merging(
    told: list[tuple[int, Params]], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(told)), max_size=4))
    places = []
    for rows in (stored(told, cuts), stored(told, [])):
        place = Place("s")
        for entry in merged(rows):
            place.add(entry.params or {})
        places.append(place.cursor)
    assert places == [cursors(told)[-1]] * 2


def output(text: str) -> Params:
    """A tool call's output so far."""
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": content}
    return {"update": update}


growing = st.lists(st.builds(output, st.text("ab", max_size=3)) | st.builds(chunk, st.text("cd")))


@pytest.mark.hazard("N5.7")
@given(growing, st.data())
def test_who_goes_on_at_a_cursor_has_the_last_output_whatever_was_superseded_meanwhile(
    told: list[Params], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(told)))
    rows = stored(
        [
            (1, params)
            for here, params in enumerate(told)
            if not any(supersedes(params, later) for later in told[here + 1 :])
        ],
        data.draw(st.lists(st.integers(0, len(told)), max_size=4)),
    )
    mine = cursors([(1, params) for params in told])
    all_told = [*told[:at], *read_from(mine[at], rows)]
    letters = [text_of(params) for params in all_told if is_chunk(params)]
    assert "".join(letters) == "".join(text_of(params) for params in told if is_chunk(params))
    outputs = [[params for params in each if not is_chunk(params)] for each in (all_told, told)]
    assert outputs[0][-1:] == outputs[1][-1:]


@pytest.mark.hazard("N5.2")
def test_who_has_half_a_message_gets_the_other_half_with_the_same_id() -> None:
    place = Place("s")
    place.add(chunk("half a "))
    divided = From("s", place.cursor)
    part = divided.divide(chunk("half a message"))
    assert part == (chunk("half a "), chunk("message"))
    assert divided.end().message == place.message


def test_halves_of_a_character_are_the_character_that_they_are_joined() -> None:
    half = [chunk("a\ud83d"), chunk("\ude00b")]
    rows = [(1, b"\n".join(json.dumps(each).encode() for each in half))]
    place = Place("s")
    place.add(half[0])
    assert [text_of(each) for each in read_from(place.cursor, rows)] == ["\ude00b"]
    whole = merged(rows)[0].line()
    assert read_object(whole) == chunk("a\U0001f600b")
    assert [text_of(each) for each in read_from(place.cursor, [(1, whole)])] == ["\ude00b"]


LETTERS = [(1, lines(chunk("abc"), tool("t"), chunk("def")))]


@pytest.mark.hazard("N5.5")
@pytest.mark.parametrize(
    "changed",
    [
        lines(chunk("abX"), tool("t"), chunk("def")),
        lines(chunk("abc"), tool("u"), chunk("def")),
        lines(chunk("abc", "m"), tool("t"), chunk("def")),
        lines(tool("t"), chunk("abc"), chunk("def")),
        lines(chunk("abc"), tool("t"), tool("t"), chunk("ef")),
        lines(chunk("abc"), chunk("def")),
        lines(chunk("abc")),
        b"",
    ],
)
def test_a_cursor_of_a_transcript_that_was_changed_before_it_is_refused(changed: bytes) -> None:
    place = Place("s")
    for params in (chunk("abc"), tool("t"), chunk("d")):
        place.add(params)
    assert [text_of(each) for each in read_from(place.cursor, LETTERS)] == ["ef"]
    with pytest.raises(WrongCursor):
        read_from(place.cursor, [(1, changed)])


@pytest.mark.hazard("N5.4")
def test_a_cursor_of_another_session_is_refused_even_at_the_beginning() -> None:
    with pytest.raises(WrongCursor):
        From("s", Place("t").cursor)


@pytest.mark.parametrize(
    "text",
    [None, 3, "", "a", "x" * 32, "é" * 32, urlsafe_b64encode(b"x" * 25).decode(), "=" * 32],
)
def test_what_is_no_cursor_is_refused(text: object) -> None:
    with pytest.raises(WrongCursor):
        From("s", Cursor.read(text)).end()


def test_a_cursor_is_read_as_it_was_written() -> None:
    place = Place("s\ud800")
    place.add(chunk("\0x"))
    assert Cursor.read(str(place.cursor)) == place.cursor


def test_an_empty_text_belongs_to_the_message_that_follows() -> None:
    place, found = Place("s"), []
    for params in (chunk(""), chunk("a"), chunk("x", kind="agent_thought_chunk"), chunk("b")):
        place.add(params)
        found.append(place.message)
    assert found[0] == found[1]
    assert len({*found}) == 3


def test_a_message_goes_on_behind_what_a_subagent_said_meanwhile() -> None:
    place, found = Place("s"), []
    for params in (chunk("a"), {**chunk("x"), "sessionId": "1"}, chunk("b")):
        place.add(params)
        found.append(place.message)
    assert found[0] == found[2] != found[1]
    place.add(tool("t"))
    place.add(chunk("c"))
    assert place.message not in found
