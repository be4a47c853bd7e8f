"""What is read from a call, in the shapes in which agents describe their input."""

import json
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.features.rules.calls import call_of
from acp_bridge.features.rules.definitions import Tool
from tests.features.rules.judging import judged, of_path

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
        # git names the file of a binary patch, and of a change of rights, there alone
        ({"path": "out/a", "diff": "diff --git a/b b/b\nGIT binary patch\nliteral 1"}, "ask"),
        ({"patch": "diff --git a/b b/b\nold mode 100644\nnew mode 100755"}, "ask"),
        ({"patch": "diff --git a/out/b b/out/b\nindex 1..2\n--- a/out/b\n+++ b/out/b\n"}, "allow"),
        ({"changes": {"out/a": {"type": "update"}}}, "allow"),
        ({"changes": {"out/a": {"type": "update"}, "b": {"type": "delete"}}}, "ask"),
        ({"path": "out/a", "input": {"fileChanges": {"b": {}}}}, "ask"),
    ],
)
def test_each_path_counts_however_deep_it_stands(raw: dict[str, Any], decision: str) -> None:
    assert _decided("edit", **raw) == decision


def test_blanks_around_a_path_hide_it_from_no_refusal() -> None:
    text = 'deny = ["Read(**/.env)"]\nallow = ["Read", "Search"]'
    for path in (".env ", "\t.env", " src/../.env\u00a0"):
        assert judged(text, call_of({"kind": "read", "rawInput": {"path": path}})).action == "deny"
        assert judged(text, call_of({"kind": "read", "locations": [{"path": path}]})).deny
    search = {"kind": "search", "rawInput": {"pattern": "KEY", "glob": ".e\\nv"}}
    assert judged(text, call_of(search)).action == "ask"


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "a/" * 5000])
def test_a_path_that_no_system_can_name_is_allowed_by_no_rule(path: str) -> None:
    assert of_path('allow = ["Read", "Edit"]\ndeny = ["Read(z)"]', Tool.READ, path) == "ask"


MCP = json.loads(Path(__file__).with_name("mcp_calls.json").read_text())


@pytest.mark.parametrize("given", MCP, ids=[each["agent"] for each in MCP])
def test_each_agent_tells_in_its_own_way_which_mcp_tool_a_call_is_of(given: Any) -> None:
    call = call_of(given["call"])
    assert (call.tool, call.names) == (Tool.MCP, (given["name"],))
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
    assert (call.tool, call.names) == (None, ())
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


@pytest.mark.hazard("A1.1")
def test_a_command_that_only_the_title_tells_is_refused_by_a_rule_and_allowed_by_none() -> None:
    def decided(title: str) -> str:
        return judged(RULES, call_of({"kind": "execute", "title": title})).action.value

    assert [decided(each) for each in ("ls -l", "ls; rm -rf x", "List files")] == [
        "ask",
        "deny",
        "ask",
    ]


# --- names that the rules don't know -----------------------------------------------------------

ORDINARY = """
deny = ["Bash(rm *)", "Read(**/.env)", "Read(**/.env.*)", "Edit(secret/**)"]
allow = ["Bash(npm test *)", "Bash(cat *)", "Bash(git status *)", "Bash(ls *)", "Read(src/**)",
    "Search(src/**)", "Edit(src/**)", "mcp__github__get_*"]
"""
RECORDED = json.loads(Path(__file__).with_name("recorded_calls.json").read_text())


def _ordinarily(call: dict[str, Any]) -> str:
    return judged(ORDINARY, call_of(call)).action.value


@pytest.mark.parametrize("given", RECORDED, ids=[each["agent"] for each in RECORDED])
def test_the_ordinary_calls_of_each_agent_are_allowed_by_ordinary_rules(given: Any) -> None:
    assert _ordinarily(given["call"]) == "allow"


@pytest.mark.parametrize("given", RECORDED, ids=[each["agent"] for each in RECORDED])
@pytest.mark.parametrize("name", ["executable", "extraArgs", "run_as", "then"])
def test_a_name_that_no_agent_is_known_to_use_makes_the_same_call_asked(
    given: Any, name: str
) -> None:
    call = {**given["call"], "rawInput": {**given["call"].get("rawInput", {}), name: "/tmp/evil"}}
    assert _ordinarily(call) == "ask"


@pytest.mark.parametrize(
    "raw",
    [
        {"command": "ls", "executable": "/tmp/evil"},
        {"command": "ls", "options": {"shell_path": "/tmp/evil"}},
        {"command": "ls", "description": {"executable": "/tmp/evil"}},
        {"command": "ls", "sandbox": False},
        {"command": "ls", "is_input": True},
        {"command": "ls", "dangerouslyDisableSandbox": True},
        {"command": "ls", "network_approval_context": {"host": "example.org"}},
        {"command": "ls", "path": "src"},
        {"command": "ls -l", "args": ["src"]},
        {"command": "ls", "args": "src"},
        {"command": "ls", "args": ["src"], "arguments": ["x"]},
    ],
)
def test_what_is_not_known_to_be_harmless_beside_a_command_makes_it_asked(
    raw: dict[str, Any],
) -> None:
    assert _ordinarily({"kind": "execute", "rawInput": raw}) == "ask"
    beside = {"kind": "execute", "rawInput": {"command": "ls"}, "executable": "/tmp/evil"}
    assert _ordinarily(beside) == "ask"
    changes = {"content": [{"type": "diff", "path": "/project/src/a", "newText": "x"}]}
    assert _ordinarily({"kind": "execute", "rawInput": {"command": "ls"}, **changes}) == "ask"


@pytest.mark.parametrize(
    ("raw", "decision"),
    [
        ({"command": "git", "args": ["status"]}, "allow"),
        ({"cmd": "git", "arguments": ["status", "-s"], "timeout": 5}, "allow"),
        ({"command": "git", "args": ["push"]}, "ask"),
        ({"command": "rm", "args": ["x"]}, "deny"),
        ({"command": "ls", "args": ["a; rm x"]}, "deny"),
        ({"command": "ls", "args": ["$(x)"]}, "ask"),
        ({"command": "./a b", "args": ["status"]}, "ask"),
        ({"command": ["bash", "-lc", "git status"]}, "allow"),
    ],
)
def test_a_program_and_the_words_beside_it_are_one_line(raw: dict[str, Any], decision: str) -> None:
    assert _ordinarily({"kind": "execute", "rawInput": raw}) == decision


@pytest.mark.parametrize(
    ("kind", "raw", "decision"),
    [
        ("move", {"source_path": "src/a", "destination_path": "../x"}, "ask"),
        ("move", {"source_path": "src/a", "destination_path": "src/b"}, "allow"),
        ("move", {"source_path": "src/a", "destination_path": "secret/b"}, "deny"),
        ("edit", {"path": "src/a", "patchText": "*** Add File: .git/hooks/x\n+a\n"}, "ask"),
        ("edit", {"path": "src/a", "x": "diff --git a/src/a b/x\nrename to secret/x\n"}, "deny"),
        ("edit", {"path": "src/a", "x": "Index: x\n@@ -0,0 +1 @@\n+a\n"}, "ask"),
        ("edit", {"path": "src/a", "x": "*** src/a\n--- secret/x\n****\n"}, "deny"),
        ("edit", {"path": "src/a", "x": '--- src/a\n+++ "b/src/\\056env"\n'}, "ask"),
        ("edit", {"path": "src/a", "x": "several\nlines"}, "ask"),
        ("edit", {"path": "src/a", "writes": {"secret/x": "text"}}, "deny"),
        ("edit", {"path": "src/a", "writes": {"../x": "text"}}, "ask"),
        ("read", {"pathname": ".env"}, "deny"),
        ("read", {"pathname": "x"}, "ask"),
        ("read", {"content": ".env"}, "deny"),
        ("read", ".env", "deny"),
        ("read", [".env"], "deny"),
        ("read", "src/a", "allow"),
        ("read", {"path": "src/a", "files": "../*"}, "ask"),
        ("edit", {"path": "src/[id].tsx", "content": "x"}, "allow"),
        ("edit", {"path": "src/a", "glob": "se*/b"}, "ask"),
        ("search", {"pattern": "KEY", "path": "src", "glob": ".env"}, "deny"),
        ("search", {"pattern": "KEY", "path": "src", "glob": ".e*"}, "ask"),
        ("search", {"pattern": "KEY", "path": "src", "glob": "{*.py,.e*}"}, "ask"),
        ("search", {"pattern": "KEY", "path": "src", "glob": "*"}, "ask"),
        ("search", {"pattern": "KEY", "path": "src", "glob": "!.env"}, "allow"),
        ("search", {"pattern": "KEY", "path": "src", "exclude": ["**/.env"]}, "allow"),
        ("search", {"pattern": "KEY", "path": "src", "glob": "../*.py"}, "ask"),
        ("search", {"pattern": "../**/*.py", "path": "src"}, "ask"),
        ("search", {"pattern": "/etc/*"}, "ask"),
        ("search", {"pattern": "*.py"}, "ask"),
        ("search", {"pattern": "src/*.py"}, "allow"),
    ],
)
def test_each_text_that_may_name_a_file_counts_wherever_it_stands(
    kind: str, raw: Any, decision: str
) -> None:
    assert _ordinarily({"kind": kind, "rawInput": raw}) == decision
    beside = {"kind": "edit", "locations": [{"path": "src/a"}], "writesTo": "../x"}
    assert _ordinarily(beside) == "ask"


def test_texts_of_calls_that_are_about_no_files_are_refused_only_where_they_look_like_paths() -> (
    None
):
    assert _ordinarily({"kind": "other", "rawInput": {"query": "secret"}}) == "ask"
    assert _ordinarily({"kind": "other", "rawInput": {"at": "secret/x"}}) == "deny"
    fetch = {"kind": "fetch", "rawInput": {"url": "https://example.org", "prompt": "a\nb"}}
    assert judged('allow = ["WebFetch"]', call_of(fetch)).action == "allow"


@pytest.mark.parametrize(
    ("name", "told", "decision"),
    [
        ("mcp__github__get_issue", "mcp__github__get_issue", "allow"),
        ("get_issue", "mcp__github__get_issue", "allow"),
        ("mcp.github.get_issue", "mcp__github__get_issue", "allow"),
        ("mcp__github__get_issue", "mcp__github__get_user", "ask"),
        ("mcp__github__get_issue", "mcp__github__drop", "deny"),
        ("mcp__github__drop", "mcp__github__get_issue", "deny"),
        ("mcp__github__get_issue", "Bash", "ask"),
        ("Bash", "mcp__github__get_issue", "ask"),
    ],
)
def test_an_mcp_tool_that_has_two_names_is_allowed_by_neither(
    name: str, told: str, decision: str
) -> None:
    text = 'allow = ["mcp__github__get_*", "Bash", "Read"]\ndeny = ["mcp__*__drop"]'
    meta = {"claudeCode": {"toolName": told}}
    call = {"kind": "other", "name": name, "_meta": meta, "rawInput": {"n": 1}}
    assert judged(text, call_of(call)).action == decision


def test_what_stands_beside_the_input_hides_nothing_of_it() -> None:
    for beside in ({"command": "rm x"}, {"input": {"command": "rm x"}}):
        call = {"kind": "execute", **beside, "rawInput": {"command": "ls"}}
        assert _ordinarily(call) == "deny"
    assert _ordinarily({"rawInput": {"command": "ls"}}) == "ask"
    deep: dict[str, Any] = {"path": "../x"}
    for _ in range(30):
        deep = {"type": [deep]}
    assert _ordinarily({"kind": "read", "rawInput": {"path": "src/a", **deep}}) == "ask"
    assert _ordinarily({"kind": "execute", "rawInput": {"command": "ls", **deep}}) == "ask"
    listed = {"edits": [{"secret/x": {"new_text": "a"}}]}
    assert _ordinarily({"kind": "edit", "rawInput": {"path": "src/a", **listed}}) == "deny"
    nested = {"paths": [["src/a"], ["secret/x"]]}
    assert _ordinarily({"kind": "edit", "rawInput": nested}) == "deny"


@pytest.mark.parametrize(
    ("kind", "raw", "decision"),
    [
        # a change's texts are none of a move
        ("move", {"path": "src/a", "new": "../x"}, "ask"),
        ("delete", {"path": "src/a", "content": "secret/x"}, "deny"),
        # a name with brackets is a name
        ("move", {"source": "src/a", "destination": "secret/[x]"}, "deny"),
        ("move", {"source": "src/a", "include": "secret/x"}, "deny"),
        ("edit", {"path": "src/(group)/[id].tsx", "content": "x"}, "allow"),
        # only a folder that is searched is one below which patterns stand
        ("search", {"note": "src/x", "glob": "lib/*.py"}, "ask"),
        ("search", {"pattern": "../secret dir/*", "path": "src"}, "ask"),
        ("search", {"pattern": "/etc/(a|b)", "path": "src"}, "ask"),
        ("search", {"pattern": "def main", "path": "src"}, "allow"),
        ("search", {"pattern": "KEY", "path": "src", "glob": "@(.env|a)"}, "ask"),
        ("search", {"pattern": "KEY", "path": "src", "glob": [["*.py"], [".env"]]}, "deny"),
        ("search", {"pattern": "TODO: a/b c", "path": "src"}, "allow"),
    ],
)
def test_names_say_what_a_text_is_only_where_no_other_reading_is_left(
    kind: str, raw: dict[str, Any], decision: str
) -> None:
    assert _ordinarily({"kind": kind, "rawInput": raw}) == decision


def test_an_edit_that_names_no_file_is_allowed_by_no_rule() -> None:
    raws: list[dict[str, Any]] = [{}, {"content": "x"}]
    for raw in raws:
        assert (
            judged('allow = ["Edit"]', call_of({"kind": "edit", "rawInput": raw})).action == "ask"
        )
    assert judged('allow = ["Read"]', call_of({"kind": "read", "rawInput": {}})).action == "allow"
