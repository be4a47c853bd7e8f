"""Tells if `python -I -m agent` would start the built-in agent, or a package of the same name."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

#: stands in both files of ours: they name what they import of the bridge
_OURS: Final = b"acp_bridge"


def hindrance(env: Mapping[str, str], *, openhands: bool) -> str | None:
    """Return why an agent of ours can't be started, None if nothing is known to be in its way."""
    path = isolated_path(env)
    found = foreign_agent(path)
    if found is not None:
        return (
            "the built-in agent can't be started: another Python package named 'agent' is installed"
            f" at {found}; uninstall it, or install acp-bridge in an environment of its own"
        )
    if openhands and not has_websockets(path):
        return (
            "OpenHands' agent can't be started: install acp-stdio-bridge[openhands], which has"
            " what it needs"
        )
    return None


def foreign_agent(path: Sequence[str]) -> str | None:
    """Return where the package `agent` on this import path lies if it is not ours, else None.

    None also if there is none: then the start itself says what is missing.
    """
    spec = PathFinder.find_spec("agent", path)
    if spec is None:
        return None
    if spec.origin is None:  # a folder without code of its own
        return str(next(iter(spec.submodule_search_locations or ()), "agent"))
    package = Path(spec.origin)
    try:
        files = [file.read_bytes() for file in (package, package.with_name("__main__.py"))]
    except OSError:
        return str(package)
    return None if all(_OURS in content for content in files) else str(package)


def has_websockets(path: Sequence[str]) -> bool:
    """Tell if the extra packages of OpenHands' agent are on this import path."""
    return PathFinder.find_spec("websockets", path) is not None


def isolated_path(env: Mapping[str, str]) -> list[str]:
    """Return the import path of this interpreter without what `-I` leaves out."""
    left_out = {"", *env.get("PYTHONPATH", "").split(os.pathsep), site.getusersitepackages()}
    own = sys.path if sys.flags.safe_path else sys.path[1:]  # the first is the script's folder
    return [entry for entry in own if entry not in left_out]
