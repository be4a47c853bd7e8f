"""A refusal names a command, however its options are written."""

import pytest

from tests.features.rules.judging import of_command

pytestmark = pytest.mark.hazard("A1")

RULES = """
deny = [
  "Bash(rm -rf *)", "Bash(python -c *)", "Bash(chmod -R 777 /)", "Bash(git push *)",
  "Bash(git reset --hard *)",
]
allow = ["Bash"]
"""


@pytest.mark.parametrize(
    "command",
    [
        "rm -fr x",
        "rm -r -f x",
        "rm x -rf",
        "rm -Rvf x",
        "rm -r x --force",
        "rm --recursive --force x",
        "python -Bc x",
        "chmod 777 -R /",
        "git reset HEAD --hard",
        "git push origin main --force",
        # options before a subcommand
        "git -C x push",
        "git --no-pager push -f",
        "git -c a=b --git-dir=x --work-tree y push",
        "sudo git -C x push",
        "env -i git -C x push",
        "sh -c 'git -C x push'",
    ],
)
def test_a_refusal_finds_options_in_any_order_and_a_subcommand_behind_them(command: str) -> None:
    assert of_command(RULES, command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "rm -r x",
        "rm -f x",
        "rm -r -- -f",
        "git commit -m push",
        "git log push",
        "git stash push",
        "chmod 777 /",
        "git reset --soft HEAD",
        "git reset -- --hard",
        "chmod -R 755 /",
    ],
)
def test_a_refusal_of_some_options_or_of_a_subcommand_is_of_no_other(command: str) -> None:
    assert of_command(RULES, command) == "allow"


def test_an_allow_takes_options_as_they_are_written() -> None:
    text = 'allow = ["Bash(ls -la *)", "Bash(git status)"]'
    assert of_command(text, "ls -la x") == "allow"
    assert of_command(text, "ls -al x") == "ask"
    assert of_command(text, "git -C x status") == "ask"
