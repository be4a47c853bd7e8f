"""The machines: network namespaces, each with one cable, which goes to that of the database."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

#: of the database, on no cable: each machine reaches it over its own.
ADDRESS = "10.98.0.1"
DATABASE = f"acp-database-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A network namespace, and its cable."""

    name: str
    network: str

    @property
    def address(self) -> str:
        """Its address, for the database."""
        return f"{self.network}.2"

    @property
    def near(self) -> str:
        """Its own end of the cable."""
        return self.name.removeprefix("acp-")

    @property
    def far(self) -> str:
        """The database's end of the cable."""
        return f"{self.near}-db"

    def link(self, end: str, *, up: bool) -> str:
        """Plug an end of the cable in, or out; returns the command."""
        where = self.name if end == self.near else DATABASE
        words = ("-n", where, "link", "set", end, "up" if up else "down")
        _ip(*words)
        if up and end == self.near:  # which has gone with its end
            _ip(*self._route)
        return "ip " + " ".join(words)

    @property
    def _route(self) -> tuple[str, ...]:
        return ("-n", self.name, "route", "add", ADDRESS, "via", f"{self.network}.1")

    def lay_cable(self) -> None:
        """Make the machine, and its way to the database."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self.near, "netns", self.name, "type", "veth", "peer", self.far)
        _ip("link", "set", self.far, "netns", DATABASE)
        ends = ((self.name, self.near, 2), (DATABASE, self.far, 1))
        for where, end, number in ends:
            _ip("-n", where, "address", "add", f"{self.network}.{number}/24", "dev", end)
            _ip("-n", where, "link", "set", end, "up")
        _ip(*self._route)

    def pids(self) -> list[int]:
        """All processes that run there."""
        found = subprocess.check_output(["ip", "netns", "pids", self.name], text=True)
        return [int(pid) for pid in found.split()]

    def kill(self) -> int:
        """Kill all that runs there at once; returns how many processes that were."""
        pids = self.pids()
        for how in (signal.SIGSTOP, signal.SIGKILL):  # so that none sees another die
            for pid in pids:
                os.kill(pid, how)
        return len(pids)

    def at(self, *command: str) -> list[str]:
        """Return the words that run a command there, under the machine's own host name."""
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name]
        return [*at(self.name), *named, *command]


A = Machine(f"acp-a-{os.getpid()}", "10.98.1")
B = Machine(f"acp-b-{os.getpid()}", "10.98.2")


def at(name: str) -> Sequence[str]:
    """Return what stands before a command that is to run in a namespace."""
    return ("ip", "netns", "exec", name)


@contextmanager
def network() -> Iterator[None]:
    """Two machines that reach the database, and not each other."""
    made = (DATABASE, A.name, B.name)
    try:
        _ip("netns", "add", DATABASE)
        _ip("-n", DATABASE, "link", "set", "lo", "up")
        _ip("-n", DATABASE, "address", "add", f"{ADDRESS}/32", "dev", "lo")
        for machine in (A, B):
            machine.lay_cable()
        yield
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
