"""Which tests prove which hazard: read from the marks in the source, without importing a test.

`python -m tests.hazards` prints the map; test_hazards.py holds it against hazards.toml.
A mark may stand on a test, on a class of tests, or in `pytestmark` of a module.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Mark(NamedTuple):
    """One hazard number on one test; `test` is what pytest takes as a node id."""

    number: str
    test: str
    #: the test may not run or may not pass: skip, skipif, xfail.
    excused: bool


def manifest() -> tuple[dict[str, str], dict[str, str]]:
    """The hazards (number -> what must hold) and those deferred (number -> why)."""
    read = tomllib.loads((TESTS / "hazards.toml").read_text("utf-8"))
    return read["hazards"], read["deferred"]


@cache
def all_marks() -> list[Mark]:
    """Every mark below tests/."""
    return [
        mark
        for path in sorted(TESTS.rglob("test_*.py"))
        for mark in marks(path.read_text("utf-8"), path.relative_to(TESTS.parent).as_posix())
    ]


def marks(source: str, name: str) -> Iterator[Mark]:
    """The marks in one module; raises ValueError for one that stands on no test."""
    module = ast.parse(source, name)
    for node in module.body:
        if isinstance(node, Definition):
            yield from _of_definition(node, name)
        elif isinstance(node, ast.Assign):
            target = ast.unparse(node.targets[0])
            test = name if target == "pytestmark" else f"{name}::{target.partition('.')[0]}"
            yield from _given([node.value], test)


def _of_definition(node: Definition, scope: str) -> Iterator[Mark]:
    test = f"{scope}::{node.name}"
    found = list(_given(node.decorator_list, test))
    if found and not node.name.lower().startswith("test"):
        raise ValueError(f"{test} carries a hazard and is no test")
    yield from found
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, Definition):
                yield from _of_definition(inner, test)


def _given(nodes: Iterable[ast.expr], test: str) -> Iterator[Mark]:
    calls = [inner for node in nodes for inner in ast.walk(node)]
    excused = any(
        isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "xfail")
        for node in calls
    )
    for call in calls:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("mark.hazard"):
            for number in call.args:
                if not (isinstance(number, ast.Constant) and isinstance(number.value, str)):
                    raise ValueError(f"{test}: a hazard's number is a plain string")
                yield Mark(number.value, test, excused)


def main() -> None:
    """Print every hazard with its tests."""
    found = all_marks()
    hazards, deferred = manifest()
    for number, title in hazards.items():
        print(f"{number}  {title}")
        tests = sorted({mark.test for mark in found if mark.number == number})
        for line in tests or [f"(deferred: {deferred[number]})" if number in deferred else "NONE"]:
            print(f"      {line}")


if __name__ == "__main__":
    main()
