"""Writes a session into a file of its own."""

from __future__ import annotations

from pathlib import Path


class NotWritten(Exception):
    """A session was not written; the text is for the user."""


def write_new(path: Path, text: str) -> None:
    """Write a text into a file that is not there yet. Raises NotWritten."""
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except FileExistsError:
        raise NotWritten(f"{path} is there already: name another file") from None
    except OSError as error:
        raise NotWritten(f"{path} can't be written: {error.strerror}") from None
