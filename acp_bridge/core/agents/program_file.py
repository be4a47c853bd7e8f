"""Finds out why a program can't be executed, by a look at its file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from pathlib import Path
from typing import Final, NamedTuple

#: bytes of a file in which its first line is looked for; Linux reads as many.
_HEAD: Final = 256
_ELF: Final = b"\x7fELF"
#: how programs of macOS begin.
_MACH: Final = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xcf")
_BOM: Final = b"\xef\xbb\xbf"
_SETTING: Final = re.compile(r"\w+=")
#: the options of `env` that have a word behind them.
_WITH_WORD: Final = ("-u", "--unset", "-C", "--chdir")


class Fault(NamedTuple):
    """What is wrong with a program, and what to do about it."""

    what: str
    advice: str


def fault_of(
    program: str, path: str, folder: str | None = None, *, ran: bool = False
) -> Fault | None:
    """Return what is wrong with the file of a program; None if nothing can be seen.

    `program`: as the user has named it; it is looked up in `path`, the PATH, unless it has a slash.
    `folder`: what a relative path begins at; None: the working folder. `ran`: the system has
    executed it, so only what it needs can be missing. It reads a disk.
    """
    if not program:
        return Fault("the name of the program is empty", "write the agent's command behind --")
    try:
        if (file := _found(program, path, folder)) is None:
            return Fault(
                f"{program} is not found in the PATH",
                "install it, or give the whole path of its program; if a terminal finds it,"
                " --login-shell-path on takes its PATH",
            )
        return (None if ran else _of_kind(program, file)) or _of_head(program, file, path, ran=ran)
    except PermissionError:
        return Fault(
            f"{program} can't be read by this user", "look at its rights, and its folder's"
        )
    except (OSError, ValueError):
        return None


def _found(program: str, path: str, folder: str | None) -> Path | None:
    if "/" in program:
        return Path(folder or "", program)
    places = [Path(place, program) for place in path.split(os.pathsep)]
    files = [place for place in places if place.is_file()]
    return next((each for each in files if os.access(each, os.X_OK)), next(iter(files), None))


def _of_kind(program: str, file: Path) -> Fault | None:
    """Return what is wrong with what the file is and with its rights."""
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if file.is_symlink():
            return Fault(f"{program} is a link to nothing", "install the agent again")
        return Fault(f"{program} is not there", "correct the path, or install the agent")
    if stat.S_ISDIR(mode):
        return Fault(f"{program} is a folder", "name the program in it")
    if not stat.S_ISREG(mode):
        return Fault(f"{program} is no file that can be run", "name the agent's program")
    if os.statvfs(file).f_flag & getattr(os, "ST_NOEXEC", 0):
        return Fault(
            f"{program} is on a disk that runs no programs (noexec)", "move it to another disk"
        )
    if not os.access(file, os.X_OK):
        what = shlex.quote(program) if "/" in program else "its file"
        return Fault(f"{program} is not executable", f"run: chmod +x {what}")
    return None


def _of_head(program: str, file: Path, path: str, *, ran: bool) -> Fault | None:
    """Return what is wrong with how the file begins; of one that ran only a script is looked at."""
    with file.open("rb") as opened:
        head = opened.read(_HEAD)
    if head.startswith(b"#!"):
        return _of_first_line(program, head[2:].partition(b"\n")[0].decode(errors="replace"), path)
    if ran:
        return None
    if head.startswith((_ELF, *_MACH)):
        return Fault(
            f"{program} is built for another kind of machine or system",
            "install the agent for this machine",
        )
    if head.startswith(_BOM + b"#!"):
        return Fault(
            f"{program} has a byte order mark (BOM) before its #!", "save it without the mark"
        )
    if head.startswith(b"MZ"):
        return Fault(f"{program} is a program for Windows", "install the agent for this system")
    if not head:
        return Fault(f"{program} is an empty file", "install the agent again")
    return Fault(
        f"{program} has no first line that names what runs it",
        "begin the file with a line such as #!/bin/sh or #!/usr/bin/env node",
    )


def _of_first_line(program: str, line: str, path: str) -> Fault | None:
    """Return what is wrong with a first line, given without its `#!`."""
    if line.endswith("\r"):
        return Fault(
            f"the first line of {program} ends as on Windows (CRLF)",
            "save the file with the line ends of Unix (LF)",
        )
    words = line.split()
    if not words:
        return Fault(f"the first line of {program} names no program", "write one behind its #!")
    runs = Path(words[0])
    if runs.name == "env" and (needed := _of_env(words[1:])):
        if shutil.which(needed, path=path) is None:
            return Fault(
                f"{program} needs {needed}, which is not found in the PATH",
                f"install {needed}; if a terminal finds it, --login-shell-path on takes its PATH",
            )
    elif not runs.is_file():
        return Fault(
            f"{program} needs {runs.name}, which is not where its first line says",
            f"install the agent again, or {runs.name}",
        )
    elif not os.access(runs, os.X_OK):
        return Fault(
            f"{program} needs {runs.name}, which is not executable", f"install {runs.name} again"
        )
    return None


def _of_env(words: list[str]) -> str | None:
    """Return the program that `env` starts, given its arguments; None if it can't be told."""
    words = [*words]
    while words:
        word = words.pop(0)
        if word in _WITH_WORD:
            words = words[1:]
        elif not word.startswith("-") and not _SETTING.match(word):
            return word
    return None
