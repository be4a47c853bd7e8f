"""Bounded output: the beginning and the end, cut at lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.secrets import Secrets
from agent.tools.bounded_output import Bounded

pieces = st.lists(st.binary(max_size=40), max_size=40)


def filled(keep: int, data: bytes, size: int = 7) -> Bounded:
    output = Bounded(keep)
    for start in range(0, len(data), size):
        output.add(data[start : start + size])
    return output


@given(pieces, st.integers(1, 50))
def test_what_fits_is_given_as_it_is_and_no_more_is_kept(data: list[bytes], keep: int) -> None:
    output = Bounded(keep)
    for piece in data:
        output.add(piece)
    whole = b"".join(data)
    assert output.size == len(whole)
    assert output.truncated == (len(whole) > 2 * keep)
    if not output.truncated:
        assert output.text() == whole.decode("utf-8", "replace")
    else:
        assert len(output._head) + output._tail_size <= 2 * keep + 40


def test_both_ends_are_cut_where_lines_end_and_what_is_missing_is_counted() -> None:
    text = "".join(f"line {n}\n" for n in range(10)).encode()
    assert len(text) == 70
    shown = filled(20, text).text()
    assert shown == "line 0\nline 1\n[42 bytes left out; 40 can be shown]\nline 8\nline 9\n"


def test_a_line_without_an_end_is_cut_where_it_must_be() -> None:
    shown = filled(10, b"a" * 100).text()
    assert shown == "a" * 10 + "\n[80 bytes left out; 20 can be shown]\n" + "a" * 10


def test_its_end_is_given_in_whole_lines() -> None:
    assert filled(100, b"one\ntwo\nthree\n").end(100) == "one\ntwo\nthree\n"
    assert filled(100, b"one\ntwo\nthree\n").end(9) == "three\n"
    assert filled(10, b"1234567\n" * 9).end(9) == "1234567\n"


@given(st.integers(0, 80), st.integers(0, 80), st.integers(1, 20), st.integers(1, 90))
@pytest.mark.hazard("K7.1")
def test_no_part_of_a_secret_is_left_where_it_is_cut(
    before: int, after: int, size: int, end: int
) -> None:
    secret = "SECRETVALUE"
    output = Bounded(20, Secrets([secret]))
    data = (b"a" * before) + secret.encode() + (b"b" * after)
    for start in range(0, len(data), size):
        output.add(data[start : start + size])
    shown = [Secrets([secret]).mask(text) for text in (output.text(), output.end(end))]
    assert not any(letter in text for text in shown for letter in "SECRTVALU")
