"""Why a program can't be executed is seen at its file; tests/whole has it told to people."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from acp_bridge.core.agents.program_file import fault_of


def script(folder: Path, mode: int = 0o755) -> Path:
    path = folder / "agent"
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_folder_in_the_path_is_no_program_and_hides_none_behind_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "agent").mkdir(parents=True)
    second.mkdir()
    fault = fault_of("agent", str(first))
    assert fault is not None
    assert fault.what == "agent is not found in the PATH"
    script(second)
    assert fault_of("agent", f"{first}:{second}") is None


def test_a_program_in_the_path_that_is_not_executable_is_named_without_its_path(
    tmp_path: Path,
) -> None:
    script(tmp_path, 0o644)
    fault = fault_of("agent", str(tmp_path))
    assert fault == ("agent is not executable", "run: chmod +x its file")


def test_a_disk_that_runs_no_programs_comes_before_rights_that_look_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path)
    flag = SimpleNamespace(f_flag=getattr(os, "ST_NOEXEC", 0))
    monkeypatch.setattr(os, "statvfs", lambda file: flag)
    monkeypatch.setattr(os, "access", lambda file, mode: False)
    fault = fault_of(str(path), "")
    assert fault is not None
    assert "runs no programs (noexec)" in fault.what


def test_an_empty_name_is_told_as_such() -> None:
    fault = fault_of("", "/usr/bin")
    assert fault is not None
    assert fault.what == "the name of the program is empty"
