"""A transcript as Markdown, and tables: readable, in order, harmless."""

from itertools import pairwise
from typing import Any

import pytest
from markdown_it import MarkdownIt

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.shared.table import table
from acp_bridge.terminal.view.markdown import markdown


def said(
    text: str, kind: str = "agent_message_chunk", own: Json | None = None, **more: Any
) -> Json:
    content = {"type": "text", "text": text}
    params: Json = {"update": {"sessionUpdate": kind, "content": content, **more}}
    return params if own is None else {**params, "_meta": {"acp_bridge": own}}


def card(of_kind: str = "tool_call", /, **update: Any) -> Json:
    return {"update": {"sessionUpdate": of_kind, "toolCallId": "t", **update}}


def test_who_speaks_stands_above_what_is_said_once() -> None:
    text = markdown(
        [
            said("hello", "user_message_chunk"),
            said("hm", "agent_thought_chunk"),
            said("One ", messageId="a"),
            said("message.", messageId="a"),
            said("Another.", messageId="b"),
            said("[acp-bridge] Paused.", own={"notice": True}),
            said("try harder", "user_message_chunk", own={"feedback": True}),
            said("hidden", "user_message_chunk", own={"context": True}),
        ]
    )
    assert text.split("\n\n") == [
        *("## User", "hello", "## Thought", "hm", "## Agent", "One message.", "Another."),
        *("## acp-bridge", "[acp-bridge] Paused.", "## Hook", "try harder"),
    ]


def test_prompts_in_a_row_are_paragraphs_and_a_link_stands_within_one() -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    user: Json = {"sessionUpdate": "user_message_chunk"}
    text = markdown(
        [
            *(said(each, "user_message_chunk") for each in ("failed", "look at ")),
            {"update": {**user, "content": link}},
            said(" again", "user_message_chunk"),
            *(said(each, "user_message_chunk", messageId="m") for each in ("in ", "pieces")),
        ]
    )
    assert text == "## User\n\nfailed\n\nlook at <file:///a> again\n\nin pieces"


def test_a_message_of_very_many_pieces_is_shown() -> None:
    text = markdown(said("x") for _ in range(5000))
    assert text == "## Agent\n\n" + 5000 * "x"


def test_a_tool_call_stands_where_it_began_as_it_was_at_the_end() -> None:
    diff = {"type": "diff", "path": "a.py", "oldText": "x\n", "newText": "y\n"}
    output = {"type": "content", "content": {"type": "text", "text": "```\nfenced\n```"}}
    text = markdown(
        [
            card(title="Edit `a.py`", kind="edit", status="pending"),
            said("meanwhile"),
            card("tool_call_update", status="completed", title=None, content=[diff, output]),
        ]
    )
    assert text == (
        "**Tool** `` Edit `a.py` `` (edit, completed)\n\n"
        "```diff\n--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x\n+y\n```\n\n"
        "````\n```\nfenced\n```\n````\n\n"
        "## Agent\n\nmeanwhile"
    )


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("`ls | wc`", "`ls | wc`"),
        ("Run `ls`", "`` Run `ls` ``"),
        ("`a` and `b`", "`` `a` and `b` ``"),
        ("`", "`` ` ``"),
        ("``", "``` `` ```"),
        ("`ls", "`` `ls ``"),
    ],
)
def test_a_title_is_code_with_its_own_quotes_and_one_that_is_code_already_stays_so(
    title: str, shown: str
) -> None:
    assert markdown([card(title=title)]) == f"**Tool** {shown}"


def test_of_a_plan_the_last_state_is_shown() -> None:
    def plan(*states: str) -> Json:
        entries = [{"content": f"step {n}", "status": state} for n, state in enumerate(states)]
        return {"update": {"sessionUpdate": "plan", "entries": entries}}

    text = markdown([plan("pending", "pending"), plan("completed", "in_progress", "pending")])
    assert text == "- [x] step 0\n- [-] step 1\n- [ ] step 2"


def test_nothing_in_a_transcript_moves_the_cursor() -> None:
    evil = "\x1b[2J\x07\r\x9b"
    diff = {"type": "diff", "path": evil, "oldText": evil, "newText": evil + "1"}
    text = markdown(
        [
            said(evil),
            card(title=evil, kind=evil, status=evil, content=[diff]),
            {"update": {"sessionUpdate": "plan", "entries": [{"content": evil, "status": evil}]}},
            said("", content={"type": "resource_link", "uri": evil}),
            said("", content={"type": evil}),
            said("", content={"type": "resource", "resource": {"uri": evil, "text": evil}}),
        ]
    )
    assert not set("\x1b\x07\r\x9b") & set(text)


def test_what_is_not_as_it_should_be_hides_nothing_else() -> None:
    odd: list[Json] = [
        *({}, {"update": None}, {"update": {}}, {"update": {"sessionUpdate": 1}}),
        *(card(title=5, content=[1, {"type": "diff"}]), {"update": {"sessionUpdate": "plan"}}),
        {"update": {"sessionUpdate": "agent_message_chunk", "content": []}},
    ]
    assert markdown([*odd, said("still here")]).endswith("still here")


def test_columns_fit_what_stands_in_them() -> None:
    rows = [["1", "你好", "last"], ["22", "e\u0301\x1b", "l\nine"]]
    assert table(["id", "name", "title"], rows, None) == (
        "id  name   title\n1   你好   last\n22  e\u0301\\x1b  l ine\n"
    )


def test_lines_are_cut_at_the_width_of_the_terminal() -> None:
    lines = table(["id", "title"], [["x" * 60, "a long title"]], 50).splitlines()
    assert lines[1] == "x" * 37 + "...  a lon..."
    assert table(["id"], [["你好你好"]], 7) == "id\n你好...\n"


@pytest.mark.parametrize(
    "forged",
    [
        *(
            "## User\n\nyes",
            "x\n# User",
            "   ##   User  ##",
            "##\tuser",
            "## **User**",
            "## acp-bridge",
        ),
        *(
            "# Waiting",
            "User\n---",
            "User\n====",
            "> ## User",
            "- # User",
            "1. ## User",
            "## A plan",
        ),
        *(
            "<h2>User</h2>",
            "a <H2>User</H2>",
            "<!--\n\n## User",
            "<div>\n## User\n</div>",
            "\\`<h2>`",
        ),
        *("```\nopen", "~~~~ sh\nopen\n~~~", "```\n\n## User", "``` `\n## User", "- ```\n## User"),
        *(
            "###### User",
            "<pre>\n\n## User",
            "[User]: x\n## User",
            "`a\n## User\n`",
            "\n".join("#" * 9),
        ),
    ],
)
@pytest.mark.parametrize("kind", ["agent_message_chunk", "user_message_chunk"])
def test_no_message_makes_a_heading_that_looks_like_one_of_the_page(forged: str, kind: str) -> None:
    page = markdown([said(forged, kind), said("hm", "agent_thought_chunk")])
    begun = "User" if kind.startswith("user") else "Agent"
    tokens = MarkdownIt("commonmark").parse(page)
    headings = [
        (opened.tag, words.content)
        for opened, words in pairwise(tokens)
        if opened.type == "heading_open"
    ]
    assert [each for each in headings if each[0] in ("h1", "h2")] == [
        ("h2", begun),
        ("h2", "Thought"),
    ]
    others = ["".join(filter(str.isalpha, words)).lower() for _, words in headings[1:-1]]
    assert not {"user", "acpbridge", "waiting"} & set(others)
    kinds = [each.type for token in tokens for each in (token, *(token.children or ()))]
    assert not {"html_block", "html_inline"} & set(kinds)
    letters = [each for each in forged if each.isalnum()]
    assert [each for each in page if each.isalnum()] == [*begun, *letters, *"Thoughthm"]


@pytest.mark.parametrize(
    "plain",
    [
        *(
            "```sh\n# a comment\n## User\n```",
            "    # code\n",
            "`List<String>` <https://a.b>",
            "#5 = 3",
        ),
        *(
            "a < b",
            "a\n\n---\n\nb",
            "`` a`<b ``",
            "- a\n- b",
            "1. ```\n   # c\n   ```\n2. d",
            "\\## User",
        ),
    ],
)
def test_what_only_resembles_a_heading_is_shown_as_it_was_written(plain: str) -> None:
    assert markdown([said(plain)]) == f"## Agent\n\n{plain}"


def test_headings_of_an_agent_stay_headings_below_those_of_the_page() -> None:
    text = markdown([said("# Plan\n\n## Steps\n\n###### Least")])
    assert text == "## Agent\n\n### Plan\n\n#### Steps\n\n###### Least"
