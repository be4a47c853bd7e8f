"""Reads values of JSON that may be of any kind (no I/O)."""

from __future__ import annotations

from acp_bridge.protocol import Json


def as_object(value: object) -> Json:
    """Return an object as it is; anything else becomes an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """Return the objects in a list; anything else becomes an empty list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def strings(value: object) -> list[str]:
    """Return the strings in a list; anything else becomes an empty list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
