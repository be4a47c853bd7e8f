"""A session as HTML: nothing of it acts, nothing is fetched, and all of it can be read."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.view.blocks import Extent
from acp_bridge.terminal.view.html import article, asked, document
from acp_bridge.terminal.view.markup import markup
from acp_bridge.terminal.view.pieces import Pieces

#: all that may stand in what is made of a session; an attribute has these values, or any text.
TAGS = {
    *("a", "article", "blockquote", "br", "code", "del", "details", "div", "em", "h1", "h2", "h3"),
    *("h4", "h5", "h6", "hr", "ins", "li", "ol", "p", "pre", "s", "span", "strong", "summary"),
    *("table", "tbody", "td", "th", "thead", "tr", "ul"),
}
FRAME = {"html", "head", "meta", "title", "style", "body", "main"}
ATTRIBUTES = {
    *("aria-current", "aria-hidden", "aria-label", "class", "href", "id", "rel", "role", "start"),
    *("tabindex", "target"),
}
SCRIPT = "<script>alert(1)</script>"
EVIL = [
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "' onclick='alert(1)",
    "<svg/onload=alert(1)>",
    "</pre></code></style></title><script src=//evil.example></script>",
    "<!--<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](&#106;avascript:alert(1))",
    "[d](data:text/html,<script>) [v](vbscript:x) [f](file:///etc/passwd) [r](//evil.example)",
    '[t](https://e.example "onclick=x\' onmouseover=y") ![i](https://e.example/x.png)',
    "![a](javascript:alert(1)) <javascript:alert(1)> <https://e.example/\"onclick='x'>",
    "```js onclick=alert(1)\n</code></pre><script>\n```",
    "| a |\n|--:|\n| <script> |",
    "\u202eevil\u202c &#x202e; \u200b \x1b[2J \x00 \ud800 \ufeff",
]


class Read(HTMLParser):
    """What a browser would find."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags = list[str]()
        self.attributes = list[tuple[str, str | None]]()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def harmless(html: str) -> Read:
    html.encode()
    read = Read(html)
    assert set(read.tags) <= TAGS
    assert {name for name, _ in read.attributes} <= ATTRIBUTES
    links = [str(value) for name, value in read.attributes if name == "href"]
    assert all(each.startswith(("http://", "https://", "mailto:")) for each in links)
    assert len(links) == sum(value == "noopener noreferrer" for _, value in read.attributes)
    assert not set("\u202e\u200b\x1b\x00\ufeff") & set(html)
    return read


def said(text: Any, kind: str = "agent_message_chunk", own: Json | None = None) -> Json:
    params: Json = {
        "update": {"sessionUpdate": kind, "content": {"type": "text", "text": text}},
        "sessionId": "s",
    }
    return params if own is None else {**params, "_meta": {"acp_bridge": own}}


def call(of_kind: str = "tool_call", /, own: Json | None = None, **update: Any) -> Json:
    params: Json = {"update": {"sessionUpdate": of_kind, "toolCallId": "t", **update}}
    return params if own is None else {**params, "_meta": {"acp_bridge": own}}


def shown(*transcript: Json, extent: Extent = Extent.WHOLE) -> str:
    pieces, found = Pieces(), {}
    for params in transcript:
        if (piece := pieces.add(params)) is not None:
            found[piece.number] = piece
    return "".join(article(each, extent) for each in found.values())


@pytest.mark.parametrize("evil", EVIL)
def test_whatever_an_agent_writes_it_is_text_and_acts_nowhere(evil: str) -> None:
    diff = {"type": "diff", "path": evil, "oldText": evil, "newText": evil + "1"}
    output = {"type": "content", "content": {"type": "text", "text": evil}}
    link = {"type": "content", "content": {"type": "resource_link", "uri": evil, "name": evil}}
    image = {"type": "content", "content": {"type": "image", "mimeType": evil, "data": evil}}
    decided = {"decision": evil, "by": evil, "name": evil, "rules": [evil], "option": evil}
    plan: Json = {"sessionUpdate": "plan", "entries": [{"content": evil, "status": evil}]}
    html = shown(
        *(said(evil, kind) for kind in ("user_message_chunk", "agent_message_chunk")),
        said(evil, "agent_thought_chunk"),
        said(evil, own={"notice": True}),
        call(
            title=evil,
            kind=evil,
            status=evil,
            locations=[{"path": evil}],
            content=[diff, output, link, image],
        ),
        call("tool_call_update", own={"decided": decided}),
        {"update": plan},
    )
    harmless(html)
    harmless(asked({"title": evil, "rawInput": {"command": evil}, "content": [diff, output]}))


def test_a_script_is_still_to_be_read() -> None:
    assert SCRIPT in harmless(shown(said(SCRIPT))).text
    assert "List<String>" in harmless(shown(said("a `List<String>` or List<String>"))).text


def test_a_link_shows_where_it_leads_and_an_image_is_its_address() -> None:
    read = harmless(
        markup("[bank](https://evil.example/x) <https://a.example/> ![cat](https://b.example/c)")
    )
    assert [value for name, value in read.attributes if name == "href"] == [
        "https://evil.example/x",
        "https://a.example/",
    ]
    assert read.text.split() == [
        *("bank", "(evil.example)", "https://a.example/", "[image", "cat:"),
        "https://b.example/c]",
    ]


@given(st.text(alphabet=st.sampled_from("[]()<>!`*_~|#-:/\\\"'&;x1 \n\thtps@."), max_size=60))
def test_no_markdown_raises_or_leaves_what_may_stand_there(of: str) -> None:
    harmless(markup(of))


@pytest.mark.parametrize("hard", ["![", "[a](", "*_", "#\n", "a\n=", "`a", "\\\n"])
def test_what_is_written_to_take_long_is_shown_as_text(hard: str) -> None:
    text = hard * (8_000 // len(hard))
    html = markup(text)
    assert html.startswith('<p class="plain">')
    assert "".join(harmless(html).text.split()) == "".join(text.split())


def test_a_table_is_no_larger_than_what_was_written() -> None:
    row = "|" + "a|" * 60 + "\n"
    table = row + "|" + "-|" * 60 + "\n"
    assert "<table>" in markup(table + row * 20)
    assert "<table>" not in markup(table + "|a\n" * 1_000)
    assert len(markup("|a" * 1_000 + "\n" + "|-" * 1_000 + "\n" + "|a\n" * 1_000)) < 20_000


def test_a_call_says_in_words_how_it_stands_what_changed_and_who_allowed_it() -> None:
    diff = {"type": "diff", "path": "a.py", "oldText": "x\n", "newText": "y\n"}
    html = shown(
        call(title="`Edit a.py`", kind="edit", status="pending"),
        said("meanwhile"),
        call(
            "tool_call_update",
            own={
                "decided": {
                    "decision": "allow",
                    "by": "client",
                    "name": "phone",
                    "option": "allow_always",
                }
            },
        ),
        call("tool_call_update", status="completed", content=[diff]),
    )
    read = harmless(html)
    assert html.index("Edit a.py") < html.index("meanwhile")
    assert "done · edit" in read.text
    assert "Allowed by a person (token phone, always)" in read.text
    assert "<del>-x\n</del><ins>+y\n</ins>" in html


def test_an_output_is_shown_without_what_moves_a_cursor_and_folded_if_it_is_long() -> None:
    text = "\x1b[1;32mok\x1b[0m \x1b]8;;http://e.example\x07here\x1b]8;;\x07\r\nnext\x1b[2K"
    output = {"type": "content", "content": {"type": "text", "text": f"```\n{text}\n```"}}
    html = shown(call(title="t", kind="execute", content=[output]))
    assert "<pre>ok here\nnext</pre>" in html
    assert "details" not in html
    long = {"type": "content", "content": {"type": "text", "text": "line\n" * 1000}}
    html = shown(call(title="t", content=[long]))
    assert "<details><summary>Output (1000 lines)</summary>" in html
    assert html.count("line\n") == 999
    html = shown(call(title="t", content=[long]), extent=Extent.ASKED)
    assert html.count("line\n") == 399
    assert "… 600 more lines" in html


def test_huge_texts_are_shown_whole_in_a_file_and_cut_on_a_page() -> None:
    words = "word " * 100_000
    assert harmless(shown(said(words))).text.count("word") == 100_000
    output = {"type": "content", "content": {"type": "text", "text": words}}
    read = harmless(shown(call(title="t", content=[output])))
    assert read.text.count("word") == 100_000
    read = harmless(shown(call(title="t", content=[output]), extent=Extent.ASKED))
    assert read.text.count("word") == 20_000
    assert "… 400000 more characters" in read.text
    harmless(shown(said("> " * 50_000)))
    harmless(shown(said("[" * 50_000)))


def test_a_file_holds_all_that_it_needs_and_lets_nothing_else_in() -> None:
    html = document(
        f"Title {SCRIPT}",
        [f"of {SCRIPT}"],
        [said("hello", "user_message_chunk"), said("**hi**")],
        [f"3: later {SCRIPT}"],
        "p { margin: 0; }",
    )
    read = Read(html)
    assert set(read.tags) <= TAGS | FRAME
    assert "<strong>hi</strong>" in html
    assert html.count(SCRIPT) == 0
    (style,) = re.findall(r"<style>(.*)</style>", html, re.DOTALL)
    of_style = b64encode(sha256(style.encode()).digest()).decode()
    assert f"content=\"default-src 'none'; style-src 'sha256-{of_style}'\"" in html


def test_what_is_not_as_it_should_be_hides_nothing_else() -> None:
    odd: list[Json] = [
        *({}, {"update": None}, {"update": {}}, {"update": {"sessionUpdate": 1}}),
        *(call(title=5, content=[1, {"type": "diff"}], status=[], kind={}),),
        call("tool_call_update", own={"decided": {"rules": 5, "by": [], "decision": {}}}),
        {"update": {"sessionUpdate": "plan"}},
        {"update": {"sessionUpdate": "agent_message_chunk", "content": []}},
    ]
    assert "still here" in harmless(shown(*odd, said("still here"))).text


def test_a_plan_is_one_piece_until_the_user_speaks_again() -> None:
    def plan(*states: str) -> Json:
        entries = [{"content": f"step {n}", "status": state} for n, state in enumerate(states)]
        return {"update": {"sessionUpdate": "plan", "entries": entries}}

    user = said("more", "user_message_chunk")
    read = harmless(shown(plan("pending"), plan("in_progress"), user, plan("completed")))
    assert read.text.split("Plan")[1:] == ["▸ running: step 0\nUser" + "more\n", "✓ done: step 0\n"]
