"""The pieces of a session as HTML, for a page and for a file. SANS-IO.

Invariants
- All that others have written goes through `element` or `markup.markup`.
- There is no script, no style and no handler in it, and nothing that is fetched.
- A page has pictures as data (`images`). A file has none: its policy lets none in.
- Colour says nothing that a word or a sign does not say, too.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.updates.tool_calls import title
from acp_bridge.core.updates.wording import without_escapes
from acp_bridge.terminal.view import decided
from acp_bridge.terminal.view.block_text import harmless, one_line, unfenced, words
from acp_bridge.terminal.view.blocks import Content, Diff, Extent, Plan, Step, Voice
from acp_bridge.terminal.view.diff import unified
from acp_bridge.terminal.view.element import Markup, element, joined, text
from acp_bridge.terminal.view.from_updates import card
from acp_bridge.terminal.view.images import Picture, picture
from acp_bridge.terminal.view.markup import is_link, link, markup
from acp_bridge.terminal.view.pieces import Image, Message, Piece, Pieces, Steps, ToolCall

#: lines, and characters, that are shown of an output or of a diff.
_LINES: Final = {Extent.SHORT: 60, Extent.ASKED: 400, Extent.WHOLE: sys.maxsize}
_LONGEST: Final = {Extent.SHORT: 10_000, Extent.ASKED: 100_000, Extent.WHOLE: sys.maxsize}
_LONG_TITLE: Final = 300
#: lines above which an output is folded away.
_FOLDED: Final = 12
_HEADS: Final = {
    Voice.USER: "User",
    Voice.AGENT: "Agent",
    Voice.THOUGHT: "Thought",
    Voice.BRIDGE: "acp-bridge",
    Voice.HOOK: "Hook",
}
#: the sign and the word for each status of a tool call or of an entry of a plan.
_STATUS: Final = {
    "pending": ("○", "waiting"),
    "in_progress": ("▸", "running"),
    "completed": ("✓", "done"),
    "failed": ("✗", "failed"),
    "ended": ("■", "ended"),
}
_SIGNS: Final = {"+": "ins", "-": "del"}


def document(
    name: str, facts: Iterable[str], transcript: Iterable[Json], waiting: Iterable[str], style: str
) -> str:
    """Return a whole session as one HTML file that needs and fetches nothing else.

    `transcript`: the params of its `session/update`s; `waiting`: a line for each prompt that waits.
    """
    pieces, found = Pieces(), dict[int, Piece]()
    for params in transcript:
        if (piece := pieces.add(params)) is not None:
            found[piece.number] = piece
    allowed = f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'"
    queue = [element("li", each) + "\n" for each in waiting]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {allowed}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(one_line(name, _LONG_TITLE))}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{text(one_line(name, _LONG_TITLE))}</h1>
{"".join(element("p", each, class_="fact") for each in facts)}
{"".join(article(each, Extent.WHOLE) for each in found.values())}
{f"<h2>Waiting</h2><ul>{''.join(queue)}</ul>" if queue else ""}
</main>
</body>
</html>
"""


def article(piece: Piece, extent: Extent) -> Markup:
    """Return a piece as an HTML article, whose id is `p` and the number of the piece.

    `extent`: how much of a tool call is shown.
    """
    inside: Sequence[str]
    match piece:
        case Message():
            kind, inside = f"said {piece.voice.value}", _message(piece)
        case ToolCall():
            kind, inside = f"call {_class(piece)}", _tool_call(piece, extent)
        case Image():
            head = element("h2", _HEADS[piece.voice])
            kind, inside = f"said {piece.voice.value}", [head, _image(piece.picture)]
        case Steps(_, plan):
            kind, inside = "plan", _plan(plan)
    return joined([element("article", *inside, class_=kind, id=f"p{piece.number}"), "\n"])


def spoken(voice: Voice, paragraphs: Iterable[str]) -> Markup:
    """Return paragraphs as HTML: a user's and a hook's words as plain text, others as Markdown."""
    if voice in (Voice.USER, Voice.HOOK):
        return joined(element("p", each.strip(), class_="plain") for each in paragraphs)
    return joined(map(markup, paragraphs))


def rest(message: Message) -> Markup:
    """Return the HTML of a message behind its finished paragraphs, with how much was not kept."""
    return joined([spoken(message.voice, [message.rest]), _left(0, message.left)])


def asked(call: Json) -> Markup:
    """Return the HTML of the call that a permission is about, as `tool_calls.shown` returns it."""
    return joined([element("h2", title(call)), "\n", _content(call, Extent.ASKED, folded=False)])


def _message(message: Message) -> list[Markup]:
    head, at = _HEADS[message.voice], f"p{message.number}"
    said = [
        element("div", spoken(message.voice, message.finished), id=f"{at}-said"),
        element("div", rest(message), id=f"{at}-rest"),
    ]
    if message.voice is Voice.THOUGHT:
        return [element("details", element("summary", head), *said)]
    return [element("h2", head), *said]


def _tool_call(piece: ToolCall, extent: Extent) -> list[str]:
    shown = card(piece.call)
    sign, word = _status(shown.status)
    name = one_line(shown.title, _LONG_TITLE) or one_line(shown.kind, 20) or "tool call"
    about = [word, one_line(shown.kind, 20), one_line(shown.end)]
    places = [one_line(each, _LONG_TITLE) for each in shown.locations]
    apart = [element("li", each) for each in places if each not in name]
    return [
        element("h2", element("span", sign, aria_hidden="true"), " ", _unquoted(name)),
        element("p", " · ".join(filter(None, about)), class_="about"),
        element("ul", *apart, class_="places") if apart else "",
        *(element("p", decided.sentence(each), class_="decided") for each in piece.decided),
        _content(piece.call, extent),
    ]


def _content(call: Json, extent: Extent, *, folded: bool = True) -> Markup:
    """Return the HTML of a call's changes and output; `folded`: what is long is folded away."""
    shown = card(call)
    parts = [
        _diff(each, extent, folded=folded)
        if isinstance(each, Diff)
        else _output(each, shown.command, extent, folded=folded)
        for each in shown.content or [Content("text", shown.output)]
    ]
    return joined(filter(None, parts), "\n")


def _output(item: Content, command: bool, extent: Extent, *, folded: bool) -> Markup:
    """Return the HTML of an output: if it is long, a command's last lines, else the first ones."""
    if item.type == "resource_link" and is_link(item.uri):
        return element("p", link(item.uri, one_line(item.uri)))
    if item.data and extent is not Extent.WHOLE and (found := picture(item.data)):
        return _image(found)
    said = without_escapes(unfenced(words(item).strip("\n"))).strip("\n")
    if not said.strip():
        return Markup()
    longest, most = _LONGEST[extent], _LINES[extent]
    cut = max(0, len(said) - longest)
    lines = harmless(said[-longest:] if command else said[:longest]).split("\n")
    left = max(0, len(lines) - most)
    more = _left(left + said.count("\n") + 1 - len(lines), cut)
    body = "\n".join(lines[-most:] if command else lines[:most])
    pre = element("pre", body, tabindex=_tab(folded))
    return _fold("Output", joined([pre, more]), len(lines) if folded else 0)


def _image(of: Picture) -> Markup:
    size = {"width": of.width, "height": of.height}
    name = harmless(of.name)
    return element("p", element("img", alt=name, **size, decoding="async", src=of.source))


def _diff(diff: Diff, extent: Extent, *, folded: bool) -> Markup:
    longest = _LONGEST[extent]
    old = None if diff.old is None else harmless(diff.old[:longest])
    cut = sum(max(0, len(each) - longest) for each in (diff.old or "", diff.new))
    lines, left = unified(Diff(diff.path, old, harmless(diff.new[:longest])), _LINES[extent])
    path = one_line(diff.path, _LONG_TITLE) or "a file"
    head = f"{'New file' if diff.old is None else 'Change of'} {path}"
    pre = element("pre", *map(_line, lines), class_="diff", tabindex=_tab(folded))
    body = joined([pre, _left(left, cut)])
    if not folded or len(lines) <= _FOLDED:
        return joined([element("p", head, class_="path"), body])
    return _fold(head, body, len(lines))


def _tab(folded: bool) -> int | None:
    """Return the tab index by which keys reach a part that is not folded away, and scrolls."""
    return None if folded else 0


def _line(line: str) -> Markup:
    """Return the HTML of a line of a diff; the line begins with its sign: `+`, `-` or `@`."""
    if tag := _SIGNS.get(line[:1]):
        return element(tag, line, "\n")
    shown = joined([line, "\n"])
    return element("span", shown, class_="at") if line[:1] == "@" else shown


def _fold(head: str, body: Markup, lines: int) -> Markup:
    if lines <= _FOLDED:
        return body
    return element("details", element("summary", f"{head} ({lines} lines)"), body)


def _left(lines: int, characters: int) -> Markup:
    """Return the HTML that says how much is left out, in characters if any; "" if nothing is."""
    if characters:
        return element("p", f"… {characters} more characters", class_="about")
    more = f"… {lines} more line{'' if lines == 1 else 's'}"
    return element("p", more, class_="about") if lines else Markup()


def _plan(plan: Plan) -> list[Markup]:
    steps = [
        element("li", *_step(step, each), aria_current=_present(step))
        for step, each in plan.entries
    ]
    return [element("h2", "Plan"), element("ul", *steps, class_="steps")]


def _present(step: Step) -> str | None:
    return "step" if step is Step.IN_PROGRESS else None


def _step(step: Step, said: str) -> list[str]:
    sign, word = _status(step.value)
    hidden = element("span", f"{word}: ", class_="hidden")
    return [element("span", sign, aria_hidden="true"), " ", hidden, one_line(said)]


def _status(status: str) -> tuple[str, str]:
    return _STATUS.get(status) or _STATUS["pending"]


def _class(call: ToolCall) -> str:
    status = card(call.call).status
    return status if status in _STATUS else "pending"


def _unquoted(name: str) -> str:
    """Return a title without the backticks that make the whole of it code."""
    within = name.removeprefix("`").removesuffix("`")
    return within if len(name) - len(within) == 2 and within and "`" not in within else name
