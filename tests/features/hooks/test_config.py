"""What `hooks.toml` may say, and how a file that is not right is refused."""

import re

import pytest

from acp_bridge.features.hooks.config import BadHooks, parse
from acp_bridge.features.hooks.definitions import Hook, HookEvent

GOOD = """
[[Stop]]
command = "make lint"

[[PermissionRequest]]
matcher = "edit|Write"
command = ["python", "-m", "checks"]
timeout = 5

[[Stop]]
command = "make test"
"""


def test_the_hooks_stand_in_the_order_of_the_file_with_their_limits() -> None:
    assert parse(GOOD, project=True) == (
        Hook(HookEvent.TURN_END, "make lint", project=True),
        Hook(HookEvent.PERMISSION, ("python", "-m", "checks"), "edit|Write", 5.0, True),
        Hook(HookEvent.TURN_END, "make test", project=True),
    )


def test_a_text_is_for_the_shell_and_a_list_is_a_command() -> None:
    one, two, _ = parse(GOOD, project=False)
    assert one.words == ("/bin/sh", "-c", "make lint")
    assert two.words == ("python", "-m", "checks")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("\n[[Stop]]\ncommand = \n", 3, "value"),
        ("[[Stop]]\ncommand = 'x'\n[[Stopp]]\n", 3, "Stopp"),
        ("\n[Stop]\ncommand = 'x'\n", 2, "two brackets"),
        ("[[Stop]]\ncommand = 'x'\n\n[[Stop]]\ncomand = 'y'\n", 4, "comand"),
        ("[[Stop]]\ncommand = 5\n", 1, "command"),
        ("[[Stop]]\ncommand = ' '\n", 1, "empty"),
        ("[[Stop]]\ncommand = []\n", 1, "command"),
        ("[[Stop]]\ncommand = ['a', 5]\n", 1, "command"),
        ("[[Stop]]\ncommand = 'x'\nmatcher = 'edit'\n", 1, "matcher"),
        ("[[PermissionRequest]]\ncommand = 'x'\nmatcher = '['\n", 1, "regular expression"),
        ("[[PermissionRequest]]\ncommand = 'x'\nmatcher = 5\n", 1, "matcher"),
        ("[[Stop]]\ncommand = 'x'\ntimeout = 0\n", 1, "timeout"),
        ("[[Stop]]\ncommand = 'x'\ntimeout = 601\n", 1, "timeout"),
        ("[[Stop]]\ncommand = 'x'\ntimeout = true\n", 1, "timeout"),
        ("Stop = ['x']\n", 1, "table"),
        ("Stop = 'x'\n", 1, "brackets"),
        ("# a comment\nversion = 1\n", 2, "version"),
    ],
)
def test_a_file_that_is_not_wholly_right_is_refused_with_the_line_and_the_reason(
    text: str, line: int, why: str
) -> None:
    with pytest.raises(BadHooks) as caught:
        parse(text, project=False)
    assert re.match(rf"line {line}(?:, column \d+)?: ", str(caught.value))
    assert why in str(caught.value)


def test_a_file_without_hooks_is_right() -> None:
    assert parse("# none yet\n", project=False) == ()


@pytest.mark.parametrize(
    ("matcher", "names", "matches"),
    [
        ("", ("Write", "edit"), True),
        ("*", ("Write", "edit"), True),
        ("edit", ("Write", "edit"), True),
        ("Write|Bash", ("Write", "edit"), True),
        ("Wri", ("Write", "edit"), False),
        ("Write.*", ("Write2", ""), True),
        ("execute", ("", ""), True),
        ("execute", ("edit", "edit"), False),
    ],
)
def test_a_matcher_is_for_the_whole_name_and_what_nobody_names_is_for_all(
    matcher: str, names: tuple[str, ...], matches: bool
) -> None:
    assert Hook(HookEvent.PERMISSION, "x", matcher).matches(names) is matches
