"""Reads the JSON that the quick reader refuses: lone surrogates. Sans-IO."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

#: Lists and objects inside each other. pydantic_core stops there, too; `encode` reaches deeper.
MAX_DEPTH: Final = 200


def slow_loads(line: bytes) -> Any:
    """Return the value of a JSON line, which may have lone surrogates: pydantic_core refuses them.

    Raises ValueError for what JSON doesn't allow, and for what is nested too deep.
    """
    value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
    if level:
        raise ValueError("nested too deep")
    return value


def _containers(outer: Any) -> list[Any]:
    values = outer.values() if type(outer) is dict else outer
    return [value for value in values if type(value) is dict or type(value) is list]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
