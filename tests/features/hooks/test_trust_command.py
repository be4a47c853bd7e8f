"""`acp-bridge trust`, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from acp_bridge.core.agents.guard import COMMAND_LINE
from acp_bridge.features.hooks.find import find
from acp_bridge.features.hooks.places import RECORDS
from acp_bridge.features.rules.places import RECORDS as RULES_RECORDS
from tests.support import processes

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "acp_bridge", "trust")

pytestmark = pytest.mark.process


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = Path(os.path.realpath(tmp_path)) / "project"
    (project / ".acp_bridge").mkdir(parents=True)
    (project / "check.sh").write_text("true\n")
    (project / ".acp_bridge" / "hooks.toml").write_text("[[Stop]]\ncommand = 'sh check.sh'\n")
    return project


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "ACP_BRIDGE_HOME": str(tmp_path / "home")}


def on_a_terminal(
    tmp_path: Path, *arguments: str, types: str = "", command: Sequence[str] = COMMAND
) -> tuple[int, str]:
    """Return the exit code, and what the terminal shows, of a command for which a person types."""
    ours, theirs = pty.openpty()
    os.write(ours, types.encode())
    try:
        streams = (theirs, theirs, theirs)
        process = processes.start([*command, *arguments], environment(tmp_path), None, streams)
        return process.wait(timeout=30), os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def in_an_agent(*command: str) -> list[str]:
    """The words that run a command with a terminal of its own, below the guard of an agent."""
    code = f"""
import os, socket, subprocess, sys
ours, other = socket.socketpair()
command = {[*COMMAND_LINE]!r} + [str(other.fileno()), "", "", *sys.argv[1:]]
guard = subprocess.Popen(command, pass_fds=[other.fileno()])
other.close()
said = b""
while b"exited" not in said and (data := ours.recv(4096)):
    said += data
sys.exit(int(said.split(b"exited ")[1].split()[0]))
"""
    return [sys.executable, "-c", code, "setsid", "-f", "-w", *command]


def hooks_are_on(tmp_path: Path, project: Path) -> bool:
    found = find(tmp_path / "home", str(project))
    return found is not None and bool(found.hooks)


def test_it_shows_what_it_trusts_and_asks(tmp_path: Path, project: Path) -> None:
    code, shown = on_a_terminal(tmp_path, str(project), types="yes\n")
    assert code == 0
    for text in (str(project), "Stop, at most 60 s", "sh check.sh", "hooks.toml", "  check.sh"):
        assert text in shown
    assert hooks_are_on(tmp_path, project)
    (record,) = (tmp_path / "home" / RECORDS).iterdir()
    assert record.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("types", ["no\n", "y\n", "\n", "\x04"])
def test_anything_but_yes_is_no(tmp_path: Path, project: Path, types: str) -> None:
    code, shown = on_a_terminal(tmp_path, str(project), types=types)
    assert code == 1
    assert "Not trusted: only the whole word yes is consent." in shown
    assert not hooks_are_on(tmp_path, project)


@pytest.mark.hazard("C18")
def test_without_a_terminal_it_refuses(tmp_path: Path, project: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(project)],
        env=environment(tmp_path),
        input="yes\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "terminal" in done.stderr
    assert not hooks_are_on(tmp_path, project)


@pytest.mark.hazard("C18")
def test_an_agent_that_makes_itself_a_terminal_can_not_trust_anything(
    tmp_path: Path, project: Path
) -> None:
    below = in_an_agent(*COMMAND)
    exit_code, shown = on_a_terminal(tmp_path, str(project), types="yes\n", command=below)
    assert exit_code == 1
    assert "an agent can't" in shown
    assert not hooks_are_on(tmp_path, project)


def test_what_is_trusted_is_listed_with_what_has_changed_and_can_be_removed(
    tmp_path: Path, project: Path
) -> None:
    assert "No project" in on_a_terminal(tmp_path, "--list")[1]
    on_a_terminal(tmp_path, str(project), types="yes\n")
    code, shown = on_a_terminal(tmp_path, "--list")
    assert (code, shown.strip()) == (0, f"hooks of {project}")
    (project / "check.sh").write_text("false\n")
    assert "check.sh changed" in on_a_terminal(tmp_path, "--list")[1]
    assert on_a_terminal(tmp_path, "--remove", str(project))[0] == 0
    assert on_a_terminal(tmp_path, "--remove", str(project))[0] == 1
    assert "No project" in on_a_terminal(tmp_path, "--list")[1]


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "there is no"), ("[[Stop]\n", "line 1"), ("[[Stop]]\ncommand = 5\n", "command")],
)
def test_what_can_not_be_trusted_is_said(
    tmp_path: Path, project: Path, content: str | None, why: str
) -> None:
    file = project / ".acp_bridge" / "hooks.toml"
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    code, shown = on_a_terminal(tmp_path, str(project), types="yes\n")
    assert code == 1
    assert why in shown


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("--yes", "a"), ("--remove",), ("--home",)])
def test_wrong_usage_is_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, shown = on_a_terminal(tmp_path, *arguments)
    assert code == 2
    assert "trust --help" in shown


def test_names_and_commands_can_not_hide_anything_on_the_terminal(
    tmp_path: Path, project: Path
) -> None:
    file = project / ".acp_bridge" / "hooks.toml"
    file.write_text('[[Stop]]\ncommand = "evil #\\u001b[2K\\rharmless"\n')
    _, shown = on_a_terminal(tmp_path, str(project), types="no\n")
    assert "\\x1b[2K\\rharmless" in shown


def test_a_bridge_without_hooks_imports_nothing_for_them(tmp_path: Path) -> None:
    code = (
        "import sys, acp_bridge.__main__, acp_bridge.serving; from pathlib import Path;"
        "from acp_bridge.features.hooks.find import find;"
        f"assert find(Path({str(tmp_path)!r}), {str(tmp_path)!r}) is None;"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    loaded = set(done.stdout.split())
    own = {name for name in loaded if name.startswith("acp_bridge.features.hooks")}
    assert own == {"acp_bridge.features.hooks"} | {
        f"acp_bridge.features.hooks.{name}"
        for name in ("find", "found", "in_session", "notices", "places")
    }
    assert not loaded & {"tomllib", "shlex", "glob"}


# --- rules ---------------------------------------------------------------------------------------

ALLOWS = """\
deny = ["Bash(rm *)"]
allow = ["Bash(make *)", "Edit(src/**)"]
[[only]]
agent = "codex-acp"
allow = ["Bash(cargo *)"]
"""


def trusts(tmp_path: Path, kept: str) -> bool:
    folder = tmp_path / "home" / kept
    return folder.is_dir() and any(folder.iterdir())


@pytest.mark.hazard("A2.3")
def test_each_row_that_a_projects_rules_would_allow_is_shown_and_trusted_apart_from_its_hooks(
    tmp_path: Path, project: Path
) -> None:
    (project / ".acp_bridge" / "permissions.toml").write_text(ALLOWS)
    code, shown = on_a_terminal(tmp_path, str(project), types="no\nyes\n")
    assert code == 1
    for text in ("Bash(make *)", "Edit(src/**)", "Bash(cargo *)  (agent codex-acp)"):
        assert text in shown
    assert "Bash(rm *)" not in shown
    assert (trusts(tmp_path, RECORDS), trusts(tmp_path, RULES_RECORDS)) == (False, True)
    assert on_a_terminal(tmp_path, "--list")[1].strip() == f"rules of {project}"
    (project / ".acp_bridge" / "permissions.toml").write_text(ALLOWS + "\n")
    assert "permissions.toml changed" in on_a_terminal(tmp_path, "--list")[1]
    assert on_a_terminal(tmp_path, "--remove", str(project))[0] == 0
    assert not trusts(tmp_path, RULES_RECORDS)


def test_rules_that_only_tighten_need_no_trust(tmp_path: Path, project: Path) -> None:
    (project / ".acp_bridge" / "hooks.toml").unlink()
    (project / ".acp_bridge" / "permissions.toml").write_text('deny = ["Bash(rm *)"]')
    code, shown = on_a_terminal(tmp_path, str(project))
    assert (code, "counts without your trust" in shown) == (0, True)
    assert not trusts(tmp_path, RULES_RECORDS)


def test_rules_with_a_mistake_can_not_be_trusted(tmp_path: Path, project: Path) -> None:
    (project / ".acp_bridge" / "permissions.toml").write_text('allow = ["Raed"]')
    code, shown = on_a_terminal(tmp_path, str(project), types="yes\n")
    assert (code, "line 1: 'Raed' names no tool" in shown) == (1, True)
    assert hooks_are_on(tmp_path, project)
