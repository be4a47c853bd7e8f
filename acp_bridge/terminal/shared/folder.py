"""Reads a session's folder for a comparison: its files, and what git says of them.

Nothing is changed: git takes no lock, writes no index and starts no monitor.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from acp_bridge.terminal.view.session_diff import UNKNOWN, Content

#: bytes of a file above which it is not compared.
_LONGEST: Final = 16 * 1024 * 1024
#: seconds that git may take for one answer.
_PATIENCE: Final = 10
_GIT: Final = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")


def content(path: Path) -> Content:
    """Return the text of a file, None if there is none; UNKNOWN if it can't be compared."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return UNKNOWN
    try:
        about = os.fstat(found)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LONGEST:
            return UNKNOWN
        with open(found, "rb", closefd=False) as file:
            return _text(file.read(_LONGEST))
    except OSError:
        return UNKNOWN
    finally:
        os.close(found)


class Git:
    """What git says of the folder of a session."""

    def __init__(self, folder: Path) -> None:
        """Ask git for the root of the work tree; without it, the other methods return nothing."""
        self._folder = folder
        root = self._ask("rev-parse", "--show-toplevel")
        self._root = None if root is None else Path(os.fsdecode(root).rstrip("\n"))

    def committed(self, paths: Iterable[Path]) -> dict[Path, Content]:
        """Return the content that files have in the last commit; None for one that it lacks."""
        root = self._root
        if root is None:
            return {}
        inside = ((path, str(path.relative_to(root))) for path in paths if self.has(path))
        names = [(path, name) for path, name in inside if _can_be_asked(name)]
        asked = "".join(f"HEAD:{name}\n" for _, name in names)
        left = self._ask("cat-file", "--batch", given=os.fsencode(asked)) or b""
        found: dict[Path, Content] = {}
        for path, _ in names if left else ():
            head, _, left = left.partition(b"\n")
            match head.split():
                case [_, b"blob", size]:
                    found[path] = _text(left[: int(size)])
                    left = left[int(size) + 1 :]
                case _:
                    found[path] = None
        return found

    def has(self, path: Path) -> bool:
        """Return True for a path below the root of the work tree."""
        return self._root is not None and path.is_relative_to(self._root)

    def changed(self) -> list[Path]:
        """Return the files that differ from the last commit, with those that git doesn't know."""
        if self._root is None:
            return []
        told = self._ask("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
        rows = os.fsdecode(told or b"").split("\0")
        return [self._root / row[3:] for row in rows if len(row) > 3]

    def _ask(self, *words: str, given: bytes = b"") -> bytes | None:
        """Run git in the folder with the arguments `words`; return its output, None if it fails."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(
                [*_GIT, *words],
                cwd=self._folder,
                env=mine,
                input=given,
                capture_output=True,
                timeout=_PATIENCE,
                check=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return done.stdout


def _can_be_asked(name: str) -> bool:
    """Return True for a name that a file can have, and that fits into one line of git's input."""
    try:
        return not set(b"\n\0") & set(os.fsencode(name))
    except UnicodeError:  # an agent has told no name of a file
        return False


def _text(data: bytes) -> Content:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return UNKNOWN
