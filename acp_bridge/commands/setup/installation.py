"""Where this installation's command is, for an editor that doesn't have the shell's PATH."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

#: the names that the command is installed under.
COMMANDS: Final = ("acp-bridge", "acp-stdio-bridge")
#: folders that tools keep what they may throw away in (uvx, pipx run).
_PASSING: Final = frozenset({".cache", "archive-v0", "builds-v0"})


class NotInstalled(Exception):
    """This acp-bridge has no command that an editor could start."""


def program() -> str:
    """Return the absolute path of the command that was started, or that lies beside this Python.

    A link, such as pipx and uv make, is not followed: it outlives an upgrade. Raises NotInstalled.
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
    """Tell if a command lies where a tool may throw it away."""
    return not _PASSING.isdisjoint(Path(path).parts)
