"""The files of a folder, for completion: bounded in number and in time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_MOST_FILES: Final = 20_000
#: seconds that a walk through the folder may take; what was found by then is listed.
_LONGEST: Final = 1.0
#: seconds for which a listing is reused.
_FRESH: Final = 5.0
#: folders of downloaded or built files, which nobody mentions.
_SKIPPED: Final = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj", "node_modules", ".venv", "venv", "__pycache__", "target"),
        *("build", "dist", ".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache"),
        *(".gradle", ".idea", ".next", "vendor", "Pods", "DerivedData", ".terraform"),
    }
)


class Files:
    """The paths of files and folders below a folder, relative to it, the top level first."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._folder = folder
        self._clock = clock
        self._listed: list[str] = []
        self._listed_at: float | None = None

    def matching(self, word: str, most: int) -> list[str]:
        """Return at most `most` paths that contain the word, the best matches first.

        Reads the disk for at most a second.
        """
        sought = word.casefold()
        ranked = [
            (rank, len(path), path)
            for path in self._paths()
            if (rank := _rank(path.casefold(), sought)) is not None
        ]
        return [path for _, _, path in sorted(ranked)[:most]]

    def _paths(self) -> list[str]:
        now = self._clock()
        if self._listed_at is None or now - self._listed_at > _FRESH:
            self._listed = list(self._walk(now + _LONGEST))
            self._listed_at = self._clock()
        return self._listed

    def _walk(self, until: float) -> Iterator[str]:
        folders, count = [""], 0
        while folders and self._clock() < until:
            below: list[str] = []
            for folder in folders:
                for path, is_folder in self._entries(folder):
                    if is_folder:
                        below.append(path)
                    yield f"{path}/" if is_folder else path
                    count += 1
                    if count >= _MOST_FILES:
                        return
                if self._clock() >= until:
                    return
            folders = below

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(self._folder / folder) as entries:
                return sorted(
                    (os.path.join(folder, entry.name), entry.is_dir(follow_symlinks=False))
                    for entry in entries
                    if entry.name not in _SKIPPED
                )
        except OSError:
            return []


def _rank(path: str, sought: str) -> int | None:
    """Return how well a path matches, 0 being best; None if it doesn't."""
    name = path.rstrip("/").rpartition("/")[2]
    if path.startswith(sought):
        return 0
    if name.startswith(sought):
        return 1
    return 2 if sought in path else None
