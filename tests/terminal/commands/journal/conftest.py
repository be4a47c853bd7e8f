"""A database for each test, and data folders that are copied into it or out of it."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.terminal import cli
from tests.postgres.conftest import database, database_url, server
from tests.terminal.commands.journal.homes import FIRST, SECOND, fill

__all__ = ["database", "database_url", "server"]

Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    """Run `acp-bridge journal copy`: its exit code, stdout and stderr."""

    def ran(*words: object) -> tuple[int, str, str]:
        code = cli.run(["journal", "copy", *map(str, words)])
        found = capsys.readouterr()
        return code, found.out, found.err

    return ran


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder with two sessions, one that was deleted, and what an agent's list hides."""
    home = tmp_path / "home"
    anyio.run(fill, Journal(home), FIRST, SECOND)
    return home
