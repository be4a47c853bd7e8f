"""A journal of one session, in a folder of the test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acp_bridge.journal import Journal, SessionJournal


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SessionJournal]:
    home = Journal(tmp_path)
    yield await home.create("s", cwd="/w", agent="a", agent_session_id="0")
    await home.close()
