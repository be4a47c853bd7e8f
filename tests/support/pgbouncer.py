"""A pgbouncer before a cluster, as another user than root."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.postgres import Cluster
from tests.support.rights import for_commoner, without_any_right

_PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
_CONFIGURATION = """
[databases]
* = host={server} port=5432 user=tester
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = {mode}
server_round_robin = 1
{more}
"""


@contextmanager
def pgbouncer(server: Cluster, mode: str, more: str = "") -> Iterator[Path]:
    """Give the folder of the socket of a pooler of this pool_mode; its port is 6432."""
    if _PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    folder = for_commoner(Path(tempfile.mkdtemp(prefix="pool-")))
    file = folder / "pgbouncer.ini"
    file.write_text(
        _CONFIGURATION.format(server=server.folder, folder=folder, port=6432, mode=mode, more=more)
    )
    file.chmod(0o644)
    command = [*without_any_right(), _PROGRAM, "-q", str(file)]
    with (folder / "log").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder)
    try:
        _wait(folder / ".s.PGSQL.6432", process)
        yield folder
    finally:
        process.kill()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(path: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until something listens on a socket; raises AssertionError if its process ends."""
    while process.poll() is None:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(path)) == 0:
                return
    raise AssertionError("pgbouncer has ended")
