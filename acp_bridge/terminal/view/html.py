"""The pieces of a session as HTML, for a page and for a file. SANS-IO.

Invariants
- All that others have written goes through `markup.text` or `markup.markup`.
- There is no script, no style and no handler in it, and nothing that is fetched.
- A page has pictures as data (`images`). A file has none: its policy lets none in.
- Colour says nothing that a word or a sign does not say, too.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.updates.tool_calls import title
from acp_bridge.core.updates.wording import without_escapes
from acp_bridge.terminal.view import decided
from acp_bridge.terminal.view.block_text import harmless, one_line, unfenced, words
from acp_bridge.terminal.view.blocks import Content, Diff, Extent, Plan, Step, Voice
from acp_bridge.terminal.view.diff import unified
from acp_bridge.terminal.view.from_updates import card
from acp_bridge.terminal.view.images import Picture, picture
from acp_bridge.terminal.view.markup import is_link, link, markup, text
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
    queue = "".join(f"<li>{text(each)}</li>\n" for each in waiting)
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
{"".join(f'<p class="fact">{text(each)}</p>' for each in facts)}
{"".join(article(each, Extent.WHOLE) for each in found.values())}
{f"<h2>Waiting</h2><ul>{queue}</ul>" if queue else ""}
</main>
</body>
</html>
"""


def article(piece: Piece, extent: Extent) -> str:
    """Return a piece as an HTML article, whose id is `p` and the number of the piece.

    `extent`: how much of a tool call is shown.
    """
    match piece:
        case Message():
            return _message(piece)
        case ToolCall():
            return _tool_call(piece, extent)
        case Image():
            head = f"<h2>{_HEADS[piece.voice]}</h2>{_image(piece.picture)}"
            kind = f"said {piece.voice.value}"
            return f'<article class="{kind}" id="p{piece.number}">{head}</article>\n'
        case Steps(_, plan):
            return f'<article class="plan" id="p{piece.number}">{_plan(plan)}</article>\n'


def spoken(voice: Voice, paragraphs: Iterable[str]) -> str:
    """Return paragraphs as HTML: a user's and a hook's words as plain text, others as Markdown."""
    if voice in (Voice.USER, Voice.HOOK):
        return "".join(f'<p class="plain">{text(each.strip())}</p>' for each in paragraphs)
    return "".join(map(markup, paragraphs))


def rest(message: Message) -> str:
    """Return the HTML of a message behind its finished paragraphs, with how much was not kept."""
    return spoken(message.voice, [message.rest]) + _left(0, message.left)


def asked(call: Json) -> str:
    """Return the HTML of the call that a permission is about, as `tool_calls.shown` returns it."""
    return f"<h2>{text(title(call))}</h2>\n" + _content(call, Extent.ASKED, folded=False)


def _message(message: Message) -> str:
    voice, at = message.voice, f"p{message.number}"
    said = (
        f'<div id="{at}-said">{spoken(voice, message.finished)}</div>'
        f'<div id="{at}-rest">{rest(message)}</div>'
    )
    head = _HEADS[voice]
    body = (
        f"<details><summary>{head}</summary>{said}</details>"
        if voice is Voice.THOUGHT
        else f"<h2>{head}</h2>{said}"
    )
    return f'<article class="said {voice.value}" id="{at}">{body}</article>\n'


def _tool_call(piece: ToolCall, extent: Extent) -> str:
    shown = card(piece.call)
    sign, word = _status(shown.status)
    name = one_line(shown.title, _LONG_TITLE) or one_line(shown.kind, 20) or "tool call"
    about = [word, one_line(shown.kind, 20), one_line(shown.end)]
    places = [one_line(each, _LONG_TITLE) for each in shown.locations]
    apart = "".join(f"<li>{text(each)}</li>" for each in places if each not in name)
    return (
        f'<article class="call {_class(shown.status)}" id="p{piece.number}">'
        f'<h2><span aria-hidden="true">{sign}</span> {text(_unquoted(name))}</h2>'
        f'<p class="about">{text(" · ".join(filter(None, about)))}</p>'
        + (f'<ul class="places">{apart}</ul>' if apart else "")
        + "".join(
            f'<p class="decided">{text(decided.sentence(each))}</p>' for each in piece.decided
        )
        + _content(piece.call, extent)
        + "</article>\n"
    )


def _content(call: Json, extent: Extent, *, folded: bool = True) -> str:
    """Return the HTML of a call's changes and output; `folded`: what is long is folded away."""
    shown = card(call)
    parts = [
        _diff(each, extent, folded=folded)
        if isinstance(each, Diff)
        else _output(each, shown.command, extent, folded=folded)
        for each in shown.content or [Content("text", shown.output)]
    ]
    return "\n".join(filter(None, parts))


def _output(item: Content, command: bool, extent: Extent, *, folded: bool) -> str:
    """Return the HTML of an output: if it is long, a command's last lines, else the first ones."""
    if item.type == "resource_link" and is_link(item.uri):
        return f"<p>{link(item.uri, text(one_line(item.uri)))}</p>"
    if item.data and extent is not Extent.WHOLE and (found := picture(item.data)):
        return _image(found)
    said = without_escapes(unfenced(words(item).strip("\n"))).strip("\n")
    if not said.strip():
        return ""
    longest, most = _LONGEST[extent], _LINES[extent]
    cut = max(0, len(said) - longest)
    lines = harmless(said[-longest:] if command else said[:longest]).split("\n")
    left = max(0, len(lines) - most)
    more = _left(left + said.count("\n") + 1 - len(lines), cut)
    body = text("\n".join(lines[-most:] if command else lines[:most]))
    return _fold("Output", f"<pre{_tab(folded)}>{body}</pre>{more}", len(lines) if folded else 0)


def _image(of: Picture) -> str:
    size = f'width="{of.width}" height="{of.height}"'
    return f'<p><img alt="{text(of.name)}" {size} decoding="async" src="{escape(of.source)}"></p>'


def _diff(diff: Diff, extent: Extent, *, folded: bool) -> str:
    longest = _LONGEST[extent]
    old = None if diff.old is None else harmless(diff.old[:longest])
    cut = sum(max(0, len(each) - longest) for each in (diff.old or "", diff.new))
    lines, left = unified(Diff(diff.path, old, harmless(diff.new[:longest])), _LINES[extent])
    path = one_line(diff.path, _LONG_TITLE) or "a file"
    head = f"{'New file' if diff.old is None else 'Change of'} {path}"
    body = f'<pre class="diff"{_tab(folded)}>{"".join(map(_line, lines))}</pre>{_left(left, cut)}'
    if not folded or len(lines) <= _FOLDED:
        return f'<p class="path">{text(head)}</p>{body}'
    return _fold(head, body, len(lines))


def _tab(folded: bool) -> str:
    """Return the attribute with which keys reach a part that is not folded away, and scrolls."""
    return "" if folded else ' tabindex="0"'


def _line(line: str) -> str:
    """Return the HTML of a line of a diff; the line begins with its sign: `+`, `-` or `@`."""
    if tag := _SIGNS.get(line[:1]):
        return f"<{tag}>{text(line)}\n</{tag}>"
    return f'<span class="at">{text(line)}\n</span>' if line[:1] == "@" else f"{text(line)}\n"


def _fold(head: str, body: str, lines: int) -> str:
    if lines <= _FOLDED:
        return body
    return f"<details><summary>{text(f'{head} ({lines} lines)')}</summary>{body}</details>"


def _left(lines: int, characters: int) -> str:
    """Return the HTML that says how much is left out, in characters if any; "" if nothing is."""
    if characters:
        return f'<p class="about">… {characters} more characters</p>'
    return f'<p class="about">… {lines} more line{"" if lines == 1 else "s"}</p>' if lines else ""


def _plan(plan: Plan) -> str:
    steps = "".join(f"<li{_present(step)}>{_step(step, each)}</li>" for step, each in plan.entries)
    return f'<h2>Plan</h2><ul class="steps">{steps}</ul>'


def _present(step: Step) -> str:
    return ' aria-current="step"' if step is Step.IN_PROGRESS else ""


def _step(step: Step, said: str) -> str:
    sign, word = _status(step.value)
    return (
        f'<span aria-hidden="true">{sign}</span> <span class="hidden">{word}: </span>'
        f"{text(one_line(said))}"
    )


def _status(status: str) -> tuple[str, str]:
    return _STATUS.get(status) or _STATUS["pending"]


def _class(status: str) -> str:
    return status if status in _STATUS else "pending"


def _unquoted(name: str) -> str:
    """Return a title without the backticks that make the whole of it code."""
    within = name.removeprefix("`").removesuffix("`")
    return within if len(name) - len(within) == 2 and within and "`" not in within else name
