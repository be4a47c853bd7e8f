"""Reads a page of an MCP server's list of tools, one tool at a time.

Invariants
- An odd tool takes no other with it: it is mended, or left out, and named.
- The schema of a tool's arguments is one of an object, and providers of models take it: they refuse
  a whole request for one schema that they don't like. The server checks the arguments itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.loose import members, read_json, words
from agent.mcp_servers.messages import VALUE

Tool = dict[str, Any]

_TYPES = frozenset(["object", "array", "string", "number", "integer", "boolean", "null"])
#: the names of a tool's schema; the first is the protocol's
_SCHEMAS = ("inputSchema", "input_schema", "parameters", "schema")
#: schemas of which one, or all, hold
_CHOICES = ("anyOf", "oneOf", "allOf")
#: what providers refuse at the top of a schema
_NOT_AT_TOP = (*_CHOICES, "not", "if", "then", "else", "$ref", "enum", "const")
#: levels of a schema that are looked at
_DEPTH = 32
#: how many odd tools are named
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Page:
    tools: tuple[Tool, ...] = ()
    #: names of tools whose schema was mended
    mended: tuple[str, ...] = ()
    #: what was left out
    left_out: tuple[str, ...] = ()
    cursor: str | None = field(default=None, compare=False)

    @staticmethod
    def joined(pages: Iterable[Page]) -> Page:
        pages = list(pages)
        return Page(
            tuple(tool for page in pages for tool in page.tools),
            tuple(name for page in pages for name in page.mended),
            tuple(name for page in pages for name in page.left_out),
        )

    def without(self, names: frozenset[str]) -> Page:
        """Returns the page without these tools, which the protocol forbids to use."""
        if not names:
            return self
        tools = tuple(tool for tool in self.tools if tool["name"] not in names)
        return Page(tools, self.mended, (*self.left_out, *sorted(names)), self.cursor)

    def oddities(self) -> Iterator[str]:
        """Yields the ends of sentences, for the user, that begin with the server's name."""
        if self.mended:
            yield (
                f"describes the arguments of {_listed(self.mended)} in a form that is not MCP's:"
                " they are used as far as they can be read."
            )
        if self.left_out:
            yield f"lists tools that can't be used and are left out: {_listed(self.left_out)}."


def _listed(names: tuple[str, ...]) -> str:
    told = [f"`{name[:60]}`" for name in dict.fromkeys(names)]
    more = [f"{len(told) - _NAMED} more"] if len(told) > _NAMED else []
    return ", ".join([*told[:_NAMED], *more])


def read_page(answer: Mapping[str, Any]) -> Page:
    """Returns the tools that the answer to `tools/list` has, each with the members that we use.

    They are `name`, `title`, `description` and `inputSchema`.
    """
    tools: list[Tool] = []
    mended: list[str] = []
    left_out: list[str] = []
    for place, (key, entry) in enumerate(_entries(answer.get("tools", answer.get(VALUE))), 1):
        name = words(members(entry).get("name")) or key
        if not name or not isinstance(entry, dict):
            left_out.append(name or f"number {place}")
            continue
        given = next((entry[member] for member in _SCHEMAS if member in entry), None)
        schema, odd = read_schema(given)
        if odd:
            mended.append(name)
        said = {part: words(entry.get(part)) for part in ("title", "description")}
        told = {part: text for part, text in said.items() if text}
        tools.append({"name": name, **told, "inputSchema": schema})
    cursor = words(answer.get("nextCursor")) or None
    return Page(tuple(tools), tuple(mended), tuple(left_out), cursor)


def _entries(tools: Any) -> Iterator[tuple[str, Any]]:
    """Yields the entries of a list of tools; of an object, each with its name there."""
    if isinstance(tools, list):
        yield from (("", entry) for entry in tools)
    elif isinstance(tools, dict):
        if "name" in tools and isinstance(tools["name"], str):
            yield "", tools
        else:
            yield from tools.items()


def read_schema(given: Any) -> tuple[dict[str, Any], bool]:
    """Returns the schema of a tool's arguments, and True if it had to be mended to be one."""
    if isinstance(given, str):
        try:
            given = read_json(given)
        except ValueError:
            given = None
    if not isinstance(given, dict):
        return {"type": "object", "properties": {}}, True
    whole = _at_top(given)
    schema = _checked(whole, _DEPTH)
    schema["type"] = "object"
    if not isinstance(schema.get("properties"), dict):
        schema.pop("properties", None)
    return schema, given.get("type") != "object"


def _at_top(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema of an object without choices at its top: with the members of all of them."""
    choices = [schema, *_choices(schema, schema, 4)]
    if len(choices) == 1 and not any(name in schema for name in _NOT_AT_TOP):
        return schema
    merged = {name: value for name, value in schema.items() if name not in _NOT_AT_TOP}
    properties: dict[str, Any] = {}
    for choice in choices:
        for name, value in members(choice.get("properties")).items():
            properties.setdefault(name, value)
    merged["properties"] = properties
    return merged


def _choices(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    """Yields the schemas that a schema refers to or chooses from, at any depth."""
    found = [each for name in _CHOICES for each in _list(schema.get(name))]
    found += [schema.get(name) for name in ("then", "else")]
    found.append(_referred(schema.get("$ref"), root))
    for each in found:
        if isinstance(each, dict) and depth:
            yield each
            yield from _choices(each, root, depth - 1)


def _referred(path: Any, root: dict[str, Any]) -> Any:
    """Returns the place in a schema that a local `$ref` names; None if there is none."""
    if not isinstance(path, str) or not path.startswith("#/"):
        return None
    place: Any = root
    for part in path[2:].split("/"):
        place = members(place).get(part.replace("~1", "/").replace("~0", "~"))
    return place


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _checked(schema: Any, depth: int) -> dict[str, Any]:
    """Returns a schema without the members that JSON Schema doesn't allow in it."""
    if not isinstance(schema, dict) or not depth:
        return {}
    found = dict(schema)
    _keep(found, "type", _type(schema.get("type")))
    _keep(found, "required", _names(schema.get("required")))
    for name in ("enum", *_CHOICES):
        _keep(found, name, _list(schema.get(name)) or None)
    for name in ("description", "title", "$ref", "$schema", "$id", "format", "pattern"):
        _keep(found, name, value if isinstance(value := schema.get(name), str) else None)
    for name in ("properties", "$defs", "definitions", "patternProperties"):
        if name in found:
            parts = members(found[name]).items()
            found[name] = {key: _checked(value, depth - 1) for key, value in parts}
    for name in _CHOICES:
        if name in found:
            found[name] = [_part(value, depth) for value in found[name]]
    for name in ("items", "additionalProperties", "not"):
        if name in found:
            _keep(found, name, _part(found[name], depth))
    return found


def _part(schema: Any, depth: int) -> Any:
    return schema if isinstance(schema, bool) else _checked(schema, depth - 1)


def _keep(schema: dict[str, Any], name: str, value: Any) -> None:
    """Puts the value in the place of a member that is there; None takes the member away."""
    if name in schema:
        if value is None:
            del schema[name]
        else:
            schema[name] = value


def _type(value: Any) -> Any:
    if isinstance(value, list):
        known = [each for each in value if isinstance(each, str) and each in _TYPES]
        return known or None
    return value if isinstance(value, str) and value in _TYPES else None


def _names(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    return [name for name in value if isinstance(name, str)]
