"""Packages of npm for tests, by the lock beside them; such tests run only where they are named."""

import hashlib
import subprocess
from pathlib import Path

import pytest

#: Beside what the lock says: nothing that is installed runs a script of its own, and builds for
#: one platform are left out (acpx runs without them). `npm ci` refuses such a lock.
_INSTALL = ("install", "--no-save", "--ignore-scripts", "--omit=optional", "--no-audit")


def is_asked_for(folder: Path, config: pytest.Config) -> bool:
    """Whether the tests of a folder were named on the command line."""
    invoked = config.invocation_params.dir
    asked = (invoked / arg.partition("::")[0] for arg in config.args)
    return any(path.resolve().is_relative_to(folder) for path in asked)


def installed(folder: Path) -> Path:
    """`node_modules` of a folder with the packages of its lock, installed when that has changed."""
    modules = folder / "node_modules"
    stamp, wanted = modules / ".installed", _digest(folder)
    if not stamp.exists() or stamp.read_text() != wanted:
        done = subprocess.run(
            ["npm", *_INSTALL, "--no-fund"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"npm could not install what is needed:\n{done.stderr}"
        assert _digest(folder) == wanted, "npm changed the lock"
        stamp.write_text(wanted)
    return modules


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
