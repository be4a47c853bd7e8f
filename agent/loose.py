"""Reads the JSON of other people's servers by what it means, whatever form it has.

Invariants
- Nothing here raises for any JSON value, and a text that is in a value is found.
- No text that comes from here has half of a character, unless `halves` were asked for: it can be
  sent and written anywhere.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import from_json

from acp_bridge.core.wire import spread

#: the members that hold a text where a text was expected, and an object came
_TEXTS = ("text", "content", "value", "thinking", "reasoning", "summary", "parts")
#: levels of nesting in which texts are looked for
_DEPTH = 6


#: matches half of a surrogate pair, but for those that stand for a byte that is not UTF-8
_LONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def text_of(data: bytes) -> str:
    """Returns bytes as a text: UTF-8, or UTF-16 with a mark; a NUL of UTF-16 without one goes."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.replace(b"\0", b"").decode("utf-8", "replace")


def read_json(data: bytes | str, *, halves: bool = False) -> Any:
    """Returns the value of a JSON text. Raises ValueError if it is none.

    A byte order mark before it is left out. A byte that is not UTF-8, and half of a surrogate pair,
    become U+FFFD. `halves`: they are kept, for `whole_characters`.
    """
    try:
        return from_json(data)
    except ValueError:
        text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
    try:
        value = json.loads(text.lstrip("\ufeff"), strict=False)
        return value if halves else mended_json(value)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def mended_json(value: Any) -> Any:
    """Returns a JSON value without a half of a character."""
    return json.loads(mended(json.dumps(value, ensure_ascii=False)))


def mended(text: str) -> str:
    """Returns a text with its halves of characters put together; a lone one becomes U+FFFD."""
    whole, half = whole_characters(text)
    return whole + ("\ufffd" if half else "")


def whole_characters(text: str) -> tuple[str, str]:
    """Returns a text with its halves of characters put together, and the half that it ends with.

    A half is one of a surrogate pair, or bytes of UTF-8 as surrogates (PEP 383).
    """
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    half = paired[-1:] if "\ud800" <= paired[-1:] <= "\udbff" else ""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    known = _LONE.sub("\ufffd", paired[: len(paired) - len(half)])
    whole = decoder.decode(known.encode("utf-8", "surrogateescape"))
    return whole, decoder.getstate()[0].decode("utf-8", "surrogateescape") + half


def open_brackets(text: bytes) -> int | None:
    """Returns how many lists and objects a JSON text leaves open; None if it ends in a string."""
    opened, in_string = spread.open_brackets(text)
    return None if in_string else opened


class Lines:
    """Cuts bytes into lines, which end with a newline, a carriage return, or both. No I/O."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        #: the bytes of the line that has not ended
        self.size = 0
        #: True behind a carriage return, to which a newline may belong
        self._half = False

    def read(self, data: bytes) -> list[bytes]:
        """Returns the lines that end in the next bytes, without their ends."""
        if self._half and data:
            self._half, data = False, data.removeprefix(b"\n")
        self._parts.append(data)
        self.size += len(data)
        if b"\n" not in data and b"\r" not in data:
            return []
        found = b"".join(self._parts).splitlines(keepends=True)
        self._half = found[-1].endswith(b"\r")
        last = b"" if found[-1].endswith((b"\n", b"\r")) else found.pop()
        self._parts, self.size = [last], len(last)
        return [line.rstrip(b"\r\n") for line in found]

    def rest(self) -> bytes:
        """Takes the line that has not ended."""
        rest, self._parts, self.size = b"".join(self._parts), [], 0
        return rest


def members(value: Any) -> Mapping[str, Any]:
    """Returns an object as it is; of anything else, an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yields the objects of a list, or the one that stands in the place of a list."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield each


def words(value: Any, depth: int = _DEPTH) -> str:
    """Returns the text of a value: a string, a number, or what a list or an object holds."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth:
        return "".join(words(each, depth - 1) for each in value)
    if isinstance(value, dict) and depth:
        return next(filter(None, (words(value.get(name), depth - 1) for name in _TEXTS)), "")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return arguments(value)


def arguments(value: Any) -> str:
    """Returns the arguments of a call, or a piece of them, as the text of their JSON."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):  # a number with thousands of digits
        return ""


def whole_json(text: str) -> bool:
    """Returns True if a text is a JSON object, whole."""
    try:
        return text.rstrip().endswith("}") and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def number(value: Any) -> int | None:
    """Returns a whole number, also one that is written as a text; None for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def count(value: Any) -> int:
    """Returns a count of something; 0 if it can't be read."""
    return max(0, number(value) or 0)
