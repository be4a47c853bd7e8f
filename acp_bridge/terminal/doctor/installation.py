"""Checks the installation: acp-bridge itself, Python and the platform."""

from __future__ import annotations

import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from acp_bridge import __version__
from acp_bridge.terminal.doctor.findings import Finding, Subject, error, ok, warning
from acp_bridge.terminal.setup.installation import COMMANDS, NotInstalled, is_passing, program

AREA: Final = "installation"
_OLDEST, _NEWEST = (3, 11), (3, 14)
#: a foreign package on the package index, with a module and a command of the same names as ours.
_OTHER: Final = "acp-bridge"
_INSTALL: Final = "install this one from its clone, by pipx install . or uv tool install ."


def check(subject: Subject) -> list[Finding]:
    """Check this installation; return the findings."""
    path = subject.env.get("PATH", "")
    found = shutil.which(COMMANDS[0], path=path)
    return [
        python(sys.version_info[:2], platform.python_version()),
        system(sys.platform, f"{platform.system()} {platform.release()} {platform.machine()}"),
        *other_package(),
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
    """Return the finding about a platform: Linux is fine, macOS a warning, any other an error.

    `name`: its `sys.platform`.
    """
    if name == "linux":
        return ok(described, platform=described)
    if name == "darwin":
        return warning(f"{described}: macOS is written for and untested", platform=described)
    return error(f"{described} is not supported", "on Windows, use WSL", platform=described)


def command(own: str | None, found: str | None) -> Finding:
    """Return the finding about the command's path: `own` by this installation, `found` in PATH."""
    if own is None:
        return ok("run as a module; an editor needs the path of a command that is installed")
    if is_passing(own):
        return warning(
            f"{own} lies in a cache, which may be emptied",
            f"{_INSTALL}, before an editor is set up",
            command=own,
        )
    if found is None:
        return warning(
            f"{own} is not in the PATH", f"give editors the whole path: {own}", command=own
        )
    if Path(found).resolve() == Path(own).resolve():
        return ok(f"the command is {own}", command=own)
    version = _of_other_package(Path(found))
    whose = f", of the other package {_OTHER}, {version}" if version else ""
    return warning(
        f"the PATH leads to another command of that name: {found}{whose}; this one is {own}",
        f"give editors the whole path: {own}",
        command=own,
        other=found,
    )


def other_package() -> list[Finding]:
    """Return an error if the package `_OTHER` is in this environment, as it overwrites ours."""
    try:
        version = metadata.version(_OTHER)
    except metadata.PackageNotFoundError:
        return []
    return [
        error(
            f"the package {_OTHER} {version} is installed beside this one, and is another program:"
            " both have a module acp_bridge and a command acp-bridge, and overwrite each other",
            f"uninstall both here; {_INSTALL}",
        )
    ]


def _of_other_package(command: Path) -> str | None:
    """Return the version of the package `_OTHER` in the environment of a command, None if none."""
    folder = command.resolve().parent.parent
    found = folder.glob("lib/python3*/site-packages/acp_bridge-*.dist-info")
    names = (each.name.removesuffix(".dist-info") for each in found)
    return next((name.partition("-")[2] for name in names), None)
