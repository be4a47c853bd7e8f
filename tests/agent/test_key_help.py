"""The sentence that says how to give the agent a key."""

from pathlib import Path

import pytest

from agent.key_help import key_help


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a user who has chosen none."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "acp-bridge"


def test_it_names_the_variable_and_the_command(usual: Path) -> None:
    told = key_help("XAI_API_KEY", usual / "keys.env")
    assert "`acp-bridge key XAI_API_KEY`" in told
    assert key_help() == told.replace(" XAI_API_KEY", "")


def test_commands_that_would_look_in_another_folder_are_given_this_one(usual: Path) -> None:
    told = key_help("XAI_API_KEY", "/my home/keys.env")
    assert "`acp-bridge key XAI_API_KEY --home '/my home'`" in told
