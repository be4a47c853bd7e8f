"""Draws blocks as lines of text with colours; writes to no terminal.

Invariant: lines contain no escape sequences but those for colour and style, and none is wider than
the given width.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text as Words
from rich.theme import Theme

from acp_bridge.terminal.view.block_text import harmless, one_line, unfenced, words
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
from acp_bridge.terminal.view.diff import unified
from acp_bridge.terminal.view.look import Look

#: how many lines are shown of a user's message, of a tool call's output and of a diff.
_MOST_USER: Final = 40
_OUTPUT_LINES: Final = {Extent.SHORT: 8, Extent.ASKED: 400, Extent.WHOLE: sys.maxsize}
_DIFF_LINES: Final = {Extent.SHORT: 60, Extent.ASKED: 400, Extent.WHOLE: sys.maxsize}
#: added where lines of a card are left out.
_OPENS: Final = " (Ctrl-O shows all)"
_MOST_LOCATIONS: Final = 4
_MOST_STEPS: Final = 50
#: characters that are drawn of a title or a path, and of a text in a card, whose rest is counted.
_LONG_TITLE: Final = 300
_LONGEST: Final = 100_000
#: replacements for characters that rich draws and ASCII lacks.
_DRAWN: Final = str.maketrans("•▌─━│┃", "*|--||")
#: inline code without a background colour, which is wrong on half of all terminals.
_STYLES: Final = {"markdown.code": "cyan", "markdown.code_block": "cyan"}
_STATUS: Final = {"completed": "green", "failed": "red", "in_progress": "yellow"}
_STEP: Final = {Step.PENDING: "", Step.IN_PROGRESS: "bold", Step.COMPLETED: "dim"}
_SIGNS: Final = {"+": "green", "-": "red", "@": "cyan"}


class Renderer:
    """Draws blocks for one terminal."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._marks = look.marks
        self._console = Console(
            file=StringIO(), force_terminal=True, color_system=None, legacy_windows=False,
            width=80, height=1_000, theme=Theme(_STYLES), _environ={},
        )  # fmt: skip

    def lines(self, blocks: Iterable[Block], width: int) -> list[str]:
        """Return the lines of blocks, `width` columns at most, with empty lines between blocks."""
        found: list[str] = []
        for block in blocks:
            if not _continues(block):
                found.append("")
            found += self._lines(self._drawn(block), max(1, width))
        return found

    def _drawn(self, block: Block) -> RenderableType:
        match block:
            case Paragraph():
                return self._text(block)
            case Card():
                return self._card(block)
            case Plan(entries):
                return Group(*(self._step(*each) for each in entries[:_MOST_STEPS]))
            case Line(text, tone):
                return Words(self._look.plain(text), style="red" if tone is Tone.ERROR else "dim")

    # -- texts

    def _text(self, block: Paragraph) -> RenderableType:
        text = self._look.plain(block.text)
        match block.voice:
            case Voice.AGENT:
                return AgentMarkdown(text)
            case Voice.USER | Voice.HOOK:
                shown = "\n".join(self._cut(text.strip("\n").split("\n"), _MOST_USER))
                return self._marked(self._marks.user, Words(shown, style="bold"), block.first)
            case Voice.THOUGHT:
                thought = Words(text.strip(), style="dim italic")
                return self._marked(self._marks.thought, thought, block.first)
            case Voice.BRIDGE:
                return self._marked(self._marks.bridge, AgentMarkdown(text), block.first)

    def _marked(self, mark: str, body: RenderableType, first: bool) -> RenderableType:
        return _Marked(f"{mark} " if first else "  ", body)

    # -- cards

    def _card(self, card: Card) -> RenderableType:
        title = one_line(card.title, _LONG_TITLE) or one_line(card.kind, 20) or "tool call"
        places = _places(card.locations)
        head = Words(self._look.plain(title), style="bold")
        if apart := [each for each in places if each not in title]:
            head.append(f"  {self._look.plain(', '.join(apart))}", style="dim")
        if card.end:
            head.append(f"  {self._look.plain(card.end)}", style="red")
        mark = self._marks.status.get(card.status, self._marks.status["pending"])
        body = [_Marked(f"{mark} ", head, _STATUS.get(card.status, ""))]
        # A path counts as named only if it is a word of the title.
        asked = card.extent is Extent.ASKED
        named = title.split() if asked else [title, *places]
        content = [*self._content(card, named)] or [*self._output(card, card.output)]
        return Group(*body, *(Padding(each, (0, 0, 0, 2)) for each in content))

    def _content(self, card: Card, named: Sequence[str]) -> Iterable[RenderableType]:
        for item in card.content:
            if isinstance(item, Content):
                yield from self._output(card, unfenced(words(item).strip("\n")))
                continue
            path = one_line(item.path, _LONG_TITLE)
            asked = card.extent is Extent.ASKED
            is_named = path in named if asked else any(path in each for each in named)
            yield self._diff(item, "" if is_named else path, card.extent)

    def _output(self, card: Card, text: str) -> Iterable[RenderableType]:
        """Give a few lines of an output: of a command the last ones, else the first ones."""
        if not text.strip():
            return
        last = card.command and card.extent is Extent.SHORT
        lines = self._look.plain(_bounded(text, last=last)).strip("\n").split("\n")
        most = _OUTPUT_LINES[card.extent]
        if last and len(lines) > most:
            left = max(len(lines), text.strip("\n").count("\n") + 1) - most
            shown = [self._left(left, "earlier", _OPENS), *lines[-most:]]
        else:
            shown = self._cut(lines, most, _OPENS if card.extent is Extent.SHORT else "")
        yield Words("\n".join(shown), style="dim" if card.extent is Extent.SHORT else "")

    def _diff(self, diff: Diff, path: str, extent: Extent) -> RenderableType:
        old = None if diff.old is None else _bounded(diff.old)
        bounded = Diff(diff.path, old, _bounded(diff.new))
        lines, left = unified(bounded, _DIFF_LINES[extent])
        drawn = Words()
        if path:
            drawn.append(f"{self._look.plain(path)}\n", style="dim")
        for line in lines:
            drawn.append(f"{self._look.plain(line)}\n", style=_SIGNS.get(line[:1], "dim"))
        if left:
            how = _OPENS if extent is Extent.SHORT else ""
            drawn.append(self._left(left, how=how), style="dim")
        drawn.rstrip()
        return drawn

    def _step(self, step: Step, text: str) -> RenderableType:
        mark = self._marks.status[step.value]
        return _Marked(f"{mark} ", Words(self._look.plain(one_line(text)), style=_STEP[step]))

    # -- lines

    def _cut(self, lines: list[str], most: int, how: str = "") -> list[str]:
        left = len(lines) - most
        return [*lines[:most], self._left(left, how=how)] if left > 0 else lines

    def _left(self, count: int, which: str = "more", how: str = "") -> str:
        """Return the line that counts lines left out; `how`: what the user does to see them."""
        return f"{self._marks.more} {count} {which} line{'' if count == 1 else 's'}{how}"

    def _lines(self, drawn: RenderableType, width: int) -> list[str]:
        options = self._console.options.update(width=width)
        rows = self._console.render_lines(drawn, options, pad=False)
        lines = [self._line(row) for row in rows]
        while lines and not lines[0]:
            lines.pop(0)
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _line(self, row: list[Segment]) -> str:
        """Return a row as text without trailing spaces, which would wrap in a narrower terminal."""
        parts = [segment for segment in row if not segment.control]
        while parts and not parts[-1].text.strip():
            parts.pop()
        if parts:
            parts[-1] = Segment(parts[-1].text.rstrip(), parts[-1].style)
        line = "".join(self._coloured(part) for part in parts)
        return line if self._look.unicode else self._look.encodable(line.translate(_DRAWN))

    def _coloured(self, segment: Segment) -> str:
        if segment.style is None:
            return segment.text
        style = segment.style if self._look.colours else segment.style.without_color
        return style.render(segment.text, color_system=ColorSystem.STANDARD)


class _Marked:
    """A mark with a text beside it; further lines of the text are indented below."""

    def __init__(self, mark: str, body: RenderableType, style: str = "") -> None:
        self._mark, self._body, self._style = mark, body, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = len(self._mark)
        if options.max_width <= 2 * width:
            yield self._body
            return
        rows = console.render_lines(
            self._body, options.update(width=options.max_width - width), pad=False
        )
        while rows and not any(segment.text.strip() for segment in rows[0]):
            rows.pop(0)
        for number, row in enumerate(rows):
            style = console.get_style(self._style)
            yield Segment(self._mark if not number else " " * width, style)
            yield from row
            yield Segment.line()


def _places(locations: Sequence[str]) -> list[str]:
    more = len(locations) - _MOST_LOCATIONS
    found = [one_line(each, _LONG_TITLE) for each in locations[:_MOST_LOCATIONS]]
    return [*found, f"and {more} more"] if more > 0 else found


def _bounded(text: str, *, last: bool = False) -> str:
    """Return the first characters of a text, or the last; the others are counted."""
    left = len(text) - _LONGEST
    if last and left > 0:
        return f"… {left} earlier characters\n" + harmless(text[left:])
    return harmless(text[:_LONGEST]) + (f"\n… {left} more characters" if left > 0 else "")


def _continues(block: Block) -> bool:
    """Return True for a `Line`: no empty line goes before it."""
    return isinstance(block, Line)


class _PlainHeading(Heading):
    """A heading on the left, without the frame that rich draws."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class AgentMarkdown(Markdown):
    """The Markdown of an agent. HTML is shown as text: a tag may be a type such as `List<String>`.

    A link shows its address, since its text may lie.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
    }

    def __init__(self, text: str) -> None:
        """Parse a text, which must be harmless already."""
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        parser = MarkdownIt().enable("strikethrough").enable("table")
        self.parsed = parser.disable(["html_inline", "html_block", "image"]).parse(text)
