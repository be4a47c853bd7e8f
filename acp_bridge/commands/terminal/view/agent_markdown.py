"""Markdown on a terminal: plain headings, nothing dropped, no escape sequence but colours."""

from __future__ import annotations

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement


class _PlainHeading(Heading):
    """A heading that stands at the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class AgentMarkdown(Markdown):
    """The Markdown of an agent. HTML is text, since a tag may be a word such as `List<String>`.

    A link shows where it leads, since its words may lie.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
    }

    def __init__(self, text: str) -> None:
        """Read the text, which must be harmless."""
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        parser = MarkdownIt().enable("strikethrough").enable("table")
        self.parsed = parser.disable(["html_inline", "html_block", "image"]).parse(text)
