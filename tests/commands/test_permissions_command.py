"""`acp-bridge permissions check`: how the rules decide, for people and scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

RULES = """\
deny = ["Bash(rm *)", "Edit(secret/**)"]
allow = ["Bash(git status)"]
[[only]]
agent = "codex-acp"
allow = ["Bash(make *)"]
"""


def check(home: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "acp_bridge", "permissions", *words, "--home", str(home)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_first_word_is_the_decision_and_the_rule_is_named_with_its_line(
    tmp_path: Path,
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


def test_what_is_wrong_is_said_with_its_line_and_an_exit_code(tmp_path: Path) -> None:
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
