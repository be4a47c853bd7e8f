"""A journal of one session, in a folder of the test's own, and a log in which nothing fails."""

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from acp_bridge.core.journal import Journal, SessionJournal


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SessionJournal]:
    home = Journal(tmp_path)
    yield await home.create("s", cwd="/w", agent="a", agent_session_id="0")
    await home.close()


@pytest.fixture
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which an error was logged, unless it cleared the log."""
    yield
    assert [r for r in caplog.get_records("call") if r.levelno >= logging.ERROR] == []
