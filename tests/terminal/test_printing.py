"""What a command prints when it ends, also where nobody can take it."""

import io
import sys

import pytest

from acp_bridge import cli
from acp_bridge.terminal.exits import Exit
from acp_bridge.terminal.printing import fail


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


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_that_nobody_can_read_is_not_done(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.run(arguments) == Exit.FAILED
