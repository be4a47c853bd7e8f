"""Blocks become lines: what they show, how wide they are, and which escapes they hold."""

import re

import pytest
from rich.cells import cell_len

from acp_bridge.terminal.view.blocks import (
    Block,
    Card,
    Content,
    Diff,
    Extent,
    Line,
    Paragraph,
    Plan,
    Step,
    Tone,
    Voice,
)
from acp_bridge.terminal.view.lines import Renderer
from acp_bridge.terminal.view.look import Look, look, reflows

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MARKDOWN = """# Title

Some **bold** `code` and List<String>, 你好 and [words](http://where.example/to).

- one
  - two

> said

| a | b |
|---|---|
| 1 | 2 |

```python
def f():
    return 1
```
"""
EVERYTHING: list[Block] = [
    Paragraph(Voice.USER, "do it\nnow"),
    Paragraph(Voice.AGENT, MARKDOWN),
    Paragraph(Voice.THOUGHT, "let me see"),
    Paragraph(Voice.BRIDGE, "[acp-bridge] Going on."),
    Card("edit a.py", "edit", "completed", ("/x/a.py:1",), (Diff("/x/a.py", "a\nb", "a\nc"),)),
    Card("ls", "execute", "failed", (), (Content("text", "\n".join(map(str, range(30)))),)),
    Plan(((Step.COMPLETED, "first"), (Step.IN_PROGRESS, "second"), (Step.PENDING, "third"))),
    Line("mode: plan"),
    Line("error: no", Tone.ERROR),
]


def drawn(blocks: list[Block], width: int = 60, how: Look | None = None) -> list[str]:
    return Renderer(how or Look()).lines(blocks, width)


def plain(blocks: list[Block], width: int = 60, how: Look | None = None) -> str:
    return COLOUR.sub("", "\n".join(drawn(blocks, width, how)))


@pytest.mark.parametrize("width", [1, 5, 20, 80, 200])
@pytest.mark.parametrize("how", [Look(), Look(unicode=False), Look(colours=False)])
def test_no_line_is_wider_than_the_terminal_nor_ends_in_spaces(width: int, how: Look) -> None:
    for line in drawn(EVERYTHING, width, how):
        text = COLOUR.sub("", line)
        assert cell_len(text) <= max(width, 2)
        assert text == text.rstrip()


def test_there_are_no_escapes_but_colours() -> None:
    assert "\x1b" not in COLOUR.sub("", "".join(drawn(EVERYTHING)))


@pytest.mark.parametrize("how", [Look(), Look(unicode=False)])
def test_an_escape_that_came_as_far_as_the_terminal_is_shown_there(how: Look) -> None:
    text = plain([Line("mode: \x1b]0;title\x07\x1b[2J")], how=how)
    assert text == "mode: \\x1b]0;title\\x07\\x1b[2J"


def test_without_colours_there_is_none_and_without_unicode_only_ascii() -> None:
    codes = set(re.findall(r"\x1b\[([0-9;]*)m", "".join(drawn(EVERYTHING, 60, Look(True, False)))))
    assert codes <= {"0", "1", "2", "3", "4", "7", "9", "1;2", "1;4", "2;3", "1;3"}
    assert "".join(drawn(EVERYTHING, 60, Look(unicode=False))).isascii()


def test_markdown_loses_no_word_and_a_link_says_where_it_leads() -> None:
    text = plain([Paragraph(Voice.AGENT, MARKDOWN)], 200)
    for word in ("Title", "bold", "List<String>", "http://where.example/to", "return 1", "said"):
        assert word in text
    assert "<b>x</b> ![i](u.png)" not in text
    assert "<b>x</b>" in plain([Paragraph(Voice.AGENT, "<b>x</b>\n\n<div>block</div>")])
    assert "<div>block</div>" in plain([Paragraph(Voice.AGENT, "<div>block</div>")])


def test_a_numbered_list_that_was_divided_goes_on_counting() -> None:
    assert "3 three" in plain([Paragraph(Voice.AGENT, "3. three")])


def test_a_diff_is_unified_and_coloured() -> None:
    lines = drawn([Card("edit", "edit", "completed", (), (Diff("a", "1\n2\n3", "1\nII\n3"),))])
    assert [COLOUR.sub("", line).strip() for line in lines[2:]] == [
        "a",
        "@@ -1,3 +1,3 @@",
        "1",
        "-2",
        "+II",
        "3",
    ]
    assert any("\x1b[31m-2" in line for line in lines)
    assert any("\x1b[32m+II" in line for line in lines)


def test_a_new_file_is_all_added_and_a_huge_change_is_not_compared() -> None:
    assert "+x\n  +y" in plain([Card("w", "edit", "completed", (), (Diff("a", None, "x\ny"),))])
    old, new = "\n".join(map(str, range(9_000))), "\n".join(map(str, range(9_001)))
    text = plain([Card("w", "edit", "completed", (), (Diff("a", old, new),))])
    assert "… 17941 more lines" in text


def test_output_is_cut_unless_it_is_what_a_permission_is_asked_for() -> None:
    output = (Content("text", "\n".join(f"line {number}" for number in range(30))),)
    short = plain([Card("read", "read", "completed", (), output)])
    assert "line 7\n  … 22 more lines (Ctrl-O shows all)" in short
    assert "line 29" in plain([Card("run", "execute", "pending", (), output, extent=Extent.ASKED)])


@pytest.mark.hazard("V9.7")
def test_of_what_is_asked_the_characters_that_are_left_out_are_counted() -> None:
    long = "x" * 100_100
    asked = Card(
        "List files", content=(Content("text", long), Diff("a", None, long)), extent=Extent.ASKED
    )
    text = plain([asked], 200_000)
    assert text.count("x\n  … 100 more characters") == 1
    assert text.count("x\n  +… 100 more characters") == 1


def test_a_fence_around_a_whole_output_is_taken_off() -> None:
    def output(text: str) -> str:
        return plain([Card("ls", content=(Content("text", text),))])

    assert output("```sh\na\n\nb\n```\n").endswith("ls\n  a\n\n  b")
    assert "  ```\n  a\n  ```\n  and" in output("```\na\n```\nand\n```\nb\n```")


def test_escape_sequences_in_a_card_or_a_plan_are_shown() -> None:
    bad = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    content = (Diff(f"{bad}/3", None, bad), Content("resource_link", uri=bad))
    blocks: list[Block] = [
        Card(bad, bad, bad, (f"{bad}/2",), content),
        Card("", bad, output=bad),
        Plan(((Step.PENDING, bad),)),
    ]
    text = plain(blocks, 1_000)
    assert text.count("owned") == 8
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\x9b"}


@pytest.mark.hazard("V9.3")
def test_the_path_of_a_change_that_is_asked_for_is_shown_unless_it_is_a_word_of_the_title() -> None:
    diff = (Diff("a", "x", "y"),)
    assert "\n  a\n" in plain([Card("List all", "edit", "pending", (), diff, extent=Extent.ASKED)])
    assert "\n  a\n" not in plain(
        [Card("Edit a", "edit", "pending", (), diff, extent=Extent.ASKED)]
    )


def test_the_environment_says_what_the_terminal_can_show() -> None:
    assert look({"LANG": "C.utf8"}, "utf-8") == Look(unicode=True, colours=True)
    assert look({"LANG": "de_DE.UTF-8", "NO_COLOR": "1"}, "utf-8") == Look(True, False)
    assert not look({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8").unicode
    assert look({}, "utf-8").unicode
    assert not look({}, "ascii").unicode


def test_terminals_that_do_not_wrap_what_they_show_are_known() -> None:
    assert reflows({"TERM": "xterm-256color"})
    assert reflows({"TERM": "screen-256color", "TMUX": "x"})
    assert not reflows({"TERM": "screen"})
    assert not reflows({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"})
    assert not reflows({"TERM": "linux"})
