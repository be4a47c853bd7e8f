"""Copies records with changes, of either kind (CONTRIBUTING.md says which kind is used where)."""

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

_Record = TypeVar("_Record")


def replace(record: _Record, **changes: Any) -> _Record:
    """Return a copy of a `Struct` or a dataclass whose fields in `changes` have these values."""
    if isinstance(record, Struct):
        return structs.replace(record, **changes)
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]
