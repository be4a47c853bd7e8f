"""`--login-shell-path`: the agent gets the PATH of the user's login shell."""

import os
from pathlib import Path

import pytest

from acp_bridge.terminal.cli.stdio import take_path


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("echo welcome; echo PATH=/from/the/shell", "/from/the/shell"),
        ("echo welcome", "/before"),
        ("exit 1", "/before"),
    ],
)
@pytest.mark.process
def test_the_path_of_the_login_shell_is_taken_if_it_tells_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, path: str
) -> None:
    shell = tmp_path / "shell"
    shell.write_text(f'#!/bin/sh\n[ "$*" = "-l -i -c env" ] || exit 2\n{said}\n')
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))
    monkeypatch.setenv("PATH", "/before")
    take_path()
    assert os.environ["PATH"] == path


def test_a_login_shell_that_is_not_there_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/gone/shell")
    before = os.environ["PATH"]
    take_path()
    assert os.environ["PATH"] == before
