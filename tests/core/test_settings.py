"""Where the data of a user lie who has chosen no folder."""

import os
import pwd
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


@pytest.mark.parametrize("odd", ["", "relative", None])
def test_without_a_home_that_can_be_used_it_is_below_the_one_that_the_system_knows(
    odd: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("HOME")
    if odd is not None:
        monkeypatch.setenv("HOME", odd)
    assert default_home().is_relative_to(pwd.getpwuid(os.getuid()).pw_dir)
