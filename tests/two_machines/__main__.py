"""`make test-remote`: a bridge that serves on one machine, and whoever comes from another one.

The machines are two network namespaces with a cable between them, so this needs root; the SDK and
the page need npm and Chromium. Exit 0: all of the story held.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from tests.clients_not_ours.conftest import HERE as CLIENTS
from tests.page_not_ours.browser import chromium
from tests.support.npm import installed
from tests.two_machines.machines import AWAY, HOME, at
from tests.two_machines.story import story

INSIDE = "--inside"


def main() -> int:
    """Lay the cable, and have the story told at its far end."""
    if INSIDE in sys.argv:
        anyio.run(story, Path(sys.argv[-1]))
        print("It held.")
        return 0
    if os.geteuid() or not shutil.which("ip") or chromium() is None:
        print("This needs root, the command ip, and Chromium (apt-get install iproute2 chromium).")
        return 2
    installed(CLIENTS)
    with tempfile.TemporaryDirectory(prefix="two-") as folder, cable():
        words = [sys.executable, "-m", "tests.two_machines", INSIDE, folder]
        return subprocess.run(at(AWAY, *words), check=False).returncode


@contextmanager
def cable() -> Iterator[None]:
    """Two machines that reach each other, and nobody else."""
    for machine in (HOME, AWAY):
        _ip("netns", "add", machine.name)
    try:
        _ip("link", "add", "home0", "netns", HOME.name, "type", "veth", "peer", "away0")
        _ip("link", "set", "away0", "netns", AWAY.name)
        for machine in (HOME, AWAY):
            inside = ("-n", machine.name)
            _ip(*inside, "link", "set", "lo", "up")
            _ip(*inside, "address", "add", f"{machine.address}/24", "dev", machine.end)
            _ip(*inside, "link", "set", machine.end, "up")
        yield
    finally:
        for machine in (HOME, AWAY):
            _ip("netns", "delete", machine.name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
