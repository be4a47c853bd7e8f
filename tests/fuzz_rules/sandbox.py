"""Runs lines where they can do nothing: in namespaces of users, mounts, processes and networks.

All that is there are three shells with their libraries, the programs of `scratch` and /dev/null;
only the scratch folder can be written. Whoever runs a line has no rights, and is nobody where the
bench runs as root. Each line has two seconds and a hundred processes; all of them end with it.
"""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import os
import random
import resource
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tests.fuzz_rules import scratch as folder
from tests.fuzz_rules.scratch import PROGRAMS_AT, SHELLS, SHELLS_AT

NOBODY: Final = 65534
SECONDS: Final = 2.0
PROCESSES: Final = 100
#: how long the sandbox may take to be there, and to answer about one line, in seconds.
_ANSWERS: Final = 60
_NEWNS, _NEWUTS, _NEWIPC = 0x20000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND = 1, 2, 4, 32, 4096
_REC, _PRIVATE, _DETACH = 16384, 1 << 18, 2
_PDEATHSIG, _DUMPABLE, _NO_NEW_PRIVS = 1, 4, 38
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}


class Unavailable(Exception):
    """The sandbox can't be had; the text says why."""


@dataclass(frozen=True)
class Ran:
    """What one shell did with a line: the bytes that its trace and the programs have written."""

    shell: str
    trace: bytes
    log: bytes
    #: paths of files that are new, gone or changed.
    changed: tuple[str, ...]


class Sandbox:
    """One sandbox, in which one line runs at a time."""

    def __init__(self, scratch: str) -> None:
        """`scratch`: the path of the folder, in the sandbox and outside."""
        self._ours, theirs = mp.Pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            with suppress(BaseException):
                self._ours.close()
                _enter(scratch, theirs)
            os._exit(1)
        theirs.close()
        answer = self._answer()
        if answer is not None:
            self.close()
            raise Unavailable(answer)

    def run(self, line: str) -> list[Ran]:
        """Run a line in each shell."""
        self._ours.send(line)
        answer = self._answer()
        if not isinstance(answer, list):
            raise Unavailable(str(answer))
        return answer

    def _answer(self) -> object:
        try:
            if self._ours.poll(_ANSWERS):
                return self._ours.recv()
        except (EOFError, OSError):
            return "the sandbox has ended by itself"
        return "the sandbox does not answer"

    def close(self) -> None:
        self._ours.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _called(result: int, what: str) -> None:
    if result:
        raise Unavailable(f"{what}: {os.strerror(ctypes.get_errno())}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(source: str, to: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    given = (each.encode() or None for each in (source, to, kind))
    one, two, three = given
    _called(_libc().mount(one, two, three, flags, data.encode() or None), f"mount {to}")


def _enter(scratch: str, channel: Connection) -> None:
    """Be the parent of the first process of the namespaces, which ends with this one."""
    try:
        libc = _libc()
        if not os.geteuid():
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        libc.prctl(_DUMPABLE, 1)
        libc.prctl(_PDEATHSIG, signal.SIGKILL)
        user, group = os.geteuid(), os.getegid()
        spaces = _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS
        _called(libc.unshare(spaces), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")
    except (OSError, Unavailable) as error:
        channel.send(str(error))
        return
    first = os.fork()
    if first:
        channel.close()
        os.waitpid(first, 0)
        return
    _first(scratch, channel)


def _first(scratch: str, channel: Connection) -> None:
    try:
        _libc().prctl(_PDEATHSIG, signal.SIGKILL)
        _build(scratch)
        _restrict()
        os.chdir(folder.project(scratch))
    except (OSError, Unavailable) as error:
        channel.send(str(error))
        return
    channel.send(None)
    runner = _Runner(scratch)
    with suppress(EOFError):
        while True:
            channel.send(runner.run(channel.recv()))


def _build(scratch: str) -> None:
    """Make the root folder of the sandbox, and nothing else visible."""
    _mount("none", "/", flags=_REC | _PRIVATE)
    root = "/tmp"
    found = {name: shutil.which(name) for name in SHELLS}
    if missing := [name for name, path in found.items() if not path]:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    shells = {f"{SHELLS_AT}/{name}": os.path.realpath(path or "") for name, path in found.items()}
    libraries = {each: os.path.realpath(each) for each in ("/lib", "/lib64", "/usr/lib")}
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=4m,mode=755")
    for at, source in (shells | {"/dev/null": "/dev/null"}).items():
        Path(root + at).parent.mkdir(exist_ok=True)
        Path(root + at).touch()
        _bind(source, root + at, 0 if at == "/dev/null" else _RDONLY)
    for at, source in libraries.items():
        if os.path.isdir(source):
            Path(root + at).mkdir(parents=True)
            _bind(source, root + at, _RDONLY)
    _write_programs(root, scratch)
    Path(root + scratch).mkdir(parents=True)
    Path(root, "old").mkdir()
    _pivot(root)
    _mount("tmpfs", scratch, "tmpfs", _NOSUID | _NODEV, "size=8m,nr_inodes=2000,mode=755")
    folder.furnish(scratch)
    flags = _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV
    _mount("none", "/", flags=flags)


def _bind(source: str, to: str, flags: int) -> None:
    _mount(source, to, flags=_BIND)
    if flags:
        # What the mount forbids already must not be allowed by this.
        kept = os.statvfs(to).f_flag & (_NOSUID | _NODEV | 8 | 1024 | 2048)
        _mount("none", to, flags=_REMOUNT | _BIND | flags | kept)


def _write_programs(root: str, scratch: str) -> None:
    texts = folder.programs(scratch)
    at = {f"{PROGRAMS_AT}/{name}": text for name, text in texts.items()}
    at |= {"/bin/sh": texts["sh"], "/bin/bash": texts["bash"], "/usr/bin/bash": texts["bash"]}
    for path, text in at.items():
        Path(root + path).parent.mkdir(parents=True, exist_ok=True)
        Path(root + path).write_text(text)
        Path(root + path).chmod(0o755)


def _pivot(root: str) -> None:
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise Unavailable(f"nobody has tried this on {os.uname().machine}")
    _called(_libc().syscall(number, root.encode(), f"{root}/old".encode()), "pivot_root")
    os.chdir("/")
    _called(_libc().umount2(b"/old", _DETACH), "umount")
    Path("/old").rmdir()


def _restrict() -> None:
    """Set what each line is held to; programs have no rights, as nobody in these namespaces."""
    _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit, most in (
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, 1 << 20),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))


class _Runner:
    """Runs lines, as the first process of its namespace: it can end all others at once."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._log, self._trace = f"{scratch}/log", f"{scratch}/trace"
        self._before = folder.seen(scratch)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        # dash writes each word of its trace by itself: on one core, pipelines seldom mix them.
        os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})

    def run(self, line: str) -> list[Ran]:
        return [self._run(shell, line) for shell in SHELLS]

    def _run(self, shell: str, line: str) -> Ran:
        for path in (self._log, self._trace):
            Path(path).write_bytes(b"")
        pid = os.posix_spawn(
            f"{SHELLS_AT}/{shell}",
            [shell, "-x", "-c", line],
            folder.environment(self._scratch, shell),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, self._trace, os.O_WRONLY | os.O_APPEND, 0),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT],
        )
        self._wait(pid)
        now = folder.seen(self._scratch)
        changed = tuple(
            each for each in {**self._before, **now} if self._before.get(each) != now.get(each)
        )
        if changed:
            self._anew()
        return Ran(shell, Path(self._trace).read_bytes(), Path(self._log).read_bytes(), changed)

    def _wait(self, pid: int) -> None:
        """Wait for a shell, at most two seconds, and end all that is left."""
        deadline = time.monotonic() + SECONDS
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            signal.sigtimedwait([signal.SIGCHLD], left)
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)

    def _anew(self) -> None:
        os.chdir("/")
        for path in (folder.project(self._scratch), folder.home(self._scratch)):
            shutil.rmtree(path)
        folder.furnish(self._scratch)
        os.chdir(folder.project(self._scratch))
        self._before = folder.seen(self._scratch)
