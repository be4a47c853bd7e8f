"""A PostgreSQL cluster for a run of the tests, made on first use, as another user than root."""

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.processes import MARK, descendants
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
    """A cluster that listens on a Unix socket in its folder, and if asked on an address."""

    def __init__(
        self,
        folder: Path,
        *,
        tcp: bool = False,
        address: str = "127.0.0.1",
        at: Sequence[str] = (),
        copies: "Cluster | None" = None,
        settings: Sequence[str] = (),
    ) -> None:
        """Make it and start it.

        `at`: what stands before the command that starts the server. `copies`: it streams all of
        this other one, until it is promoted.
        """
        self._more = "".join(f" -c {setting}" for setting in settings)
        self._port = _free_port() if tcp else 0
        self._address = address
        self._at = at
        self._bin = _programs()
        self.folder = for_commoner(folder)
        self._data = folder / "data"
        if copies is not None:
            where = f"host={copies.folder} user=tester application_name=copy"
            self._run("pg_basebackup", "-D", self._data, "-R", "-c", "fast", "-d", where)
            self._more += " -c wal_retrieve_retry_interval=100ms"
            self.start()
            return
        auth = ("--auth-local=trust", "--auth-host=scram-sha-256")
        self._run("initdb", "-D", self._data, "-U", "tester", *auth, "-E", "UTF8", "-N")
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write("host all all all scram-sha-256\n")
        self.start()
        self._sql(f"CREATE ROLE guest LOGIN CREATEDB PASSWORD '{PASSWORD}'")

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        options = f"-c unix_socket_directories={self.folder}{self._more} -c listen_addresses="
        if self._port:
            options += f"{self._address} -c port={self._port}"
        log = self.folder / "log"
        words = ("-D", self._data, "-w", "-l", log, "-o", options, "start")
        self._run("pg_ctl", *words, at=self._at)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is as if it crashed."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """All of the server stands still, with every connection, and takes new ones as before."""
        postmaster = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(postmaster, signal.SIGSTOP)  # so that it starts no other
        pids = [postmaster, *descendants(postmaster)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def wait_for_copy(self) -> None:
        """Have it tell of nothing before its copy has that, too."""
        self.stop()
        self._more += " -c synchronous_standby_names=copy"
        self.start()

    def promote(self) -> None:
        """Have a copy become a cluster of its own; returns when it can be written."""
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    @property
    def port(self) -> int:
        """The port that it listens on, on the loopback or its address."""
        return self._port

    @property
    def runs(self) -> bool:
        """Whether it was started, and not stopped or killed since."""
        return (self._data / "postmaster.pid").exists()

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
        for named in (self._data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*.lock")):
            named.unlink()

    def new_database(self, more: str = "") -> str:
        """Make a database of the user `guest` and return its URL for the superuser."""
        name = f"d{uuid4().hex}"
        self._sql(f"CREATE DATABASE {name} OWNER guest {more}")
        return f"postgresql:///{name}?host={self.folder}&user=tester&port={self._port or 5432}"

    @contextmanager
    def a_database(self) -> Iterator[str]:
        """Give the URL of a database that is gone afterwards."""
        url = self.new_database()
        try:
            yield url
        finally:
            self._sql(f"DROP DATABASE {_name_in(url)} WITH (FORCE)")

    def over_tcp(self, url: str, user: str = "guest") -> str:
        """Return the URL of the same database over TCP, where a password is asked for."""
        return f"postgresql://{user}@{self._address}:{self._port}/{_name_in(url)}"

    @property
    def listens(self) -> tuple[str, int]:
        """The address and the port on which it listens, if it does."""
        return self._address, self._port

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            self._sql("SELECT 1")
        except subprocess.CalledProcessError:
            return False
        return True

    def or_copy(self, url: str, copy: "Cluster") -> str:
        """Return the URL of the same database here or in a copy, whichever can be written."""
        both = url.replace(f"host={self.folder}", f"host={self.folder},{copy.folder}")
        return f"{both}&target_session_attrs=read-write"

    def _sql(self, statement: str) -> None:
        where = ("-h", self.folder, "-p", self._port or 5432, "-U", "tester", "postgres")
        self._run("psql", "-q", "-X", *where, "-c", statement)

    def _run(self, program: str, *words: object, at: Sequence[str] = ()) -> None:
        command = [*at, *without_any_right(), str(self._bin / program), *map(str, words)]
        env = {name: value for name, value in os.environ.items() if name != MARK}  # no test's own
        subprocess.run(
            command, check=True, timeout=60, stdout=subprocess.DEVNULL, cwd=self.folder, env=env
        )


def _name_in(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def cluster(where: Path | None = None, **options: Any) -> Iterator[Cluster]:
    """Give a running cluster with these options, in a folder in this one, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=where))
    try:
        made = Cluster(folder, **options)
        yield made
        if made.runs:
            made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[Cluster]:
    """A running cluster; who stops it starts it again."""
    with cluster() as made:
        yield made
