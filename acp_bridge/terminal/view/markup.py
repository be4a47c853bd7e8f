"""The Markdown of others as HTML that does nothing. SANS-IO.

Invariants
- No tag, attribute or style is the author's. HTML is shown as text: it may be `List<String>`.
- A link leads to http, https or mailto, and shows where to; another one is text, as it was written.
  An image is text: its address is never asked for anything.
- What can't be seen is escaped, also where it was written as an entity.
- A few thousand characters take some milliseconds: what is written to take longer is shown as text.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from acp_bridge.terminal.cli.harmless import harmless
from acp_bridge.terminal.view.code import coloured
from acp_bridge.terminal.view.element import Markup, element, joined, text

_SCHEMES: Final = ("http", "https", "mailto")
#: a message stands below a heading of the second level.
_ABOVE: Final = 2
_LOWEST: Final = 6
_ALIGNED: Final = {"text-align:right": "right", "text-align:center": "center"}

#: characters that mark something in Markdown, and the most of them in a real text, in percent.
_MARKS: Final = "[]()*_!<>&\\`~#=\n"
_MOST_MARKS: Final = 40
#: characters of a text that is short enough to be parsed whatever it contains.
_SHORT: Final = 400
#: cells that a text's tables may have: a short row gets as many as the widest line has bars.
_MOST_CELLS: Final = 4_000

_Env = MutableMapping[str, Any]


def is_link(address: str) -> bool:
    """Return True for an address that a page may link to."""
    try:
        parts = urlsplit(address.strip())
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and bool(parts.netloc or parts.scheme == "mailto")


def link(address: str, shown: str) -> Markup:
    """Return an HTML link around `shown`; following it sends no referrer."""
    href = harmless(address)
    return element("a", shown, href=href, rel="noopener noreferrer", target="_blank")


def markup(of: str) -> Markup:
    """Return Markdown as HTML; one that may take long to parse is shown as plain text."""
    marks = sum(map(of.count, _MARKS)) if len(of) > _SHORT else 0
    if 100 * marks > _MOST_MARKS * len(of):
        return joined([element("p", of, class_="plain"), "\n"])
    lines = of.splitlines()
    widest = max((line.count("|") for line in lines), default=0)
    parser = _WITHOUT_TABLES if len(lines) * widest > _MOST_CELLS else _PARSER
    return Markup(parser.render(of))


class _Parser(MarkdownIt):
    """Parses Markdown; a link whose address a page may not link to stays text."""

    def validateLink(self, url: str) -> bool:
        """Return True for an address that a page may link to."""
        return is_link(url)


class _Renderer(RendererHTML):
    """Writes only tags of Markdown; no attribute has an author's words but a checked address."""

    def renderToken(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env
    ) -> str:
        """Write a tag without attributes but for the number at which a list begins."""
        token = tokens[idx]
        start = token.attrs.get("start")
        token.attrs = {"start": start} if isinstance(start, int) else {}
        return super().renderToken(tokens, idx, options, env)

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Write a text."""
        return text(tokens[idx].content)

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env
    ) -> str:
        """Write code in a line."""
        return element("code", tokens[idx].content)

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Write a block of code."""
        return joined([element("pre", element("code", tokens[idx].content)), "\n"])

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Write a block of code, coloured if its language is known."""
        language = tokens[idx].info.partition(" ")[0]
        return joined(
            [element("pre", element("code", coloured(tokens[idx].content, language))), "\n"]
        )

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Write where an image would have been, and its address, as text."""
        token = tokens[idx]
        name = self.renderInlineAsText(token.children, options, env)
        return text(f"[image {name}: {token.attrs.get('src')}]")

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env
    ) -> str:
        """Begin a heading, at a level below that of the message's own heading."""
        return f"<{_level(tokens[idx])}>"

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env
    ) -> str:
        """End a heading."""
        return f"</{_level(tokens[idx])}>\n"

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Begin a link."""
        return link(str(tokens[idx].attrs.get("href")), "").removesuffix("</a>")

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """End a link, and say where it leads unless its text does: a text may lie."""
        begin = idx
        while tokens[begin].type != "link_open":
            begin -= 1
        address = str(tokens[begin].attrs.get("href"))
        where = urlsplit(address).netloc or address.removeprefix("mailto:")
        said = self.renderInlineAsText(tokens[begin + 1 : idx], options, env)
        same = said in (address, where, address.removeprefix("mailto:"))
        return "</a>" if same else f"</a> {element('span', f'({where})', class_='where')}"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Begin a table that can be scrolled from side to side, also by keys."""
        return '<div class="wide" role="region" aria-label="Table" tabindex="0"><table>\n'

    def table_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env
    ) -> str:
        """End a table."""
        return "</table></div>\n"

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Begin a cell; its alignment is a class, since a policy forbids styles."""
        token = tokens[idx]
        aligned = _ALIGNED.get(str(token.attrs.get("style")))
        return f'<{token.tag} class="{aligned}">' if aligned else f"<{token.tag}>"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: _Env) -> str:
        """Begin a cell of a table's head."""
        return self.td_open(tokens, idx, options, env)


def _level(token: Token) -> str:
    return f"h{min(_LOWEST, int(token.tag[1:]) + _ABOVE)}"


def _parser() -> MarkdownIt:
    parser = _Parser(renderer_cls=_Renderer).enable(["strikethrough", "table"])
    parser.disable(["html_inline", "html_block"])
    return parser


_PARSER: Final = _parser()
_WITHOUT_TABLES: Final = _parser().disable("table")
