"""Finds the sentence in a server's answer that says what is wrong, and makes it fit to show.

Invariants
- Secrets are masked before the sentence is cut, so that no half of one is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic_core import from_json

#: characters of the sentence
_LONGEST = 300
#: levels of nesting that are searched, of objects and of JSON in strings
_DEPTH = 6
#: matches names of a library's exceptions before the server's words
_NAMES = re.compile(r"\A(?:[\w.]*(?:Error|Exception)\w*\s*(?::|-)\s*)+")
#: matches an object of Python's in a library's words
_OBJECT = re.compile(r"<[\w.]+(?: \S+)*? at 0x[0-9a-fA-F]+>")
_MEMBERS = (
    *("error", "message", "detail", "details", "msg", "error_msg", "error_message", "errors"),
    *("status_msg", "title"),
)


def words_of(body: str, mask: Callable[[str], str]) -> str:
    """Returns the words in the body of an error as one masked line; "" if it has none."""
    words = _OBJECT.sub("", mask(_words(body, _DEPTH)))
    line = "".join(c for c in " ".join(words.split()) if c.isprintable())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _words(text: str, depth: int) -> str:
    text = _NAMES.sub("", text.strip())
    start = text.find("{")
    if start >= 0 and depth:
        try:
            return _member(from_json(text[start : text.rfind("}") + 1]), depth - 1)
        except ValueError:  # plain words that contain a brace
            pass
    return "" if text.startswith("<") else text  # "<": an HTML page of a proxy


def _member(value: Any, depth: int) -> str:
    """Returns the first words in a JSON value of any form; "" if it has none."""
    if isinstance(value, str):
        return _words(value, depth)
    if isinstance(value, list):
        return _member(value[0], depth - 1) if value and depth else ""
    if not isinstance(value, dict) or not depth:
        return ""
    found = (_member(value[name], depth - 1) for name in _MEMBERS if value.get(name))
    return next((words for words in found if words), "")
