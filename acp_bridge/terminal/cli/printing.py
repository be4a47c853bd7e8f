"""Prints the result of a command to stdout, and its failure to stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import harmless, json_line


def print_text(text: str) -> int:
    """Write a text, already made harmless, to stdout; returns the exit code."""
    return _write([text.encode(errors="backslashreplace")])


def print_json(values: Iterable[Json]) -> int:
    """Write each value as one line of JSON to stdout; returns the exit code."""
    return _write(map(json_line, values))


def fail(command: str, why: object, code: Exit = Exit.FAILED) -> int:
    """Print why a command failed to stderr, if stderr is open; returns `code`."""
    say_on_stderr(f"{f'acp-bridge {command}'.strip()}: {harmless(str(why))}\n")
    return code


def say_on_stderr(text: str) -> None:
    """Write a text, already made harmless, to stderr; does nothing if stderr is closed."""
    if sys.stderr is not None:
        with suppress(OSError):  # a full disk, for example: the exit code still tells
            sys.stderr.buffer.write(text.encode(errors="backslashreplace"))
            sys.stderr.flush()


def columns() -> int | None:
    """Return the width of the terminal in columns; None if stdout is not a terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def _write(pieces: Iterable[bytes]) -> int:
    if sys.stdout is None:
        return fail("", "there is no stdout")
    try:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _write_no_more()
    except OSError as error:
        _write_no_more()
        return fail("", f"stdout can't be written: {error.strerror}")
    return Exit.DONE


def _write_no_more() -> None:
    """Redirect stdout to /dev/null: Python's last flush would otherwise report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)
