"""A PostgreSQL cluster for a run of the tests, made on first use, as another user than root."""

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.processes import descendants
from tests.support.rights import for_commoner, without_any_right

#: of the user `guest`, who may log in over TCP with it alone.
PASSWORD = "of the guest"


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    where = found[-1] if found else shutil.which("initdb")
    if where is None:
        pytest.skip("PostgreSQL is not installed")
    return Path(where).resolve().parent


class Cluster:
    """A cluster that listens on a Unix socket in its folder, and if asked on the loopback."""

    def __init__(self, folder: Path, *, tcp: bool = False) -> None:
        """Make it and start it."""
        self._port = _free_port() if tcp else 0
        self._bin = _programs()
        self._folder = for_commoner(folder)
        self._data = folder / "data"
        auth = ("--auth-local=trust", "--auth-host=scram-sha-256")
        self._run("initdb", "-D", self._data, "-U", "tester", *auth, "-E", "UTF8", "-N")
        self.start()
        self._sql(f"CREATE ROLE guest LOGIN CREATEDB PASSWORD '{PASSWORD}'")

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        options = f"-c unix_socket_directories={self._folder} -c listen_addresses="
        if self._port:
            options += f"127.0.0.1 -c port={self._port}"
        log = self._folder / "log"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is as if it crashed."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """Kill all of the server at once, as a loss of power does; returns when it is dead."""
        postmaster = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(postmaster, signal.SIGSTOP)  # so that it starts no other, and buries none
        pids = [postmaster, *descendants(postmaster)]
        ends = [os.pidfd_open(pid) for pid in pids]
        for how in (signal.SIGSTOP, signal.SIGKILL):  # so that none tells that another is dead
            for pid in pids:
                os.kill(pid, how)
        for end in ends:
            select.select([end], [], [], 10)
            os.close(end)
        # Their numbers are not free as long as nobody has waited for the dead.
        for named in (self._data / "postmaster.pid", *self._folder.glob(".s.PGSQL.*.lock")):
            named.unlink()

    def new_database(self, more: str = "") -> str:
        """Make a database of the user `guest` and return its URL for the superuser."""
        name = f"d{uuid4().hex}"
        self._sql(f"CREATE DATABASE {name} OWNER guest {more}")
        return f"postgresql:///{name}?host={self._folder}&user=tester&port={self._port or 5432}"

    def over_tcp(self, url: str, user: str = "guest") -> str:
        """Return the URL of the same database over TCP, where a password is asked for."""
        name = url.partition("?")[0].rpartition("/")[2]
        return f"postgresql://{user}@127.0.0.1:{self._port}/{name}"

    def _sql(self, statement: str) -> None:
        where = ("-h", self._folder, "-p", self._port or 5432, "-U", "tester", "postgres")
        self._run("psql", "-q", "-X", *where, "-c", statement)

    def _run(self, program: str, *words: object) -> None:
        command = [*without_any_right(), str(self._bin / program), *map(str, words)]
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL, cwd=self._folder)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def cluster(*, tcp: bool = False) -> Iterator[Cluster]:
    """Give a running cluster, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        made = Cluster(folder, tcp=tcp)
        yield made
        made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
