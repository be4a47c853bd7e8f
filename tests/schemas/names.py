"""The names in a schema of ACP: methods, kinds of update, capabilities, and members of objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Names:
    """All names of one schema.

    `methods`: each behind the side that takes it, as in `agent session/new`. `capabilities`: each
    behind the side that has it, as in `agent promptCapabilities.image`. `members`: each behind its
    definition, as in `PromptRequest.prompt`.
    """

    methods: frozenset[str] = frozenset()
    updates: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()

    def __sub__(self, other: Names) -> Names:
        return Names(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __or__(self, other: Names) -> Names:
        return Names(*(a | b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def lines(self) -> list[str]:
        """Return one line for each name, with the kind of name in front."""
        return [f"{kind}: {name}" for kind, names in self.as_json().items() for name in names]

    def as_json(self) -> dict[str, list[str]]:
        """Return the names by their kind, each kind sorted."""
        return {field.name: sorted(getattr(self, field.name)) for field in fields(self)}

    @staticmethod
    def of_json(kept: dict[str, list[str]]) -> Names:
        """Return the names that `as_json` has given."""
        return Names(**{kind: frozenset(names) for kind, names in kept.items()})


def names_of(schema: Json) -> Names:
    """Return the names in a schema of either version."""
    defined: Json = schema["$defs"]
    return Names(
        frozenset(f"{d['x-side']} {d['x-method']}" for d in defined.values() if "x-method" in d),
        frozenset(_kinds(defined["SessionUpdate"])),
        frozenset(
            f"{side} {path}"
            for side in ("agent", "client")
            for path in _capabilities(defined, f"{side.title()}Capabilities", "")
        ),
        frozenset(
            f"{name}.{member}"
            for name, definition in defined.items()
            for member in definition.get("properties", {})
        ),
    )


def _kinds(update: Json) -> Iterator[str]:
    """Yield the kinds of update that are named; version 2 also allows any other."""
    for variant in update.get("oneOf") or update["anyOf"]:
        if kind := variant["properties"]["sessionUpdate"].get("const"):
            yield kind


def _capabilities(defined: Json, name: str, before: str) -> Iterator[str]:
    """Yield the path of each capability in a definition that has no further ones inside."""
    for member, about in defined[name].get("properties", {}).items():
        if member == "_meta":
            continue
        path = f"{before}{member}"
        inside = [p for other in _named(about) for p in _capabilities(defined, other, f"{path}.")]
        yield from inside or [path]


def _named(about: Json) -> Iterator[str]:
    for each in (about, *about.get("allOf", ()), *about.get("anyOf", ())):
        if "$ref" in each:
            yield each["$ref"].rpartition("/")[2]
