"""A browser for the page. These tests need Chromium and npm, and run only where they are named."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.page_not_ours.browser import Browser, browser
from tests.support.all_plugged import all_plugged as all_plugged
from tests.support.npm import installed, is_asked_for

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if is_asked_for(HERE, config) else True


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that judges whether everybody can use a page."""
    return (installed(HERE) / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.fixture
async def chromium(tmp_path: Path) -> AsyncIterator[Browser]:
    async with browser(tmp_path / "profile") as found:
        yield found
