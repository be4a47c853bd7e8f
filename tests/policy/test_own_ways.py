"""Programs with ways of their own to run or write something: their prefix does not allow that."""

import pytest

from tests.policy.judging import of_command

pytestmark = pytest.mark.hazard("A1")

ALLOWS = """allow = ["Bash(git *)", "Bash(sed *)", "Bash(sort *)", "Bash(npm test *)"]"""


@pytest.mark.parametrize(
    "command",
    [
        "sed -n 1,20p x",
        "sed -n '/a/,/^b$/p; 10q' x",
        "sed -E 's#a(b|c)#d#g' x",
        "sed -i.bak -e 's/a\\/b/c/' -e '1d' x",
        "git config --get user.name",
        "git config user.name",
        "git rebase main",
        "git submodule update",
    ],
)
def test_what_only_changes_what_is_printed_is_allowed_by_a_prefix(command: str) -> None:
    assert of_command(ALLOWS, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "sort -o x y",
        "sort --output=x y",
        "sed '1e rm x' y",
        "sed 's/a/rm x/e' y",
        "sed 's/a/b/w x' y",
        "sed -n 'w x' y",
        "sed -ne 'p;1e rm' y",
        "sed --expression='1e rm' y",
        "sed -e p -f x y",
        "git grep -O'rm x' y",
        "git grep --open-files=rm y",
        "git log --output=x",
        "git config alias.x '!rm x'",
        "git config --global core.pager rm",
        "git config set core.pager rm",
        "git -C x bisect run rm x",
        "git submodule foreach rm",
        "git rebase -xrm",
        "git clone 'ext::rm x'",
        "npm test --script-shell=rm",
    ],
)
def test_what_runs_or_writes_something_else_is_allowed_word_for_word_alone(command: str) -> None:
    assert of_command(ALLOWS, command) == "ask"
    quoted = command.replace('"', '\\"')
    assert of_command(f'allow = ["Bash({quoted})"]', command) == "allow"
