"""Markdown for a terminal with rich: plain headings, nothing dropped, no links to click."""

from __future__ import annotations

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement


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
