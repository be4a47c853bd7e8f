"""Checks, without starting it, that `python -I -m agent` would start this project's agent."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

#: these bytes stand in both files by which our package `agent` is known, as they import the bridge.
_OURS: Final = b"acp_bridge"

#: what the built-in agent imports that an installation may lack; prepared answers need no LiteLLM.
_BUILT_IN: Final = ("acp", "mcp", "litellm")
_PREPARED: Final = _BUILT_IN[:-1]
#: what OpenHands' agent imports.
OPENHANDS: Final = ("acp", "websockets")


def hindrance(env: Mapping[str, str], packages: Sequence[str], *, openhands: bool) -> str | None:
    """Return why this project's agent can't be started; None if no reason is known.

    `packages`: those that the agent imports and that may not be installed; `openhands`: the agent
    is OpenHands', not the built-in one.
    """
    path = isolated_path(env)
    found = foreign_agent(path)
    if found is not None:
        return (
            "the built-in agent can't be started: another Python package named 'agent' is installed"
            f" at {found}; uninstall it, or install this acp-bridge by pipx or uv tool"
        )
    if lacking := missing(packages, path):
        who = (
            "OpenHands' agent can't be started"
            if openhands
            else "the built-in agent can't be started (another one can: acp-bridge -- COMMAND)"
        )
        add = install_command("openhands" if openhands else "", path)
        return f"{who}: not installed: {', '.join(lacking)}. Run: {add}"
    return None


def foreign_agent(path: Sequence[str]) -> str | None:
    """Return where a package `agent` that is not ours lies on this import path.

    None if it is ours, or if there is no such package, as the start of the agent will say.
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


def built_in(model: str | None) -> Sequence[str]:
    """Return the packages that the built-in agent imports for `model`; None: its default model."""
    prepared = model is not None and (model == "demo" or model.startswith("scripted:"))
    return _PREPARED if prepared else _BUILT_IN


def missing(packages: Sequence[str], path: Sequence[str]) -> list[str]:
    """Return those of `packages` that can't be imported from this import path, without importing.

    A package that is installed in place (editable) may be found by a finder of its own, whatever
    the path is.
    """
    finders = [
        each for each in sys.meta_path if each is not PathFinder and hasattr(each, "find_spec")
    ]

    def there(name: str) -> bool:
        spec = PathFinder.find_spec(name, path)
        # A folder without an __init__.py is a remnant.
        if spec is not None and spec.origin is not None:
            return True
        return any(each.find_spec(name, None) is not None for each in finders)

    return [name for name in packages if not there(name)]


def lacks_extra(package: str, extra: str) -> str | None:
    """Return how to install a package of an extra if it is missing here; None if it is not."""
    if not missing([package], sys.path):
        return None
    how = install_command(extra, isolated_path(os.environ))
    return f"the package {package} is missing, of the extra {extra}. Run: {how}"


def install_command(extra: str, path: Sequence[str]) -> str:
    """Return the shell command by which a user adds missing packages to this Python environment.

    `extra`: the extra of acp-stdio-bridge that has them; "" for none. An environment made by uv has
    no pip, so `uv pip` is named. Neither pip nor uv reinstalls what is there.
    """
    import shlex  # no start of a bridge waits for it

    name = f"'acp-stdio-bridge[{extra}]'" if extra else "acp-stdio-bridge"
    python = shlex.quote(sys.executable)
    if PathFinder.find_spec("pip", path) is None:
        return f"uv pip install --python {python} {name}"
    return f"{python} -m pip install {name}"


def isolated_path(env: Mapping[str, str]) -> list[str]:
    """Return this interpreter's import path as it would be with the option `-I`."""
    left_out = {"", *env.get("PYTHONPATH", "").split(os.pathsep), site.getusersitepackages()}
    own = sys.path if sys.flags.safe_path else sys.path[1:]  # the first is the script's folder
    return [entry for entry in own if entry not in left_out]
