"""`acp-bridge permissions check`: how the rules decide, for people and scripts."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_bridge.features.hooks.trust import Record, digest, read_record
from acp_bridge.features.rules.places import OWN_FILE, USED
from acp_bridge.terminal import cli
from tests.features.hooks.test_trust_command import in_an_agent, on_a_terminal

pytestmark = pytest.mark.process

Check = Callable[..., tuple[int, str, str]]
RULES = """\
deny = ["Bash(rm *)", "Edit(secret/**)"]
allow = ["Bash(git status)"]
[[only]]
agent = "codex-acp"
allow = ["Bash(make *)"]
"""


@pytest.fixture
def check(capfd: pytest.CaptureFixture[str]) -> Check:
    """Runs the command in this process; returns the exit code, stdout and stderr."""

    def run(home: Path, *words: str) -> tuple[int, str, str]:
        code = cli.run(["permissions", *words, "--home", str(home)])
        return code, *capfd.readouterr()

    return run


def test_the_first_word_is_the_decision_and_the_rule_is_named_with_its_line(
    tmp_path: Path, check: Check
) -> None:
    (tmp_path / "permissions.toml").write_text(RULES)
    for words, said in (
        (["git status"], "allow: allow Bash(git status) (permissions.toml, line 2)"),
        (["git status && rm x"], "deny: deny Bash(rm *) (permissions.toml, line 1)"),
        (["make"], "ask: no rule allows make"),
        (["make", "--agent", "codex-acp"], "allow: allow Bash(make *) (permissions.toml, line 5)"),
        (["--edit", "secret/x"], "deny: deny Edit(secret/**) (permissions.toml, line 1)"),
        (["--read", "x"], "ask: no rule allows x"),
        (["--edit", str(tmp_path / "keys.env")], f"ask: it may write to {tmp_path / 'keys.env'}"),
    ):
        assert check(tmp_path, "check", *words) == (0, f"{said}\n", "")


def test_what_is_wrong_is_said_with_its_line_and_an_exit_code(tmp_path: Path, check: Check) -> None:
    code, out, err = check(tmp_path, "check", "ls")
    assert (code, out) == (1, "")
    assert f"there is no {tmp_path / 'permissions.toml'}" in err
    (tmp_path / "permissions.toml").write_text('allow = [\n"Bsah(ls)"]')
    code, _, err = check(tmp_path, "check", "ls")
    assert code == 1
    assert "line 2: 'Bsah(ls)' names no tool" in err
    (tmp_path / "permissions.toml").write_text(
        'allow = ["Bash(ls *)"]\n[[check]]\nbash = "ls -l"\ndecision = "deny"'
    )
    code, _, err = check(tmp_path, "check", "ls")
    assert (code, "line 3: 'ls -l' is decided allow, not deny" in err) == (1, True)
    for words in ([], ["check"], ["check", "ls", "--edit", "x"], ["nothing", "ls"]):
        assert check(tmp_path, *words)[0] == 2


# --- use ---------------------------------------------------------------------------------------

COMMAND = (sys.executable, "-m", "acp_bridge", "permissions")


def used(home: Path) -> bool:
    return (home / USED).exists() and bool(list((home / USED).iterdir()))


def test_use_shows_what_the_file_allows_and_lets_it_count_after_a_yes(tmp_path: Path) -> None:
    file = tmp_path / "home/permissions.toml"
    file.parent.mkdir()
    file.write_text(RULES)
    code, shown = on_a_terminal(tmp_path, "use", types="yes\n", command=COMMAND)
    assert code == 0
    for text in (str(file), "allow Bash(git status)", "allow Bash(make *) (codex-acp)", "[yes/no]"):
        assert text in shown
    (record,) = (tmp_path / "home" / USED).iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert read_record(record) == Record(str(file), {OWN_FILE: digest(RULES.encode())})


@pytest.mark.parametrize("types", ["y\n", "\x04"])
def test_use_takes_anything_but_yes_for_a_no(tmp_path: Path, types: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/permissions.toml").write_text(RULES)
    code, shown = on_a_terminal(tmp_path, "use", types=types, command=COMMAND)
    assert (code, "only the whole word yes" in shown) == (1, True)
    assert not used(tmp_path / "home")


@pytest.mark.hazard("A3.3")
def test_use_asks_nobody_where_no_person_is(tmp_path: Path, check: Check) -> None:
    (tmp_path / "permissions.toml").write_text(RULES)
    code, _, err = check(tmp_path, "use")
    assert (code, "only a person at a terminal" in err) == (2, True)
    assert not used(tmp_path)


@pytest.mark.hazard("A3.3")
def test_an_agent_that_makes_itself_a_terminal_lets_no_rules_count(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/permissions.toml").write_text(RULES)
    below = in_an_agent(*COMMAND)
    code, shown = on_a_terminal(tmp_path, "use", types="yes\n", command=below)
    assert (code, "an agent can't change which rules count" in shown) == (1, True)
    assert not used(tmp_path / "home")


def test_use_says_what_hinders_it(tmp_path: Path, check: Check) -> None:
    code, shown = on_a_terminal(tmp_path, "use", types="yes\n", command=COMMAND)
    assert (code, "there is no" in shown) == (1, True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/permissions.toml").write_text("allow = 5")
    code, shown = on_a_terminal(tmp_path, "use", types="yes\n", command=COMMAND)
    assert (code, "allow is a list of texts" in shown) == (1, True)
    assert check(tmp_path, "use", "ls")[0] == 2


def test_each_example_that_is_decided_otherwise_is_named(tmp_path: Path, check: Check) -> None:
    (tmp_path / "permissions.toml").write_text(
        'allow = ["Bash(ls *)"]\n'
        '[[check]]\nbash = "ls -l"\ndecision = "deny"\n'
        '[[check]]\nbash = "ls"\ndecision = "allow"\n'
        '[[check]]\nbash = "cat"\ndecision = "allow"\n'
    )
    code, _, err = check(tmp_path, "check", "ls")
    assert code == 1
    assert "line 3: 'ls -l' is decided allow, not deny" in err
    assert "line 9: 'cat' is decided ask, not allow" in err
    assert "line 6" not in err
