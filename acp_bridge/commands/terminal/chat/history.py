"""What was entered before, in a file of the user's alone, newest last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

#: entries that are kept; the file is cut to half of them when it has grown to twice as many.
_MOST: Final = 500
#: characters of an entry; a longer one is not kept.
_LONGEST: Final = 10_000


class FileHistory(History):
    """One JSON string a line. A file that can't be read or written is no history."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Give the entries, the newest first."""
        entries = self._read()
        if len(entries) > 2 * _MOST:
            entries = entries[-_MOST:]
            self._write("".join(f"{json.dumps(entry)}\n" for entry in entries), os.O_TRUNC)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """Append an entry."""
        if len(string) <= _LONGEST:
            self._write(f"{json.dumps(string)}\n", os.O_APPEND)

    def _read(self) -> list[str]:
        try:
            lines = self._file.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [entry for line in lines if (entry := _entry(line))]

    def _write(self, text: str, how: int) -> None:
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | how, 0o600)
        except OSError:
            return
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)


def _entry(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, str) else None
