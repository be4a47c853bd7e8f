"""Renders a session's transcript as Markdown.

Invariants
- A tool call is placed where it began, in its final state; so is the plan.
- A fence is longer than every run of backticks inside it.
- The text is harmless to a terminal.
- Every heading of the first two levels is the page's own: those in a message are two levels lower,
  and none of them has the words of a heading of the page. HTML in a message is text, and a fence
  that a message leaves open is closed at its end.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from acp_bridge.core.protocol import CONTEXT, Json, own_meta
from acp_bridge.core.updates.wording import as_code
from acp_bridge.terminal.cli.harmless import harmless, one_line
from acp_bridge.terminal.view.blocks import (
    Call,
    Card,
    Content,
    Diff,
    Plan,
    Said,
    Step,
    Voice,
)
from acp_bridge.terminal.view.from_updates import Updates, card

if TYPE_CHECKING:
    from markdown_it.token import Token

_HEADS: Final = {
    Voice.USER: "User",
    Voice.AGENT: "Agent",
    Voice.THOUGHT: "Thought",
    Voice.BRIDGE: "acp-bridge",
    Voice.HOOK: "Hook",
}
#: what a message must have so that more than its words could show: a heading, HTML or a fence.
_STANDS_OUT: Final = re.compile("[#<=]|^[ \t>]*(-+[ \t\r]*$|```|~~~)", re.MULTILINE)
#: how many levels a heading in a message is lowered, and the lowest level that there is.
_ABOVE, _LOWEST = 2, 6
#: a character that is escaped or a code span, which stay; or what begins a tag, and no address.
_TAG: Final = re.compile(
    r"\\.|(?<!`)(`+)(?!`).{0,200}?(?<!`)\1(?!`)|<(?=[a-z/!?])(?![a-z.+-]+:)", re.DOTALL | re.I
)
#: the letters of the page's own headings.
_OWN: Final = {
    "".join(filter(str.isalpha, each)).casefold() for each in (*_HEADS.values(), "Waiting")
}
_DONE: Final = {Step.COMPLETED: "x", Step.IN_PROGRESS: "-", Step.PENDING: " "}
#: Makes the text of a block when the whole transcript is read.
_Block = Callable[[], str]


def markdown(transcript: Iterable[Json]) -> str:
    """Return the Markdown of a session; `transcript`: the params of its `session/update`s."""
    page = _Page()
    updates = Updates()
    for params in transcript:
        if own_meta(params).get(CONTEXT):
            continue
        match updates.read(params):
            case Said() as said:
                page.say(said)
            case Call() as call:
                page.show_call(call)
            case Plan() as plan:
                page.show_plan(plan)
    return page.text()


class _Page:
    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        #: the latest state of each tool call.
        self._calls: dict[str, Json] = {}
        self._plan: Plan | None = None
        #: the message that is still being joined, and its pieces; None after any other block.
        self._last: Said | None = None
        self._pieces: list[str] = []

    def say(self, said: Said) -> None:
        if self._last is None or said.voice is not self._last.voice:
            self._blocks.append(lambda: f"## {_HEADS[said.voice]}")
        if not said.goes_on(self._last):
            self._pieces = pieces = list[str]()
            self._blocks.append(lambda: _below("".join(pieces)))
        self._pieces.append(_words(said.content))
        self._last = said

    def show_call(self, call: Call) -> None:
        if call.call_id not in self._calls:
            self._calls[call.call_id] = {}
            self._blocks.append(lambda: _shown_card(card(self._calls[call.call_id])))
            self._last = None
        # A value that an update sets to empty is empty, as in an editor; None leaves it.
        self._calls[call.call_id] |= {k: v for k, v in call.update.items() if v is not None}

    def show_plan(self, plan: Plan) -> None:
        if self._plan is None:
            self._blocks.append(lambda: _shown_plan(self._plan))
            self._last = None
        self._plan = plan

    def text(self) -> str:
        return "\n\n".join(filter(None, (block() for block in self._blocks)))


def _below(message: str) -> str:
    """Return a message in Markdown so that nothing in it looks like a heading of the page."""
    if not _STANDS_OUT.search(message):
        return message
    from markdown_it import MarkdownIt  # few messages need it

    parser = MarkdownIt("commonmark").disable(["html_block", "inline"])
    tokens, lines = parser.parse(message), message.split("\n")
    for token in tokens:
        begin, end = token.map or (0, 0)
        if token.type == "inline":
            lines[begin:end] = _TAG.sub(_as_text, "\n".join(lines[begin:end])).split("\n")
    for heading, words in pairwise(tokens):
        if heading.type == "heading_open" and heading.map:
            at = heading.map[1] - 1 if heading.markup in ("=", "-") else heading.map[0]
            lines[at] = _lowered(lines[at], heading.markup, words.content)
    if tokens and _is_open(tokens[-1]):
        lines.append(tokens[-1].markup)
    return "\n".join(lines)


def _is_open(block: Token) -> bool:
    """Return True for a fenced block that no line closes."""
    begin, end = block.map or (0, 0)
    return block.type == "fence" and end - begin < len(block.content.splitlines()) + 2


def _as_text(found: re.Match[str]) -> str:
    return "\\<" if found[0] == "<" else found[0]


def _lowered(line: str, markup: str, words: str) -> str:
    """Return the line that makes a heading, for one that is lower, or for none.

    None is made by an underline, and of the words of the page's own headings.
    """
    plain = "".join(filter(str.isalpha, words)).casefold()
    if markup in ("=", "-") or plain in _OWN:
        return line.replace(markup[0], f"\\{markup[0]}", 1)
    return line.replace(markup, "#" * min(_LOWEST, len(markup) + _ABOVE), 1)


def _shown_card(card: Card) -> str:
    about = ", ".join(one_line(each) for each in (card.kind, card.status, card.end) if each)
    title = _code(one_line(card.title or "tool call"))
    head = f"**Tool** {title}" + (f" ({about})" if about else "")
    return "\n\n".join([head, *filter(None, (_part(each) for each in card.content))])


def _code(text: str) -> str:
    """Return a line as inline code; a line in backticks stays as it is."""
    within = text.removeprefix("`").removesuffix("`")
    if len(text) - len(within) == 2 and within and "`" not in within:
        return text
    return as_code(text)


def _part(item: Diff | Content) -> str:
    return _fenced(_diff(item), "diff") if isinstance(item, Diff) else _fenced(_words(item))


def _diff(diff: Diff) -> str:
    old, new = (harmless(each).splitlines() for each in (diff.old or "", diff.new))
    path = one_line(diff.path)
    return "\n".join(difflib.unified_diff(old, new, path, path, lineterm=""))


def _fenced(text: str, language: str = "") -> str:
    if not text.strip():
        return ""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _shown_plan(plan: Plan | None) -> str:
    entries = plan.entries if plan else ()
    return "\n".join(f"- [{_DONE[step]}] {one_line(text)}" for step, text in entries)


def _words(content: Content | None) -> str:
    """Return the text of a content block; other kinds as their URI, or as `[kind]`."""
    match content:
        case None:
            return ""
        case Content("text"):
            return harmless(content.text or "")
        case Content("resource_link", uri=uri) if uri:
            return f"<{one_line(uri)}>"
        case Content("resource", text, uri) if uri:
            held = "" if text is None else f"\n\n{_fenced(harmless(text))}"
            return f"<{one_line(uri)}>{held}"
    return f"[{one_line(content.type)}]"
