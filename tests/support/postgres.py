"""A PostgreSQL cluster for a run of the tests, made on first use, as another user than root."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.rights import for_commoner, without_any_right


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    where = found[-1] if found else shutil.which("initdb")
    if where is None:
        pytest.skip("PostgreSQL is not installed")
    return Path(where).resolve().parent


class Cluster:
    """A cluster that listens on a Unix socket in its folder."""

    def __init__(self, folder: Path) -> None:
        """Make it and start it."""
        self._bin = _programs()
        self._folder = for_commoner(folder)
        self._data = folder / "data"
        self._run("initdb", "-D", self._data, "-U", "tester", "-A", "trust", "-E", "UTF8", "-N")
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder}"
        log = self._folder / "log"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is as if it crashed."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def new_database(self) -> str:
        """Make a database and return its URL."""
        name = f"d{uuid4().hex}"
        self._run("createdb", "-h", self._folder, "-U", "tester", name)
        return f"postgresql:///{name}?host={self._folder}&user=tester"

    def _run(self, program: str, *words: object) -> None:
        command = [*without_any_right(), str(self._bin / program), *map(str, words)]
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL, cwd=self._folder)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Give a running cluster, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        made = Cluster(folder)
        yield made
        made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
