"""The agent-server in an environment of its own: installed once, from the lock, by hash.

It needs Python 3.12 or 3.13 and 740 MB. What can't be set up is said, and the tests are red.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).with_name("requirements.lock")
#: in a folder that git ignores; `make clean` removes it
PLACE = ROOT / "build" / "openhands-agent-server"
SECONDS = 1200
_SUITS = "import sys, venv; sys.exit(not (3, 12) <= sys.version_info < (3, 14))"
_INSTALL = (
    *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
    # func-timeout exists as a source only
    *("--require-hashes", "--only-binary", ":all:", "--no-binary", "func-timeout"),
    *("-r", str(LOCK)),
)


class CannotSetUp(Exception):
    """Says why there is no agent-server to test with."""


def command() -> list[str]:
    """The agent-server's command, which is installed if need be; raises CannotSetUp."""
    stamp, wanted = PLACE / ".installed", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        _install(_python())
        stamp.write_text(wanted)
    return [str(PLACE / "bin" / "agent-server")]


def _install(python: str) -> None:
    print(f"Making {PLACE} from {LOCK.name}: 740 MB, some minutes, once.", flush=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    _run(python, "-m", "venv", str(PLACE))
    _run(str(PLACE / "bin" / "python"), *_INSTALL)


def _run(*words: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise CannotSetUp(f"the agent-server could not be installed: {said}")


def _python() -> str:
    for candidate in _candidates():
        try:
            done = subprocess.run([candidate, "-c", _SUITS], capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    raise CannotSetUp(
        "the agent-server needs Python 3.12 or 3.13, and there is none here:"
        " name one in OPENHANDS_PYTHON"
    )


def _candidates() -> Iterator[str]:
    if named := os.environ.get("OPENHANDS_PYTHON"):
        yield named
        return
    yield from ("python3.12", "python3.13", "python3")
    home = Path.home()
    for root in (home / ".pyenv" / "versions", home / ".local" / "share" / "uv" / "python"):
        for pattern in ("*3.12*", "*3.13*"):
            yield from (str(path / "bin" / "python3") for path in sorted(root.glob(pattern)))


if __name__ == "__main__":
    command()
