"""Settings from arguments and environment."""

from pathlib import Path

import pytest

from agent.settings import read_settings


def test_the_argument_wins_over_the_environment() -> None:
    env = {"ACP_BRIDGE_MODEL": "b", "ACP_BRIDGE_HOME": "/h"}
    assert read_settings("a", env).model == "a"
    assert read_settings(None, env).model == "b"
    assert read_settings(None, {"ACP_BRIDGE_HOME": "/h"}).model == ""


def test_sessions_and_keys_are_in_the_home_folder() -> None:
    settings = read_settings(None, {"ACP_BRIDGE_HOME": "/h"})
    assert settings.folder == Path("/h/agent")
    assert settings.keys_file == Path("/h/keys.env")
    assert read_settings(None, {"ACP_BRIDGE_HOME": "/h"}, "/other").folder == Path("/other/agent")


def test_without_a_home_they_are_in_the_user_s_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = read_settings(None, {}).folder
    assert folder.is_relative_to(tmp_path)
    assert folder.parts[-2:] == ("acp-bridge", "agent")


def test_models_are_separated_by_commas_and_named_once() -> None:
    settings = read_settings(None, {"ACP_BRIDGE_HOME": "/h", "ACP_BRIDGE_MODELS": " a, b,,a ,c/d"})
    assert settings.models == ("a", "b", "c/d")


@pytest.mark.parametrize(("text", "calls"), [("", 100), (" ", 100), ("1", 1), ("250", 250)])
def test_the_limit_of_calls_is_a_number(text: str, calls: int) -> None:
    settings = read_settings(None, {"ACP_BRIDGE_HOME": "/h", "ACP_BRIDGE_MAX_CALLS": text})
    assert settings.max_calls == calls


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_limit_of_calls_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ACP_BRIDGE_MAX_CALLS: a whole number"):
        read_settings(None, {"ACP_BRIDGE_HOME": "/h", "ACP_BRIDGE_MAX_CALLS": text})


def test_the_summary_model_is_the_environment_s() -> None:
    env = {"ACP_BRIDGE_HOME": "/h", "ACP_BRIDGE_SUMMARY_MODEL": " small "}
    assert read_settings(None, env).summary_model == "small"


@pytest.mark.parametrize(("text", "on"), [("", True), ("on", True), (" OFF ", False)])
def test_a_model_that_goes_round_in_circles_is_noticed_unless_that_is_off(
    text: str, on: bool
) -> None:
    env = {"ACP_BRIDGE_HOME": "/h", "ACP_BRIDGE_STUCK_DETECTION": text}
    assert read_settings(None, env).stuck_detection is on


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(ValueError, match="ACP_BRIDGE_STUCK_DETECTION: on or off"):
        read_settings(None, {"ACP_BRIDGE_HOME": "/h", "ACP_BRIDGE_STUCK_DETECTION": "perhaps"})
