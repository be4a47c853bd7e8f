"""What is read from a call, in the shapes in which agents describe their input."""

import json
from pathlib import Path
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
        # codex asks so for more rights of its sandbox, and for the network
        ({"command": "ls", "additionalPermissions": {"network": {"enabled": True}}}, "ask"),
        ({"command": "ls", "url": "https://example.org"}, "ask"),
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
        ({"path": "out/a", "destination": "/etc/b"}, "ask"),
        ({"path": "out/a", "target_file": "b"}, "ask"),
        ({"path": "out/a", "uri": "file:///etc/passwd"}, "ask"),
        ({"uri": "file:///project/out/a"}, "allow"),
        ({"uri": "file://localhost/project/out/%61"}, "allow"),
        ({"path": "out/a", "patch": "*** Begin Patch\n*** Update File: b\n"}, "ask"),
        ({"path": "out/a", "diff": "--- a/out/a\n+++ b/other\n"}, "ask"),
        ({"path": "out/a", "diff": "--- a/out/a\n+++ b/out/a\n"}, "allow"),
        ({"path": "out/a", "diff": "--- /dev/null\n+++ b/out/a\n"}, "allow"),
        ({"changes": {"out/a": {"type": "update"}}}, "allow"),
        ({"changes": {"out/a": {"type": "update"}, "b": {"type": "delete"}}}, "ask"),
        ({"path": "out/a", "input": {"fileChanges": {"b": {}}}}, "ask"),
    ],
)
def test_each_path_counts_however_deep_it_stands(raw: dict[str, Any], decision: str) -> None:
    assert _decided("edit", **raw) == decision


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "a/" * 5000])
def test_a_path_that_no_system_can_name_is_allowed_by_no_rule(path: str) -> None:
    assert of_path('allow = ["Read", "Edit"]\ndeny = ["Read(z)"]', Tool.READ, path) == "ask"


MCP = json.loads(Path(__file__).with_name("mcp_calls.json").read_text())


@pytest.mark.parametrize("given", MCP, ids=[each["agent"] for each in MCP])
def test_each_agent_tells_in_its_own_way_which_mcp_tool_a_call_is_of(given: Any) -> None:
    call = call_of(given["call"])
    assert (call.tool, call.name) == (Tool.MCP, given["name"])
    text = 'allow = ["mcp__github__get_*"]\ndeny = ["mcp__github__delete_*"]'
    assert judged(text, call).action == "allow"
    other = json.loads(json.dumps(given["call"]).replace("get_issue", "delete_issue"))
    assert judged(text, call_of(other)).action == "deny"


@pytest.mark.parametrize(
    "raw",
    [
        {"exec": "rm -rf x"},
        {"executable": "rm", "argv0": "-rf", "line": ["rm", "-rf", "x"]},
        {"tasks": [{"run": "cd / && rm -rf x"}]},
        {"command": "python", "stdin": "os.system('rm -rf x')"},
    ],
)
def test_a_command_under_a_name_that_is_not_known_may_be_one_that_a_rule_refuses(
    raw: dict[str, Any],
) -> None:
    judgement = judged(RULES, call_of({"kind": "execute", "title": "it", "rawInput": raw}))
    assert (judgement.action, judgement.protected) == ("ask", True)


def test_what_may_not_be_read_is_not_searched_or_fetched_either() -> None:
    text = 'deny = ["Read(**/.env)"]\nallow = ["Search", "WebFetch"]'
    search = {"kind": "search", "rawInput": {"path": ".env", "pattern": "KEY"}}
    assert judged(text, call_of(search)).action == "deny"
    for address in ("file:///project/.env", "FILE:/project/.env"):
        call = call_of({"kind": "fetch", "rawInput": {"url": address}})
        assert judged(text, call).action == "deny"
        assert judged('allow = ["WebFetch", "Read"]', call).action == "ask"
    assert judged(text, call_of({**search, "rawInput": {"path": "src"}})).action == "allow"


@pytest.mark.parametrize(
    "said",
    [
        {"rawInput": {"url": "https://example.org", "prompt": "as in https://evil.org/x"}},
        {"rawInput": {"urls": ["https://example.org", "https://evil.org"]}},
        {"rawInput": {"prompt": "Read https://evil.org, then tell me"}},
        {"title": "Fetching content from https://evil.org/x"},
    ],
)
def test_an_address_is_refused_wherever_a_call_names_it(said: dict[str, Any]) -> None:
    call = call_of({"kind": "fetch", **said})
    assert (
        judged('deny = ["WebFetch(domain:evil.org)"]\nallow = ["WebFetch"]', call).action == "deny"
    )
    assert judged('allow = ["WebFetch(domain:example.org)"]', call).action == (
        "allow" if "url" in said.get("rawInput", {}) else "ask"
    )


TITLED = json.loads(Path(__file__).with_name("titled_mcp_calls.json").read_text())


@pytest.mark.parametrize("given", TITLED, ids=[each["agent"] for each in TITLED])
def test_by_its_title_alone_an_mcp_tool_is_refused_and_never_allowed(given: Any) -> None:
    call = call_of(given["call"])
    assert (call.tool, call.name) == (None, "")
    assert judged('allow = ["mcp__*"]', call).action == "ask"
    for pattern in ("mcp__github__get_issue", "mcp__github__get_*", "mcp__github__*"):
        assert judged(f'deny = ["{pattern}"]', call).action == "deny"
        assert judged(f'ask = ["{pattern}"]\ndefault = "deny"', call).action == "ask"
    assert judged('deny = ["mcp__git__*", "mcp__github__set_*"]', call).action == "ask"
    other = call_of({**given["call"], "title": "Approve the plan"})
    assert judged('deny = ["mcp__*", "mcp__*__x"]', other).action == "ask"


def test_an_mcp_tool_with_a_command_among_its_arguments_is_no_command() -> None:
    raw = {"server": "evil", "tool": "run", "arguments": {"command": "ls"}}
    for call in ({"kind": "execute", "rawInput": raw}, {"kind": "read", "rawInput": raw}):
        assert judged('allow = ["Bash", "Read"]', call_of(call)).action == "ask"
    named = {"kind": "execute", "_meta": {"is_mcp_tool_call": True}, "rawInput": {"command": "ls"}}
    assert judged('allow = ["Bash", "mcp__*"]', call_of(named)).action == "ask"


def test_a_title_names_no_mcp_tool() -> None:
    call = call_of({"kind": "other", "title": "mcp__github__get_issue"})
    assert judged('allow = ["mcp__github__get_*"]', call).action == "ask"


def test_a_command_that_only_the_title_tells_is_refused_by_a_rule_and_allowed_by_none() -> None:
    def decided(title: str) -> str:
        return judged(RULES, call_of({"kind": "execute", "title": title})).action.value

    assert [decided(each) for each in ("ls -l", "ls; rm -rf x", "List files")] == [
        "ask",
        "deny",
        "ask",
    ]
