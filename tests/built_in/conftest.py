"""Processes that know LiteLLM take seconds to start: several tests may share one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.built_in.support import Stack, stack_in


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with stack_in(tmp_path) as stack:
        yield stack
