"""What is read from a call, in the shapes in which agents describe their input."""

from typing import Any

import pytest

from acp_bridge.policy.calls import call_of
from acp_bridge.policy.definitions import Tool
from tests.policy.judging import judged, of_path

pytestmark = pytest.mark.hazard("A1")

RULES = """
deny = ["Bash(rm -rf *)"]
allow = ["Bash(python *)", "Bash(ls *)", "Bash(echo *)", "Edit(out/**)", "Read(out/**)"]
"""


def _decided(kind: str, **raw: Any) -> str:
    return judged(RULES, call_of({"kind": kind, "rawInput": raw})).action.value


@pytest.mark.parametrize(
    ("raw", "decision"),
    [
        ({"command": "ls -l"}, "allow"),
        ({"command": ["ls", "-l"]}, "allow"),
        ({"command": "ls", "args": []}, "allow"),
        ({"command": "python", "args": ["-c", "x"]}, "ask"),
        ({"command": "rm", "args": ["-rf", "x"]}, "deny"),
        ({"params": {"command": "ls", "env": {"PATH": "/evil"}}}, "ask"),
        ({"params": {"command": "echo a > out/f", "cwd": "/elsewhere"}}, "ask"),
        ({"command": "echo a > out/f", "cwd": "/project", "workdir": "/elsewhere"}, "ask"),
        ({"commands": ["ls", "rm"]}, "ask"),
        ({"command": "ls", "then": {"command": "rm x"}}, "ask"),
    ],
)
def test_all_that_stands_beside_a_command_counts(raw: dict[str, Any], decision: str) -> None:
    assert _decided("execute", **raw) == decision


@pytest.mark.parametrize(
    ("raw", "decision"),
    [
        ({"path": "out/a"}, "allow"),
        ({"path": "out/a", "edits": [{"path": "b"}]}, "ask"),
        ({"paths": ["out/a", "b"]}, "ask"),
        ({"paths": ["out/a", "out/b"]}, "allow"),
    ],
)
def test_each_path_counts_however_deep_it_stands(raw: dict[str, Any], decision: str) -> None:
    assert _decided("edit", **raw) == decision


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "a/" * 5000])
def test_a_path_that_no_system_can_name_is_allowed_by_no_rule(path: str) -> None:
    assert of_path('allow = ["Read", "Edit"]\ndeny = ["Read(z)"]', Tool.READ, path) == "ask"
