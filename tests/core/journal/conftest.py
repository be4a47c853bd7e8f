"""A journal in a folder of the test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acp_bridge.core.journal import Journal, SessionJournal

SESSION = "0" * 31 + "1"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def journal(home: Path) -> AsyncIterator[Journal]:
    journal = Journal(home)
    yield journal
    await journal.close()


@pytest.fixture
async def session(journal: Journal) -> SessionJournal:
    return await journal.create(SESSION, cwd="/project", agent="demo")
