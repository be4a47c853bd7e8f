"""A bench for each test; no process is left when it is over."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.requirements.subjects import Bench
from tests.support.gates import Gates
from tests.support.processes import all_gone


@pytest.fixture
async def bench(
    tmp_path: Path, agent_env: dict[str, str], gates: Gates, mark: str
) -> AsyncIterator[Bench]:
    yield Bench(tmp_path, agent_env, gates)
    await all_gone(mark)
