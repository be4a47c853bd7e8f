"""The ways in which acp-bridge is installed: each into an environment that is made for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.installs.rows import Row

#: seconds for one command; a first download takes the longest.
_LONGEST = 600
_LOCK = Path(__file__).with_name("requirements.lock")
_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")

#: variables that a command gets beside our own.
Environment = Mapping[str, str | Path]


class Failed(Exception):
    """A command has not ended well; the text says which, and what it said."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything of one run lies, and what was built."""

    folder: Path
    root: Path
    sdist: Path
    wheel: Path
    #: Whether pip compiles what it installs, as it does for users: half of its CPU.
    compiles: bool = True

    @property
    def tools(self) -> Path:
        """The folder of the commands pipx and uv."""
        return self.folder / "tools" / "bin"

    @property
    def install(self) -> tuple[str, ...]:
        """The words for pip, which has one cache for all ways."""
        options = () if self.compiles else ("--no-compile",)
        return (*_PIP, "--cache-dir", str(self.pip_cache), "install", *options)

    @property
    def pip_cache(self) -> Path:
        """The folder of what pip has downloaded."""
        return self.folder / "tools" / "pip"

    @property
    def uv_cache(self) -> Path:
        """The folder of what uv has downloaded, which pipx uses where it is there."""
        return self.folder / "tools" / "cache"

    def new(self) -> Path:
        """Make an empty folder for one way."""
        return Path(os.path.realpath(_numbered(self.folder)))


def _numbered(folder: Path) -> Path:
    made = folder / str(len(list(folder.iterdir())))
    made.mkdir()
    return made


def install_tools(place: Place) -> None:
    """Install pipx and uv, as locked."""
    _run([sys.executable, "-m", "venv", "--without-pip", place.tools.parent], {}, place.folder)
    pip, *words = place.install[1:]
    locked = ("--require-hashes", "--only-binary", ":all:", "-r", _LOCK)
    for_tools = ("--python", place.tools / "python")
    _run([sys.executable, "-m", pip, *for_tools, *words, *locked], {}, place.root)


def with_pip(place: Place, python: str) -> Row:
    """`pip install`, into a virtual environment."""
    home = place.new()
    own = _virtual_environment(home, python)
    _run([own, *place.install, place.wheel], {}, home)
    return _seen(home, own.parent, "pip", "wheel")


def with_pipx(place: Place, python: str) -> Row:
    """`pipx install`."""
    home = place.new()
    env: Environment = {"PIPX_HOME": home / "pipx", "PIPX_BIN_DIR": home / "bin", "USE_EMOJI": "0"}
    env = {**env, "PIP_CACHE_DIR": place.pip_cache, "UV_CACHE_DIR": place.uv_cache}
    own = ("--python", _found(python))
    _run([place.tools / "pipx", "install", "--quiet", *own, place.sdist], env, home)
    return _seen(home, home / "bin", "pipx", "sdist")


def with_uv(place: Place, python: str) -> Row:
    """`uv tool install`."""
    home = place.new()
    env: Environment = {"UV_TOOL_DIR": home / "tools", "UV_TOOL_BIN_DIR": home / "bin"}
    own = ("--python", _found(python), "--cache-dir", place.uv_cache)
    _run([place.tools / "uv", "tool", "install", "--quiet", *own, place.wheel], env, home)
    return _seen(home, home / "bin", "uv tool", "wheel")


def slim(place: Place, python: str) -> Row:
    """What docs/installing.md says to leave LiteLLM out."""
    home = place.new()
    own = _virtual_environment(home, python)
    lock = place.root / "requirements-slim.lock"
    words = ("--require-hashes", "--only-binary", ":all:", "-r", lock)
    _run([own, *place.install, *words], {}, home)
    _run([own, *place.install, "--no-deps", place.wheel], {}, home)
    return _seen(home, own.parent, "pip, slim", "wheel", slim=True)


WAYS: Mapping[str, Callable[[Place, str], Row]] = {
    "pip": with_pip,
    "pipx": with_pipx,
    "uv": with_uv,
    "slim": slim,
}


def _virtual_environment(home: Path, python: str) -> Path:
    """Make one; returns its Python."""
    _run([python, "-m", "venv", home / "venv"], {}, home)
    return home / "venv" / "bin" / "python"


def _found(python: str) -> str:
    """Return the interpreter itself: a shim or a link in a virtual environment is none."""
    code = "import os, sys; print(os.path.realpath(sys.executable))"
    return _run([python, "-c", code], {}, Path("/")).stdout.strip()


def _seen(home: Path, commands: Path, way: str, kind: str, *, slim: bool = False) -> Row:
    """Run what was installed, and measure it; then it is removed."""
    version = _run([commands / "acp-bridge", "--version"], {}, home).stdout.strip()
    also = _run([commands / "acp-stdio-bridge", "--version"], {}, home).stdout.strip()
    if also != version:
        raise Failed(f"acp-stdio-bridge is {also}, acp-bridge {version}")
    demo = _ended([commands / "acp-bridge", "demo"], {}, home)
    alone = _ended([commands / "acp-bridge"], {}, home)
    (site,) = home.rglob("site-packages/acp_bridge")
    python = next(iter(site.parents[2].parent.glob("bin/python")))
    row = Row(
        python=_run([python, "-V"], {}, home).stdout.split()[-1],
        way=way,
        kind=kind,
        packages=len(list(site.parent.glob("*.dist-info"))),
        size=_size(site.parent),
        demo=demo.stdout + demo.stderr,
        alone=(alone.returncode, alone.stdout + alone.stderr),
        slim=slim,
    )
    shutil.rmtree(home)
    return row


def _size(folder: Path) -> int:
    """Return how much room the files take on disk, in bytes."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def _run(words: list[str | Path], env: Environment, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that must end with 0. Raises Failed."""
    done = _ended(words, env, home)
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())[-400:]
        raise Failed(f"`{' '.join(map(str, words))}` ended with {done.returncode}: {said}")
    return done


def _ended(
    words: list[str | Path], env: Environment, home: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, at home in `home`, with nothing that leads it to our own."""
    leading = ("PYTHON", "VIRTUAL_ENV", "ACP_BRIDGE_", "PIPX_", "UV_TOOL", "XDG_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(leading)}
    kept = {key: value for key, value in kept.items() if not key.endswith("_API_KEY")}
    try:
        return subprocess.run(
            [str(word) for word in words],
            cwd=home,
            env={**kept, "HOME": str(home), **{key: str(value) for key, value in env.items()}},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        raise Failed(f"`{words[0]}`: {why}") from why
