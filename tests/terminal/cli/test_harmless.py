"""Escape sequences and other deceit in the text of others are shown, never obeyed."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.terminal.cli.harmless import exact, harmless, json_line, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("over\rwritten", "over\\rwritten"),
        ("back\x08\x7f", "back\\x08\\x7f"),
        ("evil\u202egpj.exe", "evil\\u202egpj.exe"),
        ("a\u2028b", "a\\u2028b"),
        ("half \ud83d", "half \\ud83d"),
        ("hidden\U000e0041\U000e0100", "hidden\\U000e0041\\U000e0100"),
        ("un\u200bseen\u2060\ufeff\u3164\xad", "un\\u200bseen\\u2060\\ufeff\\u3164\\xad"),
        ("lines\r\nof\ttext\n", "lines\nof\ttext\n"),
        ("grüße 你好 👩\u200d🚀 a\u00a0b", "grüße 你好 👩\u200d🚀 a\u00a0b"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_escaped(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text(st.characters()))
def test_no_control_is_left_but_newlines_and_tabs(text: str) -> None:
    left = {char for char in harmless(text) if unicodedata.category(char) in ("Cc", "Cs")}
    assert left <= {"\n", "\t"}
    for line in (one_line(text), exact(text)):
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]


def test_a_line_has_no_newline_whatever_stood_in_it() -> None:
    assert one_line("a\n\tb  c\x1b\n") == "a b c\\x1b"
    assert exact("a\n\tb") == "a\\n\\tb"


@given(st.text(st.characters()))
def test_json_is_one_line_without_controls_and_of_the_same_value(text: str) -> None:
    line = json_line({"text": text}).decode()
    assert json.loads(line) == {"text": text}
    assert line.splitlines() == [line.removesuffix("\n")]
    shown = {unicodedata.category(char) for char in line.removesuffix("\n")}
    assert not shown & {"Cc", "Cs", "Zl", "Zp"}
