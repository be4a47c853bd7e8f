"""The readers that all others share: lines, and characters in halves."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agent.loose import Lines, mended, open_brackets, text_of, whole_characters

_BYTES = st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"", b"\x0b\x85"]), max_size=12)


@given(_BYTES)
def test_lines_are_the_same_however_the_bytes_come(chunks: list[bytes]) -> None:
    lines = Lines()
    found = [line for chunk in chunks for line in lines.read(chunk)]
    rest = lines.rest()
    assert [*found, *([rest] if rest else [])] == b"".join(chunks).splitlines()


@given(st.text(), st.booleans(), st.data())
def test_a_text_is_the_same_wherever_its_characters_are_cut(
    text: str, by_bytes: bool, data: st.DataObject
) -> None:
    if by_bytes:
        raw, form, errors, unit = text.encode(), "utf-8", "surrogateescape", 1
    else:
        raw, form, errors, unit = text.encode("utf-16-le"), "utf-16-le", "surrogatepass", 2
    at = sorted(data.draw(st.lists(st.integers(0, len(raw) // unit), max_size=4)))
    cuts = itertools.pairwise([0, *(unit * cut for cut in at), len(raw)])
    whole, half = "", ""
    for a, b in cuts:
        done, half = whole_characters(half + raw[a:b].decode(form, errors))
        whole += done
    assert (whole, half) == (text, "")


@given(st.text(st.characters(min_codepoint=0xD700)))
def test_no_text_keeps_half_a_character(text: str) -> None:
    mended(text).encode()


def test_brackets_in_strings_do_not_count() -> None:
    assert open_brackets(b'{"a": [{"b": "}]\\"}"') == 3
    assert open_brackets(b"]}") == -2
    assert open_brackets(b'{"a": "b') is None
    assert open_brackets(b'{"a\\\\": "}\\\\\\""') == 1


def test_a_long_text_of_quotes_and_backslashes_takes_no_longer_than_others() -> None:
    for piece in (b'"\\', b'"', b"\\", b'"a\\"'):
        assert open_brackets(piece * 1_000_001) in (0, None)


def test_bytes_are_read_in_the_encoding_of_their_mark() -> None:
    assert text_of('{"é"}'.encode("utf-16")) == '{"é"}'
    assert text_of(b'{\0"\0a\0"\0}\0') == '{"a"}'
    assert text_of("é".encode() + b"\xff") == "é\ufffd"
