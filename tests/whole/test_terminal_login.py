"""On a terminal the bridge becomes the agent's own command: a person logs in there."""

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOGIN = (
    "import os, sys; print('agent', os.getpid(), sys.stdin.isatty(), *sys.argv[1:]); sys.exit(3)"
)

pytestmark = pytest.mark.process


def on_a_terminal(arguments: Sequence[str], tmp_path: Path) -> tuple[int, int, str]:
    """Return the pid of a bridge whose stdin and stdout are a terminal, its code and output."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ACP_BRIDGE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "acp_bridge", *arguments]
    try:
        with subprocess.Popen(
            command, env=env, stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            code = process.wait(timeout=30)
        return process.pid, code, os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_command_is_run_in_the_place_of_the_bridge_with_the_logins_arguments(
    tmp_path: Path,
) -> None:
    agent = ["--delivery", "queue", "--", sys.executable, "-c", LOGIN]
    pid, code, output = on_a_terminal([*agent, "--cli", "login"], tmp_path)
    assert output.splitlines() == [f"agent {pid} True --cli login"]
    assert code == 3
    assert not (tmp_path / "home").exists()


@pytest.mark.hazard("K7.7")
def test_with_a_database_as_the_journal_it_has_no_variable_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    code = "import os; print([name for name in os.environ if name.startswith('PG')])"
    for journal, shown in (([], "['PGPASSWORD']"), (["--journal", "postgresql://db/s"], "[]")):
        words = [*journal, "--", sys.executable, "-c", code]
        assert on_a_terminal(words, tmp_path)[1:] == (0, f"{shown}\r\n")


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    _, code, output = on_a_terminal(["--", "/nowhere/agent", "--cli"], tmp_path)
    assert (code, output.splitlines()) == (
        127,
        ["acp-bridge: /nowhere/agent: No such file or directory"],
    )


def test_a_person_who_starts_the_bridge_alone_is_told_what_it_is(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ACP_BRIDGE_HOME": str(tmp_path / "home")}
    os.write(ours, b"\x04")  # the end of input
    try:
        done = subprocess.run(
            [sys.executable, "-m", "acp_bridge"],
            env=env,
            stdin=theirs,
            capture_output=True,
            timeout=30,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"an editor starts it" in done.stderr
    assert (done.returncode, done.stdout) == (0, b"")
