"""Finds the path of this installation's command, for editors that lack the shell's PATH."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

#: the names under which the command is installed.
COMMANDS: Final = ("acp-bridge", "acp-stdio-bridge")
#: names of folders that tools use as caches (uvx, pipx run).
_PASSING: Final = frozenset({".cache", "archive-v0", "builds-v0"})


class NotInstalled(Exception):
    """This installation has no command that an editor could start; the text is for the user."""


def program() -> str:
    """Return the absolute path of the command that was started, or that lies beside this Python.

    A link, such as pipx and uv make, is not resolved: it outlives an upgrade. Raises NotInstalled.
    """
    started = sys.argv[0] if sys.argv else ""
    schemes = (sysconfig.get_default_scheme(), f"{os.name}_user")
    folders = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    folders.append(os.path.dirname(sys.executable))
    beside = [os.path.join(folder, COMMANDS[0]) for folder in folders]
    for path in [*([started] if Path(started).name in COMMANDS else []), *beside]:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise NotInstalled(f"there is no command {COMMANDS[0]} in {folders[0]}: install it first")


def is_passing(path: str) -> bool:
    """Return True for a path in a tool's cache, which may be emptied."""
    return not _PASSING.isdisjoint(Path(path).parts)
