"""The agent as a process of its own."""

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.processes import MARK

ROOT = Path(__file__).parents[3]


class Start(Protocol):
    """`async with start(DIALOGUE) as client`"""

    def __call__(
        self, dialogue: str, *, model: str = "", env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[RecordingClient]:
        """`model`: instead of a dialogue. `env`: added."""
        ...


@pytest.fixture
def model_log(tmp_path: Path) -> Path:
    return tmp_path / "model.log"


def environment(folder: Path, gates: Gates, mark: str) -> dict[str, str]:
    """Of a process whose data are in this folder."""
    return {
        **gates.env,
        MARK: mark,
        "ACP_BRIDGE_HOME": str(folder / "home"),
        "ACP_BRIDGE_MODEL_LOG": str(folder / "model.log"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Several tests may share a process."""
    return "asyncio"


@pytest.fixture
def process_env(tmp_path: Path, gates: Gates, mark: str, model_log: Path) -> dict[str, str]:
    return environment(tmp_path, gates, mark)


@pytest.fixture
def start(tmp_path: Path, process_env: dict[str, str]) -> Start:
    """The agent alone."""
    return starter("agent", tmp_path, process_env)


@pytest.fixture(params=["agent", "acp_bridge"])
def start_either(
    request: pytest.FixtureRequest, tmp_path: Path, process_env: dict[str, str]
) -> Start:
    """The agent alone, and behind the bridge."""
    return starter(request.param, tmp_path, process_env)


def starter(module: str, folder: Path, process_env: Mapping[str, str]) -> Start:
    """`module`: `agent` or `acp_bridge`."""

    def start(
        dialogue: str, *, model: str = "", env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[RecordingClient]:
        file = folder / "dialogue.txt"
        file.write_text(dialogue)
        command = [sys.executable, "-m", module, "--model", model or f"scripted:{file}"]
        return RecordingClient.start(command, env={**process_env, **(env or {})}, exit_within=5)

    return start
