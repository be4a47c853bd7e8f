"""The run files: one for each bridge that lives, `HOME/run/RANDOM.json`, locked as long as it does.

Invariants
- The lock alone says that a bridge lives, and a file that nobody has locked is a dead bridge's:
  whoever sees it removes it with its socket. A socket that refuses proves nothing.
- A file is whole when it is seen: it is written and its socket listens before it has its name.
- No name is used twice, so that what was dead never comes to life again.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from acp_bridge.listening.places import private_folder, run_folder

#: the suffix of a file that is not ready yet; its bridge may have died before it was.
_DRAFT: Final = ".draft"
_READY: Final = ".json"
#: bytes of a run file that are read.
_MOST: Final = 64 * 1024
#: tries to make a draft: a reader may remove a new file before it is locked.
_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class LiveBridge:
    """A bridge that lives, as its run file describes it."""

    pid: int
    #: the name of its host, or of its container: pids are of that.
    host: str
    #: the path of its socket.
    socket: str
    #: the version of what is spoken there (`protocol.SOCKET_PROTOCOL`).
    protocol: int
    #: the name under which its agent's sessions are kept.
    agent: str
    #: the version of its acp-bridge.
    version: str


class RunFile:
    """The file of this bridge, locked until `remove`."""

    def __init__(self, home: Path) -> None:
        """Make and lock a draft that nobody lists yet; raises OSError."""
        folder = run_folder(home)
        private_folder(folder)
        self._path, self._fd = _locked_draft(folder)

    def write(self, bridge: LiveBridge) -> None:
        """Note where the socket will be, so that it can be removed if this bridge is killed."""
        os.pwrite(self._fd, json.dumps(asdict(bridge)).encode(), 0)

    def publish(self) -> None:
        """Give the draft its name, so that the bridge is listed from now on; raises OSError."""
        ready = self._path.with_suffix(_READY)
        self._path.rename(ready)
        self._path = ready

    @property
    def stands(self) -> bool:
        """True while others find this file under its name; False if somebody has removed it."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file and let go of it; never raises."""
        with suppress(OSError):
            self._path.unlink()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def live_bridges(home: Path) -> list[LiveBridge]:
    """Return the bridges of this home that live, in no order; removes files of dead bridges.

    It reads some small files, so it belongs in a thread where nothing may wait. Never raises.
    """
    try:
        names = os.listdir(run_folder(home))
    except OSError:  # no bridge has listened here yet
        return []
    found = [_look(run_folder(home) / name) for name in names if name.endswith((_DRAFT, _READY))]
    return [bridge for bridge in found if bridge is not None]


@dataclass(frozen=True, slots=True)
class Listed:
    """The contents of the folder of run files."""

    live: list[LiveBridge]
    #: the bridges that were killed; None for a file that says nothing.
    dead: list[LiveBridge | None]
    #: the paths of all sockets in the folder.
    sockets: list[str]


def listed(home: Path) -> Listed:
    """Read the folder of run files, and remove nothing. Raises OSError.

    Drafts are left alone: a bridge that makes one would take a reader for another bridge.
    """
    folder = run_folder(home)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        names = []
    found = Listed([], [], [str(folder / name) for name in names if name.endswith(".sock")])
    for path in (folder / name for name in names if name.endswith(_READY)):
        with suppress(OSError):  # it has ended meanwhile
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                bridge = _read(fd)
                if not _is_locked(fd):
                    found.dead.append(bridge)
                elif bridge is not None:
                    found.live.append(bridge)
            finally:
                os.close(fd)
    return found


def _locked_draft(folder: Path) -> tuple[Path, int]:
    """Return the path and the descriptor of a new file; raises OSError."""
    for _ in range(_TRIES):
        path = folder / f"{os.urandom(8).hex()}{_DRAFT}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return path, fd
        except (BlockingIOError, FileNotFoundError):
            pass  # a reader was quicker, and removes it
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise OSError("no run file can be kept: somebody removes each of them")


def _look(path: Path) -> LiveBridge | None:
    """Return the bridge of a run file; removes it with its socket if the bridge is dead."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it has ended meanwhile
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        bridge = _read(fd)
        if _is_locked(fd):
            return bridge if path.suffix == _READY else None
        # Under the lock that was just taken, which other readers share and no bridge can have.
        if bridge:
            _remove_socket(bridge.socket)
        path.unlink(missing_ok=True)
    except OSError:
        pass
    finally:
        os.close(fd)
    return None


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read(fd: int) -> LiveBridge | None:
    try:
        found = json.loads(os.pread(fd, _MOST, 0))
        bridge = LiveBridge(**{field.name: found[field.name] for field in fields(LiveBridge)})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers, words = (bridge.pid, bridge.protocol), (bridge.host, bridge.socket, bridge.agent)
    right = all(isinstance(each, int) for each in numbers)
    right = right and all(isinstance(each, str) for each in (*words, bridge.version))
    return bridge if right and os.path.isabs(bridge.socket) else None


def _remove_socket(path: str) -> None:
    """Remove a dead bridge's socket, and nothing that is no socket."""
    with suppress(OSError, ValueError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)


def this_bridge(path: Path, *, protocol: int, agent: str, version: str) -> LiveBridge:
    """Return the description of this bridge for its run file; `path` is that of its socket."""
    return LiveBridge(os.getpid(), socket.gethostname(), str(path), protocol, agent, version)
