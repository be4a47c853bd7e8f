"""Sets a value in a JSON settings file without changing anything else of its text.

The text may have comments, and commas after the last member, as Zed's has.

Invariants
- All text but the value that is set stays as it is, letter by letter, comments included.
- The result parses to the old document with that value set; otherwise Malformed is raised.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from acp_bridge.core.protocol import Json

_BLANKS: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_BOM: Final = "\ufeff"


class Malformed(ValueError):
    """The text can't be parsed, or has no place for the new value."""


@dataclass(slots=True)
class _Node:
    """A value in the text: its start and end, the parsed value, and an object's members."""

    start: int
    end: int
    value: Any
    members: list[tuple[str, _Node]] = field(default_factory=list)


def dumped(value: object, indent: str = "  ") -> str:
    """Return a value as JSON with each member of an object on its own line, and a final newline."""
    return _lines(value, indent, "\n") + "\n"


def _lines(value: object, indent: str, newline: str) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    deeper = newline + indent
    members = (
        f"{deeper}{json.dumps(name, ensure_ascii=False)}: {_lines(each, indent, deeper)}"
        for name, each in value.items()
    )
    return f"{{{','.join(members)}{newline}}}"


def parse(text: str) -> Json:
    """Return the object that a text holds; {} for an empty text. Raises Malformed."""
    root = _root(text)
    return dict(root.value) if root else {}


def put(text: str, path: tuple[str, ...], value: object) -> str:
    """Return the text with the value at `path` set; missing objects on the path are made.

    Raises Malformed.
    """
    changed = _put(text, path, value)
    expected = parse(text)
    _put_into(expected, path, value)
    if parse(changed) != expected:
        raise Malformed("it can't be changed without touching something else")
    return changed


def _put_into(document: Json, path: tuple[str, ...], value: object) -> None:
    for name in path[:-1]:
        document[name] = dict(document.get(name, {}))
        document = document[name]
    document[path[-1]] = value


def _put(text: str, path: tuple[str, ...], value: object) -> str:
    root = _root(text)
    if root is None:
        head = text.rstrip()
        return f"{head}\n{_nested(path, value)}".removeprefix("\n")
    node, rest = root, path
    while rest:
        found = _member(node, rest[0])
        if found is None:
            return _insert(text, root, node, rest, value)
        node, rest = found, rest[1:]
        if rest and not isinstance(node.value, dict):
            raise Malformed(f"'{path[len(path) - len(rest) - 1]}' is no object in it")
    written = dumped(value, _unit(text, root)).rstrip()
    written = written.replace("\n", _newline(text) + _indent_at(text, node.start))
    return text[: node.start] + written + text[node.end :]


def _member(node: _Node, name: str) -> _Node | None:
    found = [each for key, each in node.members if key == name]
    if len(found) > 1:
        raise Malformed(f"it has '{name}' {len(found)} times")
    return found[0] if found else None


def _nested(path: tuple[str, ...], value: object, indent: str = "  ") -> str:
    for name in reversed(path):
        value = {name: value}
    return dumped(value, indent)


def _insert(text: str, root: _Node, node: _Node, path: tuple[str, ...], value: object) -> str:
    """Return the text with a new member at the end of the object `node`, after its last comment."""
    unit, newline = _unit(text, root), _newline(text)
    outer = _indent_at(text, node.end - 1)
    inner = _indent_at(text, _key_of_first(text, node)) if node.members else outer + unit
    if len(inner) <= len(outer):  # the object is on one line
        inner = outer + unit
    member = _nested(path, value, unit).rstrip()[1:-1].strip()
    member = member.replace("\n" + unit, "\n").replace("\n", newline + inner)
    close = node.end - 1
    last = node.members[-1][1].end if node.members else node.start + 1
    between = text[last:close]
    ends_with_comma = text[_skip(text, last)] == ","
    body = between.rstrip()
    end = between[len(body) :]
    if "\n" not in end:
        body, end = between, newline + outer
    if node.members and not ends_with_comma:
        body = "," + body
    comma = "," if ends_with_comma else ""
    return text[:last] + body + newline + inner + member + comma + end + text[close:]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_at(text: str, at: int) -> str:
    """Return the white space at the beginning of the line of this index."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _key_of_first(text: str, node: _Node) -> int:
    return _skip(text, node.start + 1)


def _unit(text: str, root: _Node) -> str:
    """Return the white space by which the text indents one level; two spaces if it has none."""
    if root.members:
        at = _key_of_first(text, root)
        found = _indent_at(text, at)
        if found and text[:at].endswith(("\n" + found, "\r" + found)):
            return found
    return "  "


def _root(text: str) -> _Node | None:
    """Return the parsed object of a text; None if the text holds nothing. Raises Malformed."""
    start = _skip(text, 1 if text.startswith(_BOM) else 0)
    if start == len(text):
        return None
    try:
        root = _read(text, start)
    except RecursionError:
        raise Malformed("it is nested too deeply") from None
    if _skip(text, root.end) != len(text):
        raise _wrong(text, _skip(text, root.end))
    if not isinstance(root.value, dict):
        raise Malformed("it holds no object")
    return root


def _read(text: str, at: int) -> _Node:
    match text[at : at + 1]:
        case "{":
            return _read_object(text, at)
        case "[":
            return _read_array(text, at)
        case '"':
            return _read_scalar(text, at, _STRING)
    return _read_scalar(text, at, _SCALAR)


def _read_scalar(text: str, at: int, form: re.Pattern[str]) -> _Node:
    found = form.match(text, at)
    if not found:
        raise _wrong(text, at)
    return _Node(at, found.end(), json.loads(found[0]))


def _read_object(text: str, start: int) -> _Node:
    node = _Node(start, start, {})
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        key = _read_scalar(text, at, _STRING)
        at = _skip(text, key.end)
        if text[at : at + 1] != ":":
            raise _wrong(text, at)
        value = _read(text, _skip(text, at + 1))
        node.members.append((key.value, value))
        node.value[key.value] = value.value
        at = _after(text, value.end, "}")
    node.end = at + 1
    return node


def _read_array(text: str, start: int) -> _Node:
    node = _Node(start, start, [])
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        each = _read(text, at)
        node.value.append(each.value)
        at = _after(text, each.end, "]")
    node.end = at + 1
    return node


def _after(text: str, end: int, close: str) -> int:
    """Return the index of the next member or the closing bracket, after a value and its comma.

    Raises Malformed.
    """
    at = _skip(text, end)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != close:
        raise _wrong(text, at)
    return at


def _skip(text: str, at: int) -> int:
    """Return the index of the next character that is neither white space nor comment."""
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _wrong(text: str, at: int) -> Malformed:
    line = text.count("\n", 0, at) + 1
    return Malformed(f"it is no JSON: line {line}")
