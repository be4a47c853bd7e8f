"""The run files, `HOME/run/RANDOM.json`: one for each bridge, locked as long as the bridge lives.

Invariants
- Only the lock says that a bridge lives. A file that nobody has locked is a dead bridge's: whoever
  sees it removes it with its socket. A socket that refuses proves nothing.
- A file is complete when others see it: it is written, and its socket listens, before it gets its
  final name.
- No name is used twice, so that a dead bridge never seems to live again.
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

from msgspec import Struct

from acp_bridge.sharing.listening.places import private_folder, run_folder

#: the suffix of a file that is not ready yet; its bridge may have died meanwhile.
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
    #: the name of the host or container in which its pid counts.
    host: str
    #: the path of its socket.
    socket: str
    #: the version of the protocol on its socket (`protocol.SOCKET_PROTOCOL`).
    protocol: int
    #: the name under which its agent's sessions are kept.
    agent: str
    #: the version of its acp-bridge.
    version: str


class RunFile:
    """The run file of this bridge, locked until `remove`."""

    def __init__(self, home: Path) -> None:
        """Make and lock a draft of the file, which is not listed yet; raises OSError."""
        folder = run_folder(home)
        private_folder(folder)
        self._path, self._fd = _locked_draft(folder)

    def write(self, bridge: LiveBridge) -> None:
        """Write the bridge's description, by which its socket is removed if it is killed."""
        os.pwrite(self._fd, json.dumps(asdict(bridge)).encode(), 0)

    def publish(self) -> None:
        """Rename the draft to its final name, so that the bridge is listed; raises OSError."""
        ready = self._path.with_suffix(_READY)
        self._path.rename(ready)
        self._path = ready

    @property
    def stands(self) -> bool:
        """True while the file is in place under its name; False if somebody has removed it."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file and release its lock; never raises."""
        with suppress(OSError):
            self._path.unlink()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def live_bridges(home: Path) -> list[LiveBridge]:
    """Return the live bridges of a data folder, in no order; removes the files of dead ones.

    It reads some small files, so an event loop calls it in a thread. Never raises.
    """
    try:
        names = os.listdir(run_folder(home))
    except OSError:  # no bridge has listened here yet
        return []
    found = [_look(run_folder(home) / name) for name in names if name.endswith((_DRAFT, _READY))]
    return [bridge for bridge in found if bridge is not None]


class Listed(Struct, frozen=True):
    """The bridges and sockets in the folder of run files."""

    live: list[LiveBridge]
    #: the bridges that were killed; None for a file that can't be read.
    dead: list[LiveBridge | None]
    #: the paths of all sockets in the folder.
    sockets: list[str]


def listed(home: Path) -> Listed:
    """Return the bridges and sockets in the folder of run files, and remove nothing.

    Drafts are not opened: that takes a lock, which a bridge that makes one would find taken.
    Raises OSError.
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
    """Return the path and the descriptor of a new, locked draft file; raises OSError."""
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
    """Return the live bridge of a run file, else None; removes the files of a dead bridge."""
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
    """Remove the file at `path` if it is a socket; never raises."""
    with suppress(OSError, ValueError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)


def this_bridge(path: Path, *, protocol: int, agent: str, version: str) -> LiveBridge:
    """Return the description of this bridge for its run file; `path`: that of its socket."""
    return LiveBridge(os.getpid(), socket.gethostname(), str(path), protocol, agent, version)
