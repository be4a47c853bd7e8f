"""The marks that say which test proves which invariant, or attacks which promise of SECURITY.md.

They are read from the source of the tests. `make hazards` writes the headings of docs/invariants.md
from hazards.toml, and into docs/invariants-tests.md the tests of each number. test_hazards.py fails
while one is out of date. A mark is on a test, on a class of tests, or in `pytestmark` of a module.
It names an entry (Q16), or one promise of an entry by its own number (Q16.1). The document itself
has the list of promises.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
DOCUMENT = TESTS.parent / "docs" / "invariants.md"
PROOFS = DOCUMENT.with_name("invariants-tests.md")
SECURITY = TESTS.parent / "SECURITY.md"
ATTACKS = "tests/attacks/"
#: The heading of an invariant, and what was written about it.
ENTRY = re.compile(r"^### ([A-Z]\d+)\b.*\n((?:(?!#).*\n?)*)", re.MULTILINE)
#: A promise of an entry: its own number, and one sentence.
PROMISE = re.compile(r"^- \*\*([A-Z]\d+\.\d+)\*\* (.+)$", re.MULTILINE)
#: How a promise of SECURITY.md is numbered.
CLAIM = re.compile(r"\((S\d+)[);]")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Mark(NamedTuple):
    """One hazard number on one test; `test` is what pytest takes as a node id."""

    number: str
    test: str
    #: the test may not run or may not pass: skip, skipif, xfail.
    excused: bool

    @property
    def entry(self) -> str:
        """The entry that the number belongs to: Q16 for Q16.1."""
        return self.number.partition(".")[0]


def manifest() -> tuple[dict[str, str], dict[str, str]]:
    """The hazards (number -> what must hold) and those deferred (number -> why)."""
    read = tomllib.loads((TESTS / "hazards.toml").read_text("utf-8"))
    return read["hazards"], read["deferred"]


def claims() -> dict[str, str]:
    """What SECURITY.md promises: number -> in short."""
    read: dict[str, str] = tomllib.loads((TESTS / "hazards.toml").read_text("utf-8"))["claims"]
    return read


@cache
def promises() -> dict[str, str]:
    """What docs/invariants.md promises: number (Q16.1) -> one sentence."""
    return dict(PROMISE.findall(DOCUMENT.read_text("utf-8")))


@cache
def all_marks() -> list[Mark]:
    """Every mark below tests/."""
    return [
        mark
        for path in sorted(TESTS.rglob("test_*.py"))
        if "node_modules" not in path.parts
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


def document(text: str) -> str:
    """The text of docs/invariants.md with the headings of its entries as they should be.

    Raises KeyError for an invariant that hazards.toml doesn't have.
    """
    hazards, _ = manifest()

    def heading(found: re.Match[str]) -> str:
        return f"### {found[1]}: {hazards[found[1]]}\n\n{found[2].strip()}\n\n"

    return ENTRY.sub(heading, text).rstrip() + "\n"


def proofs() -> str:
    """The text of docs/invariants-tests.md: the tests of each invariant, or why it has none yet."""
    hazards, deferred = manifest()
    tests: dict[str, list[Mark]] = defaultdict(list)
    for mark in all_marks():
        tests[mark.entry].append(mark)
    lists = (
        f"## {number}\n\n{title[:1].upper()}{title[1:]}.\n\n"
        + (_listed(tests[number]) if tests[number] else f"No test yet: {deferred.get(number)}.\n")
        for number, title in (hazards | claims()).items()
    )
    return "\n".join((_INTRODUCTION, *lists))


_INTRODUCTION = """\
# The tests of the invariants

For each entry of [invariants.md](invariants.md), the tests that prove it. For each promise of \
[SECURITY.md](../SECURITY.md), the tests that attack it. If a test names one promise of an entry, \
its number is in brackets. `make hazards` writes this file from the marks of the tests \
(`@pytest.mark.hazard("C8")`, `hazard("C8.1")`). Don't edit it.
"""


def _listed(marks: Iterable[Mark]) -> str:
    """The tests as a Markdown list with an item for each file, and the promises that they name."""
    named: dict[str, set[str]] = defaultdict(set)
    for mark in marks:
        named[mark.test] |= {mark.number} - {mark.entry}
    files = defaultdict(list)
    for test in sorted(named):
        file, _, name = test.partition("::")
        numbers = ", ".join(sorted(named[test], key=lambda number: int(number.partition(".")[2])))
        files[file].append((f"`{name}`" if name else "all") + (f" ({numbers})" if numbers else ""))
    return "".join(f"- `{file}`: {', '.join(names)}\n" for file, names in files.items())


def main() -> None:
    """Bring both documents up to date."""
    DOCUMENT.write_text(document(DOCUMENT.read_text("utf-8")), "utf-8")
    PROOFS.write_text(proofs(), "utf-8")
    tests = {mark.test for mark in all_marks()}
    print(f"written: docs/{PROOFS.name}, {len(manifest()[0])} invariants, {len(tests)} tests")


if __name__ == "__main__":
    main()
