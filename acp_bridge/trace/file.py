"""The file of a trace: yours alone and bounded. A kill can cut its last line, and no other."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from acp_bridge.core.runtime.log import event, opened_to_append

#: bytes above which the next file begins; the former one becomes `FILE.1`.
MOST: Final = 64 * 1024 * 1024


class TraceFile:
    """A file that this process alone appends to, mode 0600."""

    def __init__(self, path: Path, most: int = MOST) -> None:
        """Open the file `path`; one that has content becomes `FILE.1`. `most`: bytes of one file.

        An empty file of another user's, who could read the trace, becomes `FILE.1`, too. Raises
        OSError, also if another bridge writes to the file.
        """
        self._path, self._most, self._size = path, most, 0
        self._failed = False
        self._fd = self._opened()
        found = os.fstat(self._fd)
        if found.st_size or found.st_uid != os.geteuid():
            self._begin_next()

    def write(self, lines: bytes) -> None:
        """Append whole lines, in the next file if this one is full.

        Lines that can't be written are left out; the log says so once.
        """
        try:
            if self._size and self._size + len(lines) > self._most:
                self._begin_next()
            taken = os.write(self._fd, lines)
            if taken < len(lines):
                os.ftruncate(self._fd, self._size)
                self._note("the disk has no room")
            else:
                self._size += taken
        except OSError as exc:
            self._note(exc.strerror)

    def close(self) -> None:
        """Close the file; nothing is written after that."""
        os.close(self._fd)

    def _begin_next(self) -> None:
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        before, self._fd, self._size = self._fd, self._opened(), 0
        os.close(before)

    def _opened(self) -> int:
        fd = opened_to_append(self._path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(fd)
            raise OSError(exc.errno, "another bridge writes its trace there") from exc
        return fd

    def _note(self, why: str | None) -> None:
        if not self._failed:
            self._failed = True
            event("trace.failed", what=why)
