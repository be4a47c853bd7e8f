"""Starting processes, finding them and seeing them end, on Linux.

Processes are found by a mark in their environment, which children inherit whatever session,
group or parent they end up with. A zombie counts as dead.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import anyio

#: The environment variable that holds a test's mark.
MARK = "FIXTURE_MARK"


def start_piped(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None
) -> "tuple[subprocess.Popen[bytes], tuple[int, int, int]]":
    """Starts it in its own session, `env` added to ours; our ends of its stdin, stdout, stderr.

    The caller owns the descriptors.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
        cwd=cwd,
        start_new_session=True,
    )
    return process, (_taken(process.stdin), _taken(process.stdout), _taken(process.stderr))


def _taken(file: IO[bytes] | None) -> int:
    """The descriptor, owned by the caller from now on."""
    assert file is not None
    with file:
        return os.dup(file.fileno())


def marked(mark: str) -> list[int]:
    """The pids of the living processes that carry the mark."""
    entry = f"{MARK}={mark}".encode()
    return _processes(lambda pid: entry in _read(f"/proc/{pid}/environ").split(b"\0"))


def children(pid: int) -> list[int]:
    """The living children."""
    return _processes(lambda child: _parent(child) == pid)


def descendants(pid: int) -> list[int]:
    """Children, their children and so on; not those that were adopted by another process."""
    below: dict[int, list[int]] = {}

    def noted(child: int) -> bool:
        below.setdefault(_parent(child), []).append(child)
        return False

    _processes(noted)

    def of(parent: int) -> list[int]:
        return [each for child in below.get(parent, ()) for each in (child, *of(child))]

    return of(pid)


def command_line(pid: int) -> str:
    """For messages; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def gone(pid: int, within: float = 3) -> None:
    """Waits for one process to end; raises TimeoutError naming it."""
    try:
        with anyio.fail_after(within):
            await _ended(pid)
    except TimeoutError:
        message = f"alive after {within} s: {pid} {command_line(pid)}"
        raise TimeoutError(message) from None


async def all_gone(mark: str, within: float = 3) -> None:
    """Waits until no process carries the mark; raises TimeoutError naming the survivors."""
    try:
        with anyio.fail_after(within):
            while pids := marked(mark):
                for pid in pids:
                    await _ended(pid)
    except TimeoutError:
        survivors = [f"{pid} {command_line(pid)}" for pid in marked(mark)]
        raise TimeoutError(f"alive after {within} s: {survivors}") from None


def kill_marked(mark: str) -> None:
    """SIGKILL to every process with the mark, also to those started meanwhile."""
    while pids := marked(mark):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


async def _ended(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(fd)
    finally:
        os.close(fd)


def _parent(pid: int) -> int:
    # The name, in parentheses, may contain anything.
    state, parent = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:2]
    return -1 if state == b"Z" else int(parent)


def _read(path: str) -> bytes:
    # Tests look at every process of the machine again and again; `Path` takes three times as long.
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _processes(wanted: Callable[[int], bool]) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if wanted(int(name)):
                found.append(int(name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
