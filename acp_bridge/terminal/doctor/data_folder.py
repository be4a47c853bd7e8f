"""Checks the data folder and its disk: rights, space, and how long an fsync takes."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.doctor.findings import (
    Finding,
    Level,
    Silent,
    Subject,
    error,
    from_disk,
    ok,
    warning,
)

AREA: Final = "data folder"
#: bytes of free space: less than `_LITTLE` is a warning, less than `_NONE` an error.
_LITTLE, _NONE = 200_000_000, 2_000_000
#: seconds; a slower fsync is a warning, since each prompt waits for one; `_FSYNCS` are timed.
_SLOW: Final = 0.1
_FSYNCS: Final = 3
_ANOTHER: Final = "choose another folder with --home or ACP_BRIDGE_HOME"
_ELSEWHERE: Final = f"free some space, or {_ANOTHER}"


@dataclass(frozen=True, slots=True)
class Space:
    """The free space of a disk for this user, in bytes."""

    #: None if the disk does not tell its size, or if there is no disk, as below /proc.
    free: int | None
    #: how many files can still be made; None if there is no limit.
    files: int | None
    read_only: bool


async def check(subject: Subject) -> list[Finding]:
    """Check the data folder; return the findings."""
    home = subject.settings.home
    try:
        return await from_disk(lambda: _look(home))
    except Silent as silent:
        return [error(f"{home}: {silent}", "choose a folder on another disk with --home")]


def is_usable(found: list[Finding]) -> bool:
    """Return True unless a finding of `check` says that the folder can't be looked into.

    An error about the room on its disk says no such thing.
    """
    return all(each.level is not Level.ERROR or "freeBytes" in each.data for each in found)


def _look(home: Path) -> list[Finding]:
    if not os.path.lexists(home):
        return _missing(home)
    if not home.is_dir():
        return [error(f"{home} is no folder", "move it away, or choose another folder with --home")]
    space = _space(home)
    disk = room(home, space)
    if space.read_only:  # rights don't matter then
        return [disk]
    if space.free is None and (none := _on_no_disk(home)):
        return [none]
    found = rights(home, home.stat(), usable=os.access(home, os.R_OK | os.W_OK | os.X_OK))
    if Level.ERROR in (found.level, disk.level):
        return [found, disk]
    return [found, disk, _fsync(home)]


def _missing(home: Path) -> list[Finding]:
    above = next(parent for parent in home.parents if os.path.lexists(parent))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        return [
            error(
                f"{home} is not there and can't be made: {above} "
                + ("can't be written" if above.is_dir() else "is no folder"),
                _ANOTHER,
            )
        ]
    space = _space(above)
    if space.free is None and (none := _on_no_disk(above)):
        return [none]
    made = ok(f"{home} is not there yet; the first session makes it", home=str(home))
    return [made, room(above, space)]


def _space(folder: Path) -> Space:
    found = os.statvfs(folder)
    return Space(
        found.f_bavail * found.f_frsize if found.f_blocks else None,
        found.f_favail if found.f_files else None,
        bool(found.f_flag & os.ST_RDONLY),
    )


def _on_no_disk(folder: Path) -> Finding | None:
    """Return the finding about a folder that takes no file, such as /proc; None if it takes one."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return error(f"{folder} is on no disk: nothing can be kept there", _ANOTHER)
    return None


def rights(home: Path, status: os.stat_result, *, usable: bool) -> Finding:
    """Check the owner, the mode and the access rights of the data folder; return the finding."""
    mode = stat.S_IMODE(status.st_mode)
    data: Json = {"home": str(home), "mode": f"{mode:o}"}
    if status.st_uid != os.geteuid():
        return error(
            f"{home} belongs to another user (uid {status.st_uid})",
            "run acp-bridge as that user, or choose another folder with --home",
            **data,
        )
    if not usable:
        return error(f"{home} can't be written", f"chmod 700 {home}", **data)
    if mode & 0o022:
        return warning(
            f"others may change what is in {home} (mode {mode:o}), where your sessions are",
            f"chmod 700 {home}",
            **data,
        )
    if mode & 0o055:
        return ok(
            f"others may see which files are in {home} (mode {mode:o}), and not what they hold",
            f"chmod 700 {home} hides that, too",
            **data,
        )
    return ok(f"{home} is yours alone", **data)


def room(folder: Path, space: Space) -> Finding:
    """Check the free space of the disk that the folder is on; return the finding."""
    data: Json = {"freeBytes": space.free, "freeFiles": space.files}
    if space.read_only:
        told = f"the disk of {folder} is read-only: no prompt is accepted"
        return error(told, _ANOTHER, **data)
    if space.files == 0:
        return error(f"the disk of {folder} takes no more files", _ELSEWHERE, **data)
    if space.free is None:
        return ok("the disk does not tell how much is free", **data)
    free = size(space.free)
    if space.free < _NONE:
        return error(f"the disk of {folder} is full ({free} free)", _ELSEWHERE, **data)
    if space.free < _LITTLE:
        return warning(f"the disk of {folder} is nearly full ({free} free)", _ELSEWHERE, **data)
    return ok(f"{free} free", **data)


def size(number: float) -> str:
    """Return a number of bytes as text with a unit, such as "1.5 MB"."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def _fsync(home: Path) -> Finding:
    """Time writes with fsync to a temporary file in the folder; return the finding.

    The file has no name where the system supports that; it is gone afterwards in any case.
    """
    took = []
    try:
        with tempfile.TemporaryFile(dir=home, buffering=0) as file:
            for _ in range(_FSYNCS):
                file.write(b"x" * 4096)
                began = monotonic()
                os.fsync(file.fileno())
                took.append(monotonic() - began)
    except OSError as failed:
        return error(f"a file in {home} can't be written: {failed.strerror}", _ELSEWHERE)
    return fsync_took(median(took))


def fsync_took(seconds: float) -> Finding:
    """Return the finding about a disk on which an fsync takes so many seconds."""
    text = f"an fsync takes {1000 * seconds:.1f} ms"
    data: Json = {"fsyncMs": round(1000 * seconds, 2)}
    if seconds < _SLOW:
        return ok(text, **data)
    return warning(
        f"{text}: each prompt waits for one",
        "choose a folder on a disk of this machine with --home or ACP_BRIDGE_HOME",
        **data,
    )
