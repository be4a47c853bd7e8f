"""The schemas that are kept in fixtures, and the names of the drafts beside each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from tests.schemas.names import Json, Names, names_of

VERSIONS: Final = (1, 2)
_FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
#: the line of a README that says where the schema is from.
_SOURCE: Final = re.compile(r"`@agentclientprotocol/sdk` (\S+) \((\S+)\)")


def folder(version: int) -> Path:
    """Return the folder of fixtures for a version of the protocol."""
    return _FIXTURES / f"acp-v{version}"


def source() -> tuple[str, str]:
    """Return the SDK's version that the kept schemas are from, and the day of its release."""
    found = {_SOURCE.findall((folder(each) / "README.md").read_text())[0] for each in VERSIONS}
    assert len(found) == 1, "the schemas of the two versions are from different SDKs"
    version, day = found.pop()
    return version, day


def stable(version: int) -> Names:
    """Return the names in the kept schema."""
    return names_of(json.loads((folder(version) / "schema.json").read_text()))


def drafts(version: int) -> Names:
    """Return the names that only the SDK's unstable schema had, when the schema was taken."""
    return Names.of_json(json.loads((folder(version) / "drafts.json").read_text()))


def keep(version: int, schema: bytes, unstable: Json, sdk: str, day: str) -> None:
    """Keep a schema, the names of its drafts, and where they are from."""
    there = folder(version)
    (there / "schema.json").write_bytes(schema)
    only = names_of(unstable) - names_of(json.loads(schema))
    (there / "drafts.json").write_text(json.dumps(only.as_json(), indent=1) + "\n")
    readme = there / "README.md"
    said = f"`@agentclientprotocol/sdk` {sdk} ({day})"
    readme.write_text(_SOURCE.sub(said, readme.read_text()))
