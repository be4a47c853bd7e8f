"""Names the prompts that went on while their session's file could not be written (invariant Q13).

The names survive a kill of the bridge, which what is kept in memory does not. They are the target
of a symbolic link beside the file: a short one needs no block of a full disk, no limit on the size
of files is applied to it, and it is replaced as a whole. A link that can't be read names nothing.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from enum import Flag
from pathlib import Path
from typing import Final


class Went(Flag):
    """What happened to a prompt without its session's file knowing of it."""

    NOTHING = 0
    SENT = 1
    ENDED = 2


_NAMED: Final = re.compile(r"(\d{1,15})([123])")


def link_of(path: Path) -> Path:
    """Return the path of the link beside a session's file."""
    return path.with_suffix(".left")


def draft_of(path: Path) -> Path:
    """Return the path of a link that is being made; a kill may leave it."""
    return path.with_suffix(".left-new")


def read(path: Path) -> dict[int, Went]:
    """Return what the link of a session's file says: by prompt's number, what happened to it."""
    try:
        target = os.readlink(link_of(path))
    except OSError:
        return {}
    found = [_NAMED.fullmatch(name) for name in target.split(",")]
    return {int(name[1]): Went(int(name[2])) for name in found if name}


def add(path: Path, seq: int, went: Went) -> None:
    """Note in the link of a session's file that `went` happened to the prompt `seq`.

    Raises OSError.
    """
    named = read(path)
    named[seq] = named.get(seq, went) | went
    draft = draft_of(path)
    draft.unlink(missing_ok=True)
    draft.symlink_to(",".join(f"{each}{how.value}" for each, how in named.items()))
    draft.replace(link_of(path))


def clear(path: Path) -> None:
    """Remove the link of a session's file, so that it names no prompt any more. Never raises."""
    with suppress(OSError):
        for link in (link_of(path), draft_of(path)):
            link.unlink(missing_ok=True)
