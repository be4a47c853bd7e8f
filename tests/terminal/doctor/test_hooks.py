"""The hooks that a session would have are read as it reads them."""

from pathlib import Path

import pytest

from acp_bridge.terminal.doctor import hooks
from tests.terminal.doctor.subjects import levels, subject, texts


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".acp_bridge").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


async def test_where_no_hooks_are_that_is_well(home: Path) -> None:
    found = await hooks.check(subject(home))
    assert (levels(found), "none" in texts(found)) == (["ok"], True)


async def test_hooks_are_counted_and_a_program_that_is_missing_is_named(home: Path) -> None:
    (home / "hooks.toml").write_text(
        '[[Stop]]\ncommand = "anything for a shell"\n'
        '[[Stop]]\ncommand = ["notify-nobody", "done"]\n'
        '[[Stop]]\ncommand = ["./of-each-session"]\n'
    )
    found = await hooks.check(subject(home))
    assert levels(found) == ["ok", "warning"]
    assert f"{home / 'hooks.toml'} has 3 hooks" in texts(found)
    assert "the program notify-nobody of a Stop hook is not there" in texts(found)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("[[Stpo]]\ncommand = 'x'\n", 0o600, "line 1: there is no event 'Stpo'"),
        ("[[Stop]]\ncommand = 'x'\n", 0o602, "anybody may write this file"),
    ],
)
async def test_a_file_that_no_session_would_take_is_an_error_with_the_reason(
    home: Path, content: str, mode: int, why: str
) -> None:
    (home / "hooks.toml").write_text(content)
    (home / "hooks.toml").chmod(mode)
    found = await hooks.check(subject(home))
    assert (levels(found), why in texts(found)) == (["error"], True)


async def test_the_hooks_of_the_project_in_this_folder_are_read_too(home: Path) -> None:
    project = home.with_name("project")
    file = project / ".acp_bridge" / "hooks.toml"
    file.write_text("[[Stop]]\ncommand = ['./tool']\n")
    found = await hooks.check(subject(home))
    assert levels(found) == ["ok", "warning"]
    assert "1 hook (acp-bridge trust --list says if they run)" in texts(found)
    (project / "tool").touch(0o755)
    assert levels(await hooks.check(subject(home))) == ["ok"]
    file.write_text("[[")
    assert levels(await hooks.check(subject(home))) == ["error"]
