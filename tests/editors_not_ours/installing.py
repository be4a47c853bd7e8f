"""The editors: installed from the registries that have them, by locks, into folders of their own.

Where something can't be had here, NotHere says why, and what would help.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: in a folder that git ignores; `make clean` removes it.
PLACE = ROOT / "build" / "editors"
SECONDS = 600
_INSTALL = (
    *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
    *("--require-hashes", "--only-binary", ":all:", "-r"),
)


class NotHere(Exception):
    """Says why an editor can't be run."""


def neovim() -> list[str]:
    """Neovim's command. Raises NotHere."""
    return _installed("neovim", "nvim", "python3")


def toad() -> list[str]:
    """Toad's command. Raises NotHere."""
    python = os.environ.get("TOAD_PYTHON", "python3.14")
    if _said(python, "-c", "import sys; print(sys.version_info >= (3, 14))") != "True":
        raise NotHere("Toad needs Python 3.14: name one in TOAD_PYTHON")
    return _installed("toad", "toad", python)


def emacs() -> str:
    """The command of an Emacs that agent-shell can run in. Raises NotHere."""
    emacs = os.environ.get("EMACS", "emacs")
    asked = '(princ (and (version<= "29.1" emacs-version) (executable-find "curl") t))'
    if _said(emacs, "-Q", "--batch", "--eval", asked) != "t":
        raise NotHere("agent-shell needs Emacs 29.1 or newer, and curl: name one in EMACS")
    return emacs


def source(name: str) -> Path:
    """The files of a plugin that no registry has. Raises NotHere."""
    if given := os.environ.get("EDITOR_SOURCES"):
        if (folder := Path(given) / name).is_dir():
            return folder
        raise NotHere(f"EDITOR_SOURCES has no folder {name}")
    wanted = tomllib.loads((HERE / "sources.toml").read_text("utf-8"))[name]
    folder = PLACE / f"{name}-{wanted['commit'][:12]}"
    if not (folder / ".fetched").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _git(folder, "init", "--quiet")
        _git(folder, "fetch", "--quiet", "--depth=1", wanted["repository"], wanted["commit"])
        _git(folder, "checkout", "--quiet", "FETCH_HEAD")
        (folder / ".fetched").touch()
    return folder


def _git(folder: Path, *words: str) -> None:
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:] or ["git failed"]
        raise NotHere(f"{folder.name}: {why[0]}; EDITOR_SOURCES may name a folder that has it")


def _installed(name: str, command: str, python: str) -> list[str]:
    """A command from a Python environment of its own, which has what the lock says.

    `python` may be a program that starts one elsewhere, such as in a chroot: so everything of the
    environment is started by way of it.
    """
    lock, place = HERE / f"{name}.lock", PLACE / name
    through = (python, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])")
    wanted = hashlib.sha256(lock.read_bytes() + python.encode()).hexdigest()
    stamp = place / ".installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        _run(python, "-m", "venv", str(place))
        _run(*through, str(place / "bin" / "python"), *_INSTALL, str(lock))
        stamp.write_text(wanted)
    return [*through, str(place / "bin" / command)]


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise NotHere(f"{words[0]} could not install it: {said}")


def _said(*words: str) -> str | None:
    """What a program prints; None if there is none, or it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
