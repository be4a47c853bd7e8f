"""Starting processes, finding them and seeing them end, on Linux.

Processes are found by a mark in their environment, which children inherit whatever session,
group or parent they end up with. A zombie counts as dead.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from tests.support import fork_server

#: The environment variable that holds a test's mark.
MARK = fork_server.MARK
#: A process that `start_piped` has started.
Process = subprocess.Popen[bytes] | fork_server.Forked


def start_piped(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None
) -> tuple[Process, tuple[int, int, int]]:
    """Starts it in its own session, `env` added to ours; our ends of its stdin, stdout, stderr.

    A bridge is forked, unless a test has `whole_starts`. The caller owns the descriptors.
    """
    (stdin, ours), (from_stdout, stdout), (from_stderr, stderr) = (os.pipe() for _ in range(3))
    theirs = (stdin, stdout, stderr)
    try:
        process = start(command, {**os.environ, **env}, cwd, theirs)
    except BaseException:
        for fd in (ours, from_stdout, from_stderr):
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return process, (ours, from_stdout, from_stderr)


def start(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None, fds: tuple[int, int, int]
) -> Process:
    """Starts it in its own session, with all of this environment and copies of `fds`."""
    if forked := fork_server.fork(command, env, cwd, fds):
        return forked
    stdin, stdout, stderr = fds
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )


class Watched:
    """A process that is waited for without holding up the event loop."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid
        self.send_signal, self.kill = process.send_signal, process.kill

    async def wait(self) -> int:
        """Returns the exit code, when it has ended."""
        await _ended(self.pid)
        return self._process.wait()


async def run(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None, said: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Starts it as `start_piped` does, with `said` on its stdin; returns when it has ended."""
    process, (stdin, *outputs) = start_piped(command, env, cwd)
    try:
        os.write(stdin, said)
        os.close(stdin)
        read = {fd: bytearray() for fd in outputs}
        async with anyio.create_task_group() as tasks:
            for fd, data in read.items():
                tasks.start_soon(_read_all, fd, data)
        await _ended(process.pid)
    finally:
        process.kill()
        code = process.wait()
        for fd in outputs:
            os.close(fd)
    return subprocess.CompletedProcess(command, code, *map(bytes, read.values()))


async def _read_all(fd: int, data: bytearray) -> None:
    await anyio.wait_readable(fd)
    while part := os.read(fd, 65536):
        data += part
        await anyio.wait_readable(fd)


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
