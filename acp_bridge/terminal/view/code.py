"""Code as HTML with its comments, strings, numbers and keywords in colour. SANS-IO.

Invariants
- One pass. What begins a comment or a string always ends it, so nothing is read twice but the 200
  characters at most behind an apostrophe.
- Every character goes through `element`; a class is one of four words of ours.
"""

from __future__ import annotations

import re
from typing import Final

from acp_bridge.terminal.cli.harmless import harmless
from acp_bridge.terminal.view.element import Markup, element, joined, text

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
