"""Finds the id of a line that is too long to be read, from its two ends. Sans-IO."""

from __future__ import annotations

import json
import re
from typing import Any, Final

#: the byte order mark in UTF-8, with which some programs begin what they write.
BOM: Final = b"\xef\xbb\xbf"
#: a text of JSON, or one as Python writes it, without escapes.
_TEXT: Final = rb'"(?:[^"\\]|\\.)*"|\'[^\'\\]*\''
_SCALAR: Final = rb"(" + _TEXT + rb"|-?[0-9][-+.0-9eE]*|null|None)"
_NAME: Final = rb"""["']([a-z]+)["']\s*:"""
_MEMBER: Final = re.compile(rb"\s*" + _NAME + rb"\s*" + _SCALAR + rb"\s*,")
_KEY: Final = re.compile(rb"\s*" + _NAME)
_LAST_ID: Final = re.compile(rb""",\s*["']id["']\s*:\s*""" + _SCALAR + rb"\s*\}\s*$")


def read_ends(head: bytes, end: bytes) -> tuple[str | int | float | None, bool, bool]:
    """Return a JSON-RPC message's id, True if it is an answer, and True if it is a request.

    `head` and `end` are the first and the last bytes of its line. The id is found if it stands
    before the first list or object, or behind the last one; else, or if the line is no message at
    all, it is None.
    """
    at, known = max(head.find(b"{"), 0) + 1, dict[bytes, Any]()
    while member := _MEMBER.match(head, at):
        known[member[1]] = _scalar(member[2])
        at = member.end()
    following = _KEY.match(head, at)
    if b"id" not in known and (last := _LAST_ID.search(end)):
        known[b"id"] = _scalar(last[1])
    id = known.get(b"id")
    answer = following is not None and following[1] in (b"result", b"error")
    return id, answer, b"method" in known and id is not None


def _scalar(text: bytes) -> str | int | float | None:
    if text.startswith(b"'"):
        text = b'"' + text[1:-1].replace(b'"', b'\\"') + b'"'
    try:
        value: str | int | float | None = json.loads(text)
    except ValueError:
        return None
    return value
