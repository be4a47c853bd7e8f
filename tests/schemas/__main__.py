"""Compares the kept schemas of ACP with those of the newest TypeScript SDK (`make schemas`).

It fetches the SDK with npm, and prints which names are new there and which are gone. Then it prints
what the bridge does with each name, and writes the table in docs/versions.md. With `--keep` it
first puts the newest schemas into fixtures/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.schemas import fixtures, table
from tests.schemas.known import Does, judged
from tests.schemas.names import Names, names_of

_PACKAGE: Final = "@agentclientprotocol/sdk"


class Newest:
    """The schemas of the newest SDK."""

    def __init__(self) -> None:
        """Fetch them. Raises CalledProcessError."""
        about = json.loads(_npm("view", _PACKAGE, "version", "time", "--json"))
        self.sdk: str = about["version"]
        self.day: str = about["time"][self.sdk][:10]
        with tempfile.TemporaryDirectory() as there:
            _npm("pack", f"{_PACKAGE}@{self.sdk}", "--pack-destination", there)
            (packed,) = Path(there).glob("*.tgz")
            with tarfile.open(packed) as archive:
                self._files = {
                    (version, name): _read(archive, f"package/schema/v{version}/{name}.json")
                    for version in fixtures.VERSIONS
                    for name in ("schema", "schema.unstable")
                }

    def stable(self, version: int) -> Names:
        """Return the names of the stable schema."""
        return names_of(json.loads(self._files[version, "schema"]))

    def drafts(self, version: int) -> Names:
        """Return the names that only the unstable schema has."""
        return names_of(self._unstable(version)) - self.stable(version)

    def keep(self) -> None:
        """Put the schemas into fixtures/."""
        for version in fixtures.VERSIONS:
            schema = self._files[version, "schema"]
            fixtures.keep(version, schema, self._unstable(version), self.sdk, self.day)

    def _unstable(self, version: int) -> Any:
        return json.loads(self._files[version, "schema.unstable"])


def _npm(*words: str) -> str:
    done = subprocess.run(["npm", *words], capture_output=True, text=True, timeout=240, check=True)
    return done.stdout


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is no file of the package"
    return file.read()


def _print_changes(newest: Newest) -> None:
    sdk, day = fixtures.source()
    print(f"kept: {sdk} ({day}); newest: {newest.sdk} ({newest.day})")
    for version in fixtures.VERSIONS:
        for what, kept, now in (
            ("stable", fixtures.stable(version), newest.stable(version)),
            ("draft", fixtures.drafts(version), newest.drafts(version)),
        ):
            for word, lines in (("new", (now - kept).lines()), ("gone", (kept - now).lines())):
                print(f"\nversion {version}, {what}, {word}: {len(lines)}")
                print("".join(f"  {line}\n" for line in lines), end="")


def _print_known(newest: Newest) -> None:
    for version in fixtures.VERSIONS:
        names = newest.stable(version) | newest.drafts(version)
        for kind, of_kind in judged(version, names).items():
            for does in Does:
                found = [name for name in of_kind if of_kind[name] is does]
                print(f"\nversion {version}, {kind}, {does}: {len(found)}")
                print("".join(f"  {name}\n" for name in found), end="")


def main() -> None:
    """Compare, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="make schemas", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="put the newest into fixtures/")
    given = parser.parse_args()
    newest = Newest()
    _print_changes(newest)
    _print_known(newest)
    if given.keep:
        newest.keep()
    table.write()


if __name__ == "__main__":
    main()
