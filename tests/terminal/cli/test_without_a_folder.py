"""Commands where the working folder was removed, and what those are told that start a bridge."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.terminal import cli
from acp_bridge.terminal.commands import attach, chat
from acp_bridge.terminal.shared import known


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The working folder is one that was removed."""
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "home"))
    before, folder = Path.cwd(), tmp_path / "gone"
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()
    yield
    os.chdir(before)


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize(
    "arguments",
    [
        ["setup", "zed", "--home", "h"],
        ["--home", "h"],
        ["run", "p", "--", "agent"],
        ["run", "--continue", "p"],
        ["show"],
        ["sessions", "--cwd", "."],
        ["attach"],
        ["chat", "--", "agent"],
        ["chat", "--resume"],
    ],
)
def test_a_command_that_needs_the_folder_says_that_it_is_gone(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (chat, attach):
        monkeypatch.setattr(module, "unfit", lambda env: None)
    assert cli.run(arguments) == 1
    told = "acp-bridge: the working folder is not there any more: change into another\n"
    assert capsys.readouterr().err == told


@pytest.mark.usefixtures("gone")
def test_what_does_not_need_the_folder_works(tmp_path: Path) -> None:
    assert cli.run(["sessions", "--cwd", str(tmp_path)]) == 0
    assert known.real_path(str(tmp_path)) == os.path.realpath(tmp_path)


def test_the_bridge_of_a_chat_ends_with_it_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plans: list[Any] = []

    async def converse(plan: Any) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setenv("ACP_BRIDGE_KEEP", "8h")
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path))
    monkeypatch.setattr(chat, "unfit", lambda env: None)
    monkeypatch.setattr(chat, "converse", converse)
    assert cli.run(["chat", "--", "agent"]) == 0
    connect: Any = plans[0].connect
    assert isinstance(connect, partial)
    assert "ACP_BRIDGE_KEEP" not in connect.keywords["env"]
    assert connect.keywords["env"]["ACP_BRIDGE_HOME"] == str(tmp_path)
