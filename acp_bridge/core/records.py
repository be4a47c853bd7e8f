"""Copies records with changes, of any kind (CONTRIBUTING.md says which kind is used where)."""

from typing import Any, TypeVar

_Record = TypeVar("_Record")


def replace(record: _Record, **changes: Any) -> _Record:
    """Return a copy of a `Struct`, a NamedTuple or a dataclass with these values in its fields."""
    copied = getattr(record, "__replace__", None) or getattr(record, "_replace", None)
    if copied is not None:
        copy: _Record = copied(**changes)
        return copy
    import dataclasses  # not before the first agent is started: it takes as long as all before it

    return dataclasses.replace(record, **changes)  # type: ignore[type-var]
