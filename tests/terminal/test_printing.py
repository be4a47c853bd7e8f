"""What a command prints that ends at once, and what it says where nothing can be printed."""

import os
import sys
from pathlib import Path

import pytest

from acp_bridge.terminal.printing import print_text


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
