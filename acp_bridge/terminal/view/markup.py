"""The Markdown of others as HTML that does nothing. SANS-IO.

Invariants
- No tag, attribute or style is the author's. HTML is shown as text: it may be `List<String>`.
- A link leads to http, https or mailto, and shows where to; another one is text, as it was written.
  An image is text: its address is never asked for anything.
- What can't be seen is escaped, also where it was written as an entity.
- A few thousand characters take some milliseconds: what is written to take longer is shown as text.
- Code is coloured in one pass. What begins a comment or a string always ends it, so nothing is read
  twice but the 200 characters at most behind an apostrophe. A class is one of four words of ours.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from acp_bridge.terminal.cli.harmless import harmless
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

#: characters above which code is left plain.
_LONGEST: Final = 20_000
_STRINGS: Final = (
    r'"""(?s:.*?)(?:"""|\Z)|' + r"'''(?s:.*?)(?:'''|\Z)|" + r'"(?:\\.|[^"\\\n])*+"?'
    r"|`(?s:\\.|[^`\\])*+\\?(?:`|\Z)|(?<!\w)'(?:\\.|[^'\\\n]){0,200}+'"
)
#: the languages of each way to write a comment.
_COMMENTS: Final = {
    r"//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)": "c cc cpp c++ cs css dart go h hpp java"
    " javascript js jsx json jsonc kotlin kt php rs rust scala swift ts tsx typescript zig",
    r"#[^\n]*": "bash console dockerfile makefile make perl py python ruby sh toml yaml",
    r"--[^\n]*": "haskell lua sql",
    r"<!--(?s:.*?)(?:-->|\Z)": "html svg vue xml",
}
_WORDS: Final = (
    "abstract and as assert async await begin bool break case catch char class const continue def"
    " default defer del delete do done double elif else end enum except export extends extern"
    " false fi final finally float fn for from func function global go if impl implements import"
    " in int interface is lambda let local long loop match mod mut namespace new nil none nonlocal"
    " not null or package pass private protected pub public raise readonly ref require return self"
    " short sizeof static string struct super switch template then this throw trait true try type"
    " typedef typeof union unsafe use using var virtual void where while with yield select insert"
    " update into values set table create alter drop join on group by order"
)
_KEYWORDS: Final = frozenset(_WORDS.split())
_PARTS: Final = {
    language: re.compile(rf"(?P<rem>{comment})|(?P<str>{_STRINGS})|(?P<num>\b\d[\w.]*)|[^\W\d]\w*")
    for comment, languages in _COMMENTS.items()
    for language in languages.split()
}


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


def coloured(code: str, language: str) -> Markup:
    """Return code as HTML; `language`: as its author has named it, plain if it is not known."""
    code, parts = harmless(code), _PARTS.get(language.lower())
    if parts is None or len(code) > _LONGEST:
        return text(code)
    html, at = list[str](), 0
    for found in parts.finditer(code):
        if kind := found.lastgroup or ("key" if found[0].lower() in _KEYWORDS else ""):
            html += [code[at : found.start()], element("span", found[0], class_=kind)]
            at = found.end()
    return joined([*html, code[at:]])
