"""The agent as a process of its own."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.processes import MARK

ROOT = Path(__file__).parents[3]

#: `async with start(DIALOGUE) as client`
Start = Callable[[str], AbstractAsyncContextManager[RecordingClient]]


@pytest.fixture
def model_log(tmp_path: Path) -> Path:
    return tmp_path / "model.log"


@pytest.fixture
def process_env(tmp_path: Path, gates: Gates, mark: str, model_log: Path) -> dict[str, str]:
    return {
        **gates.env,
        MARK: mark,
        "ACP_BRIDGE_HOME": str(tmp_path / "home"),
        "ACP_BRIDGE_MODEL_LOG": str(model_log),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }


@pytest.fixture
def start(tmp_path: Path, process_env: dict[str, str]) -> Start:
    def start(dialogue: str) -> AbstractAsyncContextManager[RecordingClient]:
        file = tmp_path / "dialogue.txt"
        file.write_text(dialogue)
        command = [sys.executable, "-m", "agent", "--model", f"scripted:{file}"]
        return RecordingClient.start(command, env=process_env, exit_within=5)

    return start
