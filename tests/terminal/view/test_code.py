"""Code in a fence is coloured by its language, and nothing of its author's becomes HTML."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.terminal.cli.harmless import harmless
from acp_bridge.terminal.view.markup import coloured, markup

LANGUAGES = ["python", "js", "sql", "html", "sh", "rust"]


@pytest.mark.parametrize(
    ("language", "code", "html"),
    [
        ("python", "def f():", '<span class="key">def</span> f():'),
        ("Python", "x = 12.5", 'x = <span class="num">12.5</span>'),
        ("sh", "ls # all\nls", 'ls <span class="rem"># all</span>\nls'),
        (
            "js",
            'f("a\\"b") // c',
            'f(<span class="str">"a\\"b"</span>) <span class="rem">// c</span>',
        ),
        ("js", "/* for\nif */x", '<span class="rem">/* for\nif */</span>x'),
        ("python", "'''a\n'b'''", "<span class=\"str\">'''a\n'b'''</span>"),
        ("sql", "SELECT a -- b", '<span class="key">SELECT</span> a <span class="rem">-- b</span>'),
        ("html", "<!-- <b> --><b>", '<span class="rem"><!-- <b> --></span><b>'),
        ("python", "iffy = formed", "iffy = formed"),
        ("", "if", "if"),
        ("nobody's", "if", "if"),
    ],
)
def test_comments_strings_numbers_and_keywords_are_marked(
    language: str, code: str, html: str
) -> None:
    assert unescape(coloured(code, language)) == html


@given(st.text(), st.sampled_from(LANGUAGES))
def test_all_that_was_written_is_there_and_escaped(code: str, language: str) -> None:
    html = coloured(code, language)
    bare = re.sub(r'<span class="(?:rem|str|num|key)">|</span>', "", html)
    assert not set("<>\"'") & set(bare)
    assert unescape(bare) == harmless(code)


def test_a_fence_of_markdown_is_coloured_and_its_language_is_no_attribute() -> None:
    assert markup("```python\nif x:\n```") == (
        '<pre><code><span class="key">if</span> x:\n</code></pre>\n'
    )
    assert '"><' not in markup('```python"><b>\nif\n```')
    assert "span" not in markup("    if x:\n")


def test_long_code_is_left_plain() -> None:
    assert "span" not in coloured("if " * 7_000, "python")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "evil",
    [
        "/*",
        "/*'",
        "'",
        "\\'",
        "' ",
        '"',
        '"\\',
        "`",
        "`\\",
        '"""',
        "'''",
        "<!--",
        "1.",
        "1",
        "a",
        "-",
        "#",
        "\\",
    ],
)
def test_code_that_could_be_read_many_times_is_shown_whole(evil: str, language: str) -> None:
    code = (evil * 20_000)[:20_000]
    assert unescape(re.sub("<[^<]*>", "", coloured(code, language))) == harmless(code)
