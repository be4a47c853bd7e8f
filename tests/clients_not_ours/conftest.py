"""Installing the clients, and the tape of what crosses the pipe in a test.

These tests need npm and a network, so they are collected only where they are asked for by their
path (`make test-clients`), and not at all in `make test`. What can't be installed is red.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients_not_ours.judge import Connection, Refused, Schema
from tests.support.npm import installed, is_asked_for
from tests.support.processes import all_gone
from tests.support.v2_schema import v2_schema

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODULES = HERE / "node_modules"
#: the model of a conversation in which every tool is used
CODING = f"scripted:{ROOT / 'fixtures' / 'dialogues' / 'coding.txt'}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if is_asked_for(HERE, config) else True


@pytest.fixture(scope="session")
def modules() -> Path:
    """`node_modules` with the packages of the lock, installed when the lock has changed."""
    return installed(HERE)


@pytest.fixture(scope="session")
def schema(modules: Path) -> Schema:
    path = modules / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.json"
    return Schema(json.loads(path.read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class Verdict:
    #: one for each message that breaks the protocol.
    complaints: list[str]
    #: of the messages that don't.
    methods: set[str]


@dataclass(frozen=True, slots=True)
class Tape:
    """What crossed the pipe between a client and each bridge that it started."""

    path: Path
    schema: Schema

    def command(self, *agent: str) -> list[str]:
        """For the client: the bridge, on tape, with this agent or the built-in one."""
        bridge = [sys.executable, "-m", "acp_bridge", *(["--", *agent] if agent else [])]
        return self.of(*bridge)

    def of(self, *command: str) -> list[str]:
        """For the client: this command, on tape."""
        return [sys.executable, "-I", str(HERE / "tee.py"), str(self.path), *command]

    def bridges(self) -> list[int]:
        """The pids of the bridges, in the order of their start."""
        return [entry["agent"] for entry in self._entries() if "agent" in entry]

    def judge(self) -> Verdict:
        """Of every message up to now, each connection for itself."""
        complaints: list[str] = []
        connections: dict[int, Connection] = {}
        for entry in self._entries():
            connection = connections.setdefault(entry["tee"], Connection(self.schema))
            if "line" in entry:
                try:
                    connection.judge(entry["from"], entry["line"])
                except Refused as refused:
                    complaints.append(f"{refused}; the {entry['from']} said: {entry['line']}")
        return Verdict(complaints, {m for c in connections.values() for m in c.methods})

    def _entries(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]


@pytest.fixture
async def tape(
    request: pytest.FixtureRequest, tmp_path: Path, schema: Schema, mark: str
) -> AsyncIterator[Tape]:
    """Judged when the test is over, whatever it was about; no process is left by then (P1).

    With the fixture `second_version` the client speaks version 2.
    """
    second = "second_version" in request.fixturenames
    tape = Tape(tmp_path / "tape.jsonl", v2_schema() if second else schema)
    yield tape
    await all_gone(mark, within=5)
    verdict = tape.judge()
    assert not verdict.complaints
    assert verdict.methods


@pytest.fixture
def second_version() -> None:
    """The client of the test speaks version 2: the tape is judged by its schema."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sessions' working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def client_env(agent_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """For a client; what it starts inherits it."""
    own = {"ACP_BRIDGE_HOME": str(tmp_path / "home"), "ACP_BRIDGE_MODEL": "demo"}
    return {**os.environ, **agent_env, **own, "PYTHONPATH": str(ROOT)}
