"""Where the data of a user lie who has chosen no folder."""

import sys
from pathlib import Path

import pytest

from acp_bridge.core.settings import default_home


@pytest.mark.parametrize(
    ("system", "chosen", "home"),
    [
        ("linux", None, "/home/me/.local/share/acp-bridge"),
        ("darwin", None, "/home/me/Library/Application Support/acp-bridge"),
        ("linux", "/data", "/data/acp-bridge"),
        ("darwin", "/data", "/data/acp-bridge"),
        ("linux", "relative", "/home/me/.local/share/acp-bridge"),
        ("linux", "", "/home/me/.local/share/acp-bridge"),
    ],
)
def test_the_data_folder_is_where_programs_of_the_system_keep_data(
    system: str, chosen: str | None, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if chosen is not None:
        monkeypatch.setenv("XDG_DATA_HOME", chosen)
    assert default_home() == Path(home)
