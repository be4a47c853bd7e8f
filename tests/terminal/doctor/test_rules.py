"""The rules that a session would have are read as it reads them."""

from pathlib import Path

import pytest

from acp_bridge.core.records import replace
from acp_bridge.terminal.doctor import rules
from tests.terminal.doctor.subjects import levels, subject, texts


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".acp_bridge").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


async def test_where_no_rules_are_that_is_well_unless_the_user_has_named_a_file(
    home: Path,
) -> None:
    found = await rules.check(subject(home))
    assert (levels(found), "none" in texts(found)) == (["ok"], True)
    at = subject(home)
    named = replace(at, settings=replace(at.settings, rules=home / "other.toml"))
    found = await rules.check(named)
    assert (levels(found), "there is no" in texts(found)) == (["error"], True)


async def test_a_file_with_a_mistake_is_an_error_with_its_line(home: Path) -> None:
    (home / "permissions.toml").write_text('allow = ["Raed"]')
    found = await rules.check(subject(home))
    assert (levels(found), "line 1: 'Raed' names no tool" in texts(found)) == (["error"], True)


@pytest.mark.hazard("A2")
async def test_allow_rules_of_a_project_that_do_not_count_are_a_warning(home: Path) -> None:
    (home / "permissions.toml").write_text('deny = ["Bash(rm *)"]')
    project = home.with_name("project") / ".acp_bridge" / "permissions.toml"
    project.write_text('deny = ["Bash(mv *)"]\nallow = ["Bash(make *)"]')
    found = await rules.check(subject(home))
    assert levels(found) == ["ok", "ok", "warning"]
    assert "its allow rules don't count" in texts(found)


async def test_each_example_that_comes_out_otherwise_is_an_error_of_its_own(home: Path) -> None:
    (home / "permissions.toml").write_text(
        'allow = ["Bash(ls *)"]\n'
        '[[check]]\nbash = "cat"\ndecision = "allow"\n'
        '[[check]]\nedit = "x"\ndecision = "deny"\n'
    )
    found = await rules.check(subject(home))
    assert levels(found) == ["error", "error"]
    assert "line 3: 'cat' is decided ask, not allow" in texts(found)
    assert "line 6: 'x' is decided ask, not deny" in texts(found)


async def test_a_file_in_a_folder_into_which_nobody_may_look_is_an_error(home: Path) -> None:
    (home / "loop").symlink_to("loop")
    at = subject(home)
    named = replace(at, settings=replace(at.settings, rules=home / "loop/permissions.toml"))
    found = await rules.check(named)
    assert (levels(found), "can't be read" in texts(found)) == (["error"], True)
