"""What a command prints when it ends, also where nobody can take it."""

import io
import os
import sys
from pathlib import Path

import pytest

from acp_bridge.terminal import cli
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.printing import fail, print_text


class _Full(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("arguments", [["--odd"], ["ps", "--odd"], ["run"]])
@pytest.mark.parametrize("closed", [True, False])
def test_wrong_usage_ends_with_2_where_stderr_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], closed: bool
) -> None:
    full = io.TextIOWrapper(_Full(), write_through=True)  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stderr", None if closed else full)
    assert cli.run(arguments) == Exit.USAGE


def test_without_a_command_the_program_alone_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    fail("", "there is no stdout")
    fail("ps", "x\x1by")
    assert capsys.readouterr().err == "acp-bridge: there is no stdout\nacp-bridge ps: x\\x1by\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor", "--help"]])
def test_help_that_nobody_can_read_is_not_done(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.run(arguments) == Exit.FAILED


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_disk_that_is_full_is_said_once_and_what_is_left_does_not_matter_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept, full = os.dup(1), os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, 1)
        with open(1, "w", closefd=False) as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            code = print_text("text\n")
            stdout.flush()  # as Python does at its end
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(full)
    assert code == 1
    said = capfd.readouterr().err
    assert said == "acp-bridge: stdout can't be written: No space left on device\n"


def test_a_command_without_a_stdout_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert print_text("text") == 1
    assert capsys.readouterr().err == "acp-bridge: there is no stdout\n"
