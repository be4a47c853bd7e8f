"""Checks the installation: acp-bridge itself, Python and the platform."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import Final

from acp_bridge import __version__
from acp_bridge.commands.doctor.findings import Finding, Subject, error, ok, warning
from acp_bridge.commands.setup.installation import COMMANDS, NotInstalled, is_passing, program

AREA: Final = "installation"
_OLDEST, _NEWEST = (3, 11), (3, 14)


def check(subject: Subject) -> list[Finding]:
    """Check this installation; return the findings."""
    path = subject.env.get("PATH", "")
    found = shutil.which(COMMANDS[0], path=path)
    return [
        python(sys.version_info[:2], platform.python_version()),
        system(sys.platform, f"{platform.system()} {platform.release()} {platform.machine()}"),
        command(own_command(), found),
    ]


def own_command() -> str | None:
    """Return the path of this installation's command; None if it has none."""
    try:
        return program()
    except NotInstalled:
        return None


def python(version: tuple[int, ...], name: str) -> Finding:
    """Return the finding about a version of Python; `name`: the version as text."""
    what = f"acp-bridge {__version__} on Python {name}"
    data = {"acpBridge": __version__, "python": name}
    if _OLDEST <= version[:2] <= _NEWEST:
        return ok(what, **data)
    return warning(
        f"{what}, on which it was not tested",
        "install it with Python 3.11 to 3.14",
        **data,
    )


def system(name: str, described: str) -> Finding:
    """Return the finding about a platform, by its `sys.platform` and its description."""
    if name == "linux":
        return ok(described, platform=described)
    if name == "darwin":
        return warning(f"{described}: macOS is written for and untested", platform=described)
    return error(f"{described} is not supported", "on Windows, use WSL", platform=described)


def command(own: str | None, found: str | None) -> Finding:
    """Return the finding about the command: `own` of this installation, `found` in the PATH."""
    if own is None:
        return ok("run as a module; an editor needs the path of a command that is installed")
    if is_passing(own):
        return warning(
            f"{own} lies in a cache, which may be emptied",
            "install acp-bridge (pipx install, uv tool install) before an editor is set up",
            command=own,
        )
    if found is None:
        return warning(
            f"{own} is not in the PATH", f"give editors the whole path: {own}", command=own
        )
    if Path(found).resolve() == Path(own).resolve():
        return ok(f"the command is {own}", command=own)
    return warning(
        f"the PATH leads to another command of that name: {found}; this one is {own}",
        f"give editors the whole path: {own}",
        command=own,
        other=found,
    )
