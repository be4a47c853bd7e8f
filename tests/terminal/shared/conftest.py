"""What tests of commands share: a home with a journal, and commands run in a folder."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.terminal import cli

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Said:
    """Run a command in a folder: its exit code, stdout and stderr."""
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")

    def said(*words: str) -> tuple[int, str, str]:
        code = cli.run(words)
        found = capsys.readouterr()
        return code, found.out, found.err

    return said


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path / "home")
    yield journal
    await journal.close()
