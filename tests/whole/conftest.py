"""What tests with whole bridges share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fixture_agents import FixtureLog
from tests.support.gates import Gates
from tests.support.postgres import server
from tests.support.processes import all_gone
from tests.whole.bridge_support import World

__all__ = ["server"]


@pytest.fixture
async def world(
    tmp_path: Path,
    agent_env: dict[str, str],
    agent_log: FixtureLog,
    gates: Gates,
    mark: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[World]:
    """Bridges and fixture agents of one test; when it is over, none of them lives (P1)."""
    folder = tmp_path / "project"
    folder.mkdir()
    world = World(folder, tmp_path / "home", agent_env, agent_log, gates, mark, monkeypatch)
    yield world
    await all_gone(mark)
    world.judge()
