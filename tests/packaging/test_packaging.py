"""What is built is what a user gets: a wheel and an sdist that run outside the checkout, and locks.

Nothing here needs a network: the build backend and the dependencies are those of the environment
that runs the tests.
"""

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import anyio
import pytest

from acp_bridge import __version__

ROOT = Path(__file__).parents[2]
COMMANDS = ("acp-bridge", "acp-stdio-bridge")


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """The output of a command with this exit code; nothing of our environment leads it home."""
    leading = ("PYTHON", "PIP_", "VIRTUAL_ENV", "ACP_BRIDGE_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(leading)}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**env, "HOME": str(cwd), "XDG_DATA_HOME": str(cwd / "data")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, f"{command} exited with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two wheels by their origin: from the checkout, and from the unpacked sdist."""
    folder = tmp_path_factory.mktemp("built")
    build = (sys.executable, "-m", "hatchling", "build")
    run(*build, "-d", folder, "-t", "wheel", "-t", "sdist", cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    run("tar", "-xzf", sdist, cwd=folder)
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    run(*build, "-d", folder / "again", "-t", "wheel", cwd=unpacked)
    (wheel,), (again,) = folder.glob("*.whl"), (folder / "again").glob("*.whl")
    return {"wheel": wheel, "sdist": again}


@pytest.mark.process
def test_make_notes_the_clone_so_that_any_locale_can_read_where_it_is(tmp_path: Path) -> None:
    clone = tmp_path / "dépôt d'essai"
    site = clone / ".venv" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    for name in ("pyproject.toml", "requirements-dev.lock", ".venv/.locked"):
        (clone / name).touch()
    noted = site / "_acp_stdio_bridge.pth"
    noted.write_text(f"{clone}", "utf-8")  # as pip does
    make = ("make", "-f", ROOT / "Makefile", "-o", ".venv/.locked", "PY=true", ".venv/.ready")
    run(*make, cwd=clone)
    line = noted.read_text("ascii").strip()
    assert (site / line).resolve() == clone


@pytest.mark.process
def test_make_says_that_it_needs_the_package_index(tmp_path: Path) -> None:
    (tmp_path / "requirements-dev.lock").touch()
    make = ("make", "-f", ROOT / "Makefile", "PYTHON=true", "PY=false", ".venv/.locked")
    assert "it needs the package index" in run(*make, cwd=tmp_path, code=2)
    assert not (tmp_path / ".venv" / ".locked").exists()


@pytest.mark.process
@pytest.mark.slow
def test_the_checkout_and_the_sdist_build_the_same_wheel(built: dict[str, Path]) -> None:
    contents = []
    for path in built.values():
        with zipfile.ZipFile(path) as wheel:
            contents.append({name: wheel.read(name) for name in wheel.namelist()})
    assert contents[0] == contents[1]


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; what the wheel needs is given by `dependencies`."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home, symlinks=True)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", built["sdist"], cwd=home)
    return home


def dependencies(home: Path, *, without: str = "") -> None:
    """Put our dependencies, but one, within reach of an environment.

    Through a .pth they come after the wheel, and a .pth of their own (our checkout's, installed in
    place) is not followed.
    """
    folder = home / f"all-but-{without}"
    folder.mkdir()
    for path in Path(anyio.__file__).parents[1].iterdir():
        if path.name != without:
            (folder / path.name).symlink_to(path)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{folder}\n")


@pytest.mark.process
@pytest.mark.slow
def test_what_was_built_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    dependencies(installed)
    for command in COMMANDS:
        assert __version__ in run(installed / "bin" / command, "--version", cwd=tmp_path)
    python = installed / "bin" / "python"
    for package in ("acp_bridge", "agent"):
        where = f"import {package}; print({package}.__file__)"
        assert Path(run(python, "-c", where, cwd=tmp_path)).is_relative_to(installed)


@pytest.mark.process
@pytest.mark.slow
def test_without_litellm_it_serves_prepared_answers_and_other_agents_and_says_what_is_missing(
    installed: Path, tmp_path: Path
) -> None:
    dependencies(installed, without="litellm")
    bridge, python = installed / "bin" / "acp-bridge", installed / "bin" / "python"
    said = run(bridge, cwd=tmp_path, code=2)
    assert said.count("\n") == 1
    assert f"not installed: litellm. Run: {python} -m pip install acp-stdio-bridge" in said
    assert "I am prepared answers" in run(bridge, "run", "--model", "demo", "hello", cwd=tmp_path)
    other = (python, "-I", "-m", "agent", "--model", "demo")
    assert "I am prepared answers" in run(bridge, "run", "hello", "--", *other, cwd=tmp_path)


@pytest.mark.process
@pytest.mark.slow
def test_the_wheel_holds_both_packages_with_their_data_and_nothing_else(
    built: dict[str, Path],
) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        files = [name for name in wheel.namelist() if ".dist-info/" not in name]
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    beside = {name.partition(".data/")[2] for name in files if ".data/" in name}
    assert beside == {"data/share/man/man1/acp-bridge.1"}
    names = {name for name in files if ".data/" not in name}
    assert {name.partition("/")[0] for name in names} == {"acp_bridge", "agent"}
    kept = {
        path.relative_to(ROOT).as_posix()
        for package in ("acp_bridge", "agent")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == kept
    assert {"acp_bridge/py.typed", "agent/scripted/demo.txt"} <= names


def pins(lock: str) -> dict[str, str]:
    """Name -> version of what a lock file pins."""
    text = (ROOT / lock).read_text("utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


LOCKS = ["requirements.lock", "requirements-slim.lock", "requirements-dev.lock"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_by_hash_and_names_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text("utf-8")
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins(lock))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)


def test_the_development_lock_holds_the_runtime_lock() -> None:
    assert pins("requirements.lock").items() <= pins("requirements-dev.lock").items()


def test_the_slim_lock_is_the_runtime_lock_without_litellm_and_what_it_alone_needs() -> None:
    slim, whole = pins("requirements-slim.lock"), pins("requirements.lock")
    assert slim.items() <= whole.items()
    assert "litellm" not in slim
    assert "litellm" not in (ROOT / "requirements-slim.lock").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["openhands"]]
    named = {re.split(r"[^a-z0-9-]", entry)[0] for entry in needed}
    assert named - slim.keys() == {"litellm"}


def test_the_malicious_releases_of_litellm_are_excluded() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (litellm,) = (entry for entry in project["dependencies"] if entry.startswith("litellm"))
    assert {"!=1.82.7", "!=1.82.8"} <= set(litellm.removeprefix("litellm").split(","))
    assert pins("requirements.lock")["litellm"] not in ("1.82.7", "1.82.8")
