"""Runs: lines in succession that differ in a text alone."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_bridge.core.updates.odd_updates import TEXT, is_words
from acp_bridge.core.wire.jsonrpc import Decoder
from acp_bridge.core.wire.runs import Run, RunReader
from tests.core.wire.json_values import hostile_lines


def words(text: str, **more: Any) -> bytes:
    """A line in which an agent says `text`; `more`: further members of the update, before it."""
    update = {"sessionUpdate": "agent_message_chunk", **more}
    update["content"] = {"type": "text", "text": text}
    params = {"sessionId": "s", "update": update}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()


def read(*pieces: bytes) -> list[Any]:
    decoder = Decoder(joins=True)
    reader = RunReader(decoder, TEXT, is_words)
    return [each for piece in pieces for each in reader.feed(piece)] + decoder.eof()


def written_out(found: list[Any]) -> list[Any]:
    return [one for each in found for one in (each.each() if isinstance(each, Run) else [each])]


_LIKE = words("a")
#: lines that begin as words do, and are something else, or nothing.
_ODD = [
    _LIKE.replace(b'"a"', b'""'),
    _LIKE.replace(b'"a"', b'"\\ud800"'),
    _LIKE.replace(b'"a"', b'"a","text":"b"'),
    _LIKE.replace(b'"a"', b'"a\x01"'),
    _LIKE.replace(b'"a"', b'"a'),
    _LIKE.replace(b'"a"', b"7"),
    _LIKE.replace(b'"text": "a"', b'"text": "x", "text": "a"'),
    _LIKE.replace(b'"a"', b'"a", "annotations": {"text": "b"}'),
    _LIKE.replace(b'"type": "text", "text": "a"', b'"text": "a", "type": "text"'),
    _LIKE.replace(b'"jsonrpc"', b'"id": 1, "jsonrpc"'),
    _LIKE.replace(b" ", b""),
    _LIKE + b"\r",
    _LIKE + _LIKE,
    _LIKE[: len(_LIKE) // 2],
    b"{",
    b"",
    words("a", _meta={"text": "a"}),
    words("a", messageId='"text": "a"'),
]
#: a line with a text before the one that counts, and room for it.
_NOTED = _LIKE.replace(b'"text": "a"', b'"annotations": {"text": "%b"}, "text": "a"')
#: a message that is spread over lines.
_SPREAD = [b"{", b'"jsonrpc": "2.0", "method": "x"', b"}"]
_lines = st.one_of(
    st.builds(words, st.text(max_size=3)),
    st.builds(words, st.text(max_size=3), messageId=st.sampled_from("mn")),
    st.sampled_from(_ODD),
    hostile_lines,
)


@example([words("1", messageId=name) for name in "mnmnmnm"], [200])
@example([*_SPREAD, b""], [len(_SPREAD[0]) + 1, len(b"\n".join(_SPREAD[:2])) + 1])
@example([_NOTED % each for each in (b"a", b"b", b"c")], [len(_NOTED)])
@example([_LIKE, b"{", _LIKE, _LIKE, b""], [len(_LIKE) + 1])
@example([_LIKE, b"{", _LIKE, _LIKE, b""], [len(_LIKE) + 1, len(_LIKE) + 2])
@given(st.lists(_lines, max_size=12), st.lists(st.integers(0, 1500), max_size=4))
@pytest.mark.hazard("T3.1")
def test_runs_written_out_are_the_messages_that_each_line_is(
    lines: list[bytes], cuts: list[int]
) -> None:
    data = b"\n".join(lines)
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places) if a < b]
    decoder = Decoder(joins=True)
    alone = [each for piece in pieces for each in decoder.feed(piece)] + decoder.eof()
    assert repr(written_out(read(*pieces))) == repr(alone)


def test_words_in_the_reads_after_their_first_one_come_as_a_run() -> None:
    first, run = read(words("one") + b"\n", words("two") + b"\n" + words("three") + b"\n")
    assert not isinstance(first, Run)
    assert run.texts == ["two", "three"]


def test_a_run_goes_on_in_the_next_read_and_behind_another_line() -> None:
    read_ = read(words("one") + b"\n", words("two") + b"\n{}\n" + words("three") + b"\n")
    assert [each.texts for each in read_ if isinstance(each, Run)] == [["two"], ["three"]]


def test_what_a_listener_hears_are_whole_messages() -> None:
    heard = list[Any]()
    decoder = Decoder(joins=True)
    decoder.heard = lambda lines, messages: heard.extend(messages or ())
    reader = RunReader(decoder, TEXT, is_words)
    found = [each for text in ("one", "two") for each in reader.feed(words(text) + b"\n")]
    assert heard == found
    assert len(found) == 2


@pytest.mark.parametrize(
    "line",
    [
        words("a", _meta={}),
        words("a").replace(b"agent_message", b"user_message"),
        words("a").replace(b"session/update", b"session/other"),
        words("a").replace(b'"sessionId"', b'"_meta": {}, "sessionId"'),
    ],
)
def test_what_is_more_than_words_of_the_agent_is_no_run(line: bytes) -> None:
    assert not any(isinstance(each, Run) for each in read(line + b"\n" + line + b"\n"))
