"""The command lines that are shown to a user find the same sessions."""

import pytest

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS, OwnCommands
from acp_bridge.core.updates.wording import trust
from acp_bridge.terminal import cli


def test_a_line_names_the_data_folder_only_if_the_user_has_chosen_one() -> None:
    commands = OwnCommands()
    assert commands.line("ps") == "acp-bridge ps"
    assert commands.line("approve", "3f2a") == "acp-bridge approve 3f2a"
    commands.use_home("/data/my sessions")
    assert commands.line("ps") == "acp-bridge ps --home '/data/my sessions'"
    assert commands.line("approve", "3f2a") == "acp-bridge approve --home '/data/my sessions' 3f2a"
    commands.use_home(None)
    assert commands.line("doctor") == "acp-bridge doctor"


@pytest.mark.parametrize(
    "words",
    [
        ["ps", "--home", "/no/such"],
        ["doctor", "--home", "/no/such", "--help"],
        ["chat", "--home", "/no/such", "--", "agent"],
        ["serve", "tokens", "--home=/no/such"],
        ["key", "--list", "--home", "/no/such"],
        ["trust", "--list", "--home", "/no/such"],
        ["setup", "zed", "--home", "/no/such"],
    ],
)
def test_each_command_notes_the_folder_of_its_option_and_no_other(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACP_BRIDGE_HOME", "/of/the/environment")
    cli.run(words)
    assert OWN_COMMANDS.line("show", "3f2a") == "acp-bridge show --home /no/such 3f2a"
    assert trust("/my/project") == "`acp-bridge trust --home /no/such /my/project`"
    cli.run(["sessions", "--help"])
    assert OWN_COMMANDS.line("show", "3f2a") == "acp-bridge show 3f2a"
