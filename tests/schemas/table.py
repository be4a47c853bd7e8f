"""The table in docs/versions.md: what the bridge does with each name of the schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.schemas import fixtures
from tests.schemas.known import Does, judged

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "versions.md"
BEGIN, END = "<!-- schemas: written by make schemas -->", "<!-- end of schemas -->"


def table() -> str:
    """Return the table, from the kept schemas and the bridge's code."""
    sdk, day = fixtures.source()
    rows = [
        f"TypeScript SDK {sdk} ({day}), stable and draft:",
        "",
        f"| version | names | {' | '.join(Does)} |",
        "|---|---|---|---|---|",
    ]
    for version in fixtures.VERSIONS:
        names = fixtures.stable(version) | fixtures.drafts(version)
        for kind, does in judged(version, names).items():
            of_each = [{_bare(name) for name in does if does[name] is each} for each in Does]
            understood, *others = of_each
            cells = [str(len(understood)), *map(_listed, others)]
            rows.append(f"| {version} | {kind} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _bare(name: str) -> str:
    """Return a name without the side that it belongs to."""
    return name.rpartition(" ")[2]


def _listed(names: set[str]) -> str:
    """Return a number and the names that it counts."""
    said = ", ".join(f"`{name}`" for name in sorted(names))
    return f"{len(names)}: {said}" if names else "0"


def written() -> str:
    """Return the table that stands in the document."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].strip("\n")


def write() -> None:
    """Write the table into the document, between its marks."""
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")
