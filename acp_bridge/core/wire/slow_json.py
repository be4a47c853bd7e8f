"""Reads the JSON that the quick reader refuses, as far as it can be understood. Sans-IO.

- A byte that is not UTF-8 becomes U+FFFD. A byte order mark at the beginning is dropped. Raw
  control characters in a text are kept, and so are lone surrogates. NaN, which JSON doesn't have,
  is null.
- Of a message that is nested too deep, the rest is read.
- Several messages on one line are all read. Of other text in front of a message, or between two,
  the message behind it is read.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from acp_bridge.core.wire.long_line import BOM

#: Lists and objects inside each other; `encode` reaches deeper.
MAX_DEPTH: Final = 200
#: how many times a message is looked for behind other text, in a line of how many characters at
#: most: each time may read the rest of the line.
_TRIES: Final = 8
_SEARCHED: Final = 4 * 1024 * 1024

_MESSAGE: Final = re.compile(r'\{\s*"jsonrpc"\s*:')
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{\]}]', re.DOTALL)
_TOO_DEEP: Final = b'"(nested too deep to be read)"'
#: bytes of the longest line in which such a text takes a place.
_CUT: Final = 256 * 1024
_SPACE: Final = re.compile(r"[ \t\r\ufeff]*")
_CONSTANTS: Final = {"Infinity": float("inf"), "-Infinity": float("-inf")}
_READER: Final = json.JSONDecoder(strict=False, parse_constant=_CONSTANTS.get)


def slow_loads(line: bytes, reader: json.JSONDecoder = _READER) -> tuple[list[Any], bytes]:
    """Return the JSON values of a line, and what of it is no JSON (empty if all of it is).

    If there are several values or other text, only objects count as values.
    """
    text = line.removeprefix(BOM).decode("utf-8", "replace")
    values, spoiled, at, tries = list[Any](), "", _space(text, 0), 0
    while at < len(text):
        try:
            value, end = reader.raw_decode(text, at)
            check_depth(value)
        except (ValueError, RecursionError):
            tries += 1
            found = None
            if tries <= _TRIES and len(text) <= _SEARCHED:
                found = _MESSAGE.search(text, at + 1)
            end = found.start() if found else len(text)
            spoiled += text[at:end]
        else:
            values.append(value)
        at = _space(text, end)
    if spoiled or len(values) > 1:
        values = [value for value in values if type(value) is dict]
    return values, spoiled.encode("utf-8", "replace")


def without_depths(line: bytes) -> Any:
    """Return the value of a line with a text for whatever is nested too deep in it.

    None if the line is no JSON, or too long.
    """
    kept, depth, at = list[bytes](), 0, 0
    for found in _TOKEN.finditer(line) if len(line) <= _CUT else ():
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                kept += line[at : found.start()], _TOO_DEEP
        elif found[0] in (b"]", b"}"):
            if depth == MAX_DEPTH + 1:
                at = found.end()
            depth -= 1
    if not kept or depth:
        return None
    values, spoiled = slow_loads(b"".join([*kept, line[at:]]))
    return values[0] if len(values) == 1 and not spoiled else None


def is_object(text: bytes) -> bool:
    """Return True for a whole object."""
    values, spoiled = slow_loads(text) if text.lstrip().startswith(b"{") else ([], b"")
    return bool(values) and not spoiled


def says_twice(line: bytes) -> bool:
    """Return True if a member stands twice in an object of a line, with different values.

    Readers of JSON keep one of them, and not all the same.
    """
    twice = False

    def made(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        last = dict(members)
        twice |= len(last) < len(members) and any(last[name] != value for name, value in members)
        return last

    slow_loads(line, json.JSONDecoder(strict=False, object_pairs_hook=made))
    return twice


def _space(text: str, at: int) -> int:
    """Return the place of the next character that is no space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def check_depth(value: Any) -> None:
    """Raise ValueError for a value that is nested too deep."""
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
    if level:
        raise ValueError("nested too deep")


def _containers(outer: Any) -> list[Any]:
    values = outer.values() if type(outer) is dict else outer
    return [value for value in values if type(value) is dict or type(value) is list]
