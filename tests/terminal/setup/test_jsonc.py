"""A settings file's text with one value set: everything else stays as it is, letter by letter."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.terminal.setup.jsonc import Malformed, dumped, parse, put

PATH = ("agent_servers", "acp-bridge")
VALUE = {"command": "/bin/acp-bridge", "args": ["--", "a"]}

ZED = """\
// Zed settings
//
// To see all of them, run `zed: open default settings`
{
  "theme": "One, /* dark */", // not "light"
  /* "vim_mode": true, */
  "agent_servers": {
    // mine
    "other": {
      "command": "other", // the { best }
    },
  },
  "tab_size": 4, // , the last
  // "format_on_save": "off"
}
"""


def test_a_file_with_comments_and_last_commas_gets_one_more_entry_and_nothing_else() -> None:
    assert (
        put(ZED, PATH, VALUE)
        == """\
// Zed settings
//
// To see all of them, run `zed: open default settings`
{
  "theme": "One, /* dark */", // not "light"
  /* "vim_mode": true, */
  "agent_servers": {
    // mine
    "other": {
      "command": "other", // the { best }
    },
    "acp-bridge": {
      "command": "/bin/acp-bridge",
      "args": ["--", "a"]
    },
  },
  "tab_size": 4, // , the last
  // "format_on_save": "off"
}
"""
    )


def test_a_file_without_the_section_gets_it_behind_its_last_comment() -> None:
    text = '{\n\t"a": 1 // one\n\t// the end\n}'
    assert put(text, PATH, {"b": 2}) == (
        '{\n\t"a": 1, // one\n\t// the end\n\t"agent_servers": {\n\t\t"acp-bridge": {\n'
        '\t\t\t"b": 2\n\t\t}\n\t}\n}'
    )


def test_a_value_that_is_there_is_replaced_where_it_stands() -> None:
    text = '{\r\n    "a": {"b": [1, 2], "c": 3}, // kept\r\n}\r\n'
    assert put(text, ("a", "b"), {"d": {}}) == (
        '{\r\n    "a": {"b": {\r\n        "d": {}\r\n    }, "c": 3}, // kept\r\n}\r\n'
    )


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", '{\n  "a": 1\n}\n'),
        (" \n\n", '{\n  "a": 1\n}\n'),
        ("// mine\n", '// mine\n{\n  "a": 1\n}\n'),
        ("{}", '{\n  "a": 1\n}'),
        ("{ }\n", '{ \n  "a": 1\n}\n'),
        ("{ // none\n}", '{ // none\n  "a": 1\n}'),
        ('{"b": 2}', '{"b": 2,\n  "a": 1\n}'),
        ('{"b": 2,}', '{"b": 2,\n  "a": 1,\n}'),
        ('{"b": 2 /* , */}', '{"b": 2, /* , */\n  "a": 1\n}'),
        ('\ufeff{"b": 2}', '\ufeff{"b": 2,\n  "a": 1\n}'),
    ],
)
def test_the_first_member_and_the_last_comma_find_their_place(text: str, after: str) -> None:
    assert put(text, ("a",), 1) == after


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "1", "{", "}", "{} {}", '{"a" 1}', '{"a": 1 "b": 2}', "{,}", '{"a": [1,,2]}'),
        *("{'a': 1}", '{"a": tru}', '{"a": "\n"}', '{"a": 01}', "{} // x\n]", "/* {}", "nullx"),
        '{"a":' * 100_000,
    ],
)
def test_what_is_no_settings_file_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        put(text, PATH, VALUE)


def test_a_section_that_is_no_object_is_refused_and_named() -> None:
    with pytest.raises(Malformed, match="'agent_servers' is no object"):
        put('{"agent_servers": []}', PATH, VALUE)


def test_a_section_that_stands_twice_is_refused_since_nobody_knows_which_counts() -> None:
    with pytest.raises(Malformed, match="'agent_servers' 2 times"):
        put('{"agent_servers": {}, "agent_servers": {}}', PATH, VALUE)


def test_the_line_that_can_not_be_read_is_named() -> None:
    with pytest.raises(Malformed, match="line 3"):
        parse('{\n  "a": 1\n  "b": 2\n}')


NAMES = st.sampled_from(["a", "b", "agent_servers", "acp-bridge", "//", "é\\\"'"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(NAMES, each, max_size=3),
    max_leaves=8,
)
BLANKS: st.SearchStrategy[str] = st.lists(
    st.sampled_from([" ", "\n", "\t", "\r\n", "// ,} x\n", "/* ] */", "/* a\n\n */"]), max_size=2
).map("".join)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON with comments, odd white space and last commas."""
    blank = draw(BLANKS)
    if isinstance(value, dict):
        parts = [
            f"{draw(BLANKS)}{dumped(key).strip()}{draw(BLANKS)}:{draw(written(each))}"
            for key, each in value.items()
        ]
        return f"{blank}{{{_joined(draw, parts)}}}{draw(BLANKS)}"
    if isinstance(value, list):
        return f"{blank}[{_joined(draw, [draw(written(each)) for each in value])}]{draw(BLANKS)}"
    return f"{blank}{dumped(value).strip()}{draw(BLANKS)}"


def _joined(draw: st.DrawFn, parts: list[str]) -> str:
    comma = draw(st.sampled_from(["", ","])) if parts else ""
    return ",".join(parts) + comma + draw(BLANKS)


@st.composite
def files(draw: st.DrawFn) -> str:
    return draw(written(draw(st.dictionaries(NAMES, JSON, max_size=4))))


@given(files(), st.lists(NAMES, min_size=1, max_size=3), JSON)
def test_of_any_file_nothing_but_the_value_changes(text: str, path: list[str], value: Any) -> None:
    document: Any = parse(text)
    for name in path[:-1]:
        document = document.get(name, {})
        if not isinstance(document, dict):
            with pytest.raises(Malformed):
                put(text, tuple(path), value)
            return
    after = put(text, tuple(path), value)
    if path[-1] not in document:  # only letters were added
        assert is_part_of(text, after)
    found: Any = parse(after)
    for name in path:
        found = found[name]
    assert found == value
    assert put(after, tuple(path), value) == after or isinstance(value, dict | list)


def is_part_of(text: str, whole: str) -> bool:
    """Whether the letters of a text stand in another in this order."""
    left = iter(whole)
    return all(letter in left for letter in text)
