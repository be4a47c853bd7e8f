"""Editors that are not ours, run with what `acp-bridge setup` prints and nothing else.

They are collected only where they are asked for by their path (`make test-editors`). What can't be
had on this machine is skipped, with the reason, which the run lists at its end.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from tests.clients_not_ours.conftest import modules
from tests.support.processes import MARK, all_gone, kill_marked

__all__ = ["modules"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM = Path(sys.executable).with_name("acp-bridge")
DIALOGUE = HERE / "dialogue.txt"
#: what the model says to everybody.
ANSWER = "The bridge says hello to the editor."


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    invoked = config.invocation_params.dir
    asked = (invoked / arg.partition("::")[0] for arg in config.args)
    return None if any(path.resolve().is_relative_to(HERE) for path in asked) else True


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a home of their own, who has just installed acp-bridge."""

    home: Path
    #: where they work.
    project: Path
    env: dict[str, str]

    def setup(self, *words: str) -> str:
        """Says `acp-bridge setup`, with a model that needs no key; what it prints."""
        settings = ("--model", f"scripted:{DIALOGUE}", "--home", str(self.home / "bridge"))
        done = subprocess.run(
            [str(PROGRAM), "setup", *words, *settings],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def printed(self, editor: str) -> str:
        """What `acp-bridge setup` has between where it goes and what is done then."""
        said = self.setup(editor)
        return said.split("\n\n", 2)[2].rpartition("\n\nThen: ")[0] + "\n"

    def run(self, *command: str) -> str:
        """A program of the editor's, in the project; what it prints."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """No process of the editor or the bridge is left at the end."""
    mark = uuid.uuid4().hex
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    env = {
        "HOME": str(tmp_path / "home"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "ACP_BRIDGE_DEBUGGABLE": "1",  # so that its processes are found
        MARK: mark,
    }
    try:
        yield Person(tmp_path / "home", tmp_path / "project", env)
        anyio.run(all_gone, mark, 20)
    finally:
        kill_marked(mark)
