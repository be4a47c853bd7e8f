"""The prompts entered before, in a file that only the user can read, newest last."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

#: entries to keep; at twice as many, the file is cut to the newest of them.
_MOST: Final = 500
#: characters; a longer entry is not kept.
_LONGEST: Final = 10_000


class FileHistory(History):
    """A prompt_toolkit history with one JSON string a line; errors of the file are ignored."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Yield the entries, newest first; cuts a file that has grown too long."""
        entries = self._read()
        if len(entries) > 2 * _MOST:
            entries = entries[-_MOST:]
            self._write("".join(f"{json.dumps(entry)}\n" for entry in entries), os.O_TRUNC)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """Append an entry to the file."""
        if len(string) <= _LONGEST:
            self._write(f"{json.dumps(string)}\n", os.O_APPEND)

    def _read(self) -> list[str]:
        try:
            with open(self._opened(os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            return []
        return [entry for line in lines if (entry := _entry(line))]

    def _write(self, text: str, how: int) -> None:
        try:
            file = self._opened(os.O_WRONLY | os.O_CREAT | how)
        except OSError:
            return
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)

    def _opened(self, flags: int) -> int:
        """Return a descriptor of the file; raises OSError, also for a pipe, which would wait."""
        file = os.open(self._file, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
        raise OSError(errno.EINVAL, "it is no file")


def _entry(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, str) else None
