"""`permissions.toml`: what it may say, and the line of each mistake."""

from pathlib import Path

import pytest

from acp_bridge.features.rules import config
from acp_bridge.features.rules.config import BadRules
from acp_bridge.features.rules.decide import example
from acp_bridge.features.rules.definitions import Tool
from tests.features.rules.judging import judged, of_command, of_path, place


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("allow = [", "line 1, column 10: "),
        ('alow = ["Read"]', "line 1: there is no key 'alow' in the file"),
        ('\nallow = "Read"', "line 2: allow is a list of texts"),
        ("allow = [1]", "line 1: allow is a list of texts"),
        ('allow = [\n  "Read",\n  "Raed"]', "line 3: 'Raed' names no tool"),
        ('allow = ["Read()"]', "line 1: 'Read()' has nothing in its brackets"),
        ('allow = ["Read(a"]', "line 1: 'Read(a' names no tool"),
        ('allow = ["Bash(echo \'a)"]', "line 1: "),
        ('allow = ["WebFetch(example.org)"]', "line 1: "),
        ('default = "allow"', 'line 1: default is "ask" or "deny"'),
        ('unattended = "ask"', 'line 1: unattended is "wait" or "deny"'),
        ('[only]\nagent = "x"', "line 1: write [[only]], with two brackets"),
        ('[[only]]\nallow = ["Read"]', "line 1: [[only]] names an agent or a folder"),
        ("[[only]]\nagent = 1", "line 2: agent is a text"),
        ('[[only]]\nagents = "x"', "line 2: there is no key 'agents' in [[only]]"),
        ('[[check]]\ndecision = "ask"', "line 1: a check has one of bash, edit and read"),
        ('[[check]]\nbash = "ls"\ndecision = "no"', "line 2: the decision of a check is"),
    ],
)
def test_a_mistake_refuses_the_whole_file_and_is_named_with_its_line(text: str, why: str) -> None:
    with pytest.raises(BadRules) as caught:
        config.parse(text, "permissions.toml")
    assert why in str(caught.value)


@pytest.mark.hazard("A1.1")
@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("Read", "/anywhere", True),
        ("Read(a)", "a", True),
        ("Read(./a)", "/project/a", True),
        ("Read(a)", "a/b", False),
        ("Read(a)", "/a", False),
        ("Read(a/**)", "a", True),
        ("Read(a/**)", "a/b/c", True),
        ("Read(a/**)", "ab", False),
        ("Read(a/*)", "a/b", True),
        ("Read(a/*)", "a/b/c", False),
        ("Read(*.py)", "x.py", True),
        ("Read(*.py)", "a/x.py", False),
        ("Read(**/*.py)", "a/x.py", True),
        ("Read(**/*.py)", "/other/x.py", True),
        ("Read(src/**/x.py)", "src/x.py", True),
        ("Read(src/**/x.py)", "src/a/b/x.py", True),
        ("Read(/etc/**)", "/etc/passwd", True),
        ("Read(/etc/**)", "etc/passwd", False),
        ("Read(~/x)", "/home/me/x", True),
        ("Read(a?)", "ab", True),
        ("Read(a/**)", "a/../b", False),
        ("Read(a/**)", "a/../../etc/passwd", False),
        ("Read(a/**)", "../project/a/b", True),
    ],
)
def test_a_pattern_names_paths_below_the_session_or_anywhere(
    rule: str, path: str, matches: bool
) -> None:
    decision = of_path(f'allow = ["{rule}"]', Tool.READ, path)
    assert decision == ("allow" if matches else "ask")


@pytest.mark.hazard("A1")
def test_links_lead_to_what_a_rule_is_about(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/link").symlink_to(tmp_path / "out")
    (tmp_path / "alias").symlink_to(tmp_path / "in")
    where = place(tmp_path / "in")
    text = 'allow = ["Read(**)", "Edit(**)"]\n'
    inside = 'allow = ["Read(./**)"]\n'
    assert of_path(inside, Tool.READ, "x", where) == "allow"
    assert of_path(inside, Tool.READ, "link/x", where) == "ask"
    assert of_path(inside, Tool.READ, "x", place(tmp_path / "alias")) == "allow"
    denied = f'{text}deny = ["Edit({tmp_path}/out/**)"]'
    assert of_path(denied, Tool.EDIT, "link/x", where) == "deny"
    by_name = f'{text}deny = ["Edit(link/**)"]'
    assert of_path(by_name, Tool.EDIT, "link/x", where) == "deny"


@pytest.mark.parametrize(
    ("url", "decision"),
    [
        ("https://example.org/x", "allow"),
        ("http://EXAMPLE.org:8080", "allow"),
        ("https://www.example.org", "ask"),
        ("https://a.docs.dev", "allow"),
        ("https://example.org.evil.dev", "ask"),
        ("https://example.org@evil.dev", "ask"),
        ("https://evil.dev\\@example.org", "ask"),
        ("file://example.org/etc", "ask"),
        ("", "ask"),
        ("https://bad.dev", "deny"),
        ("https://sub.bad.dev", "deny"),
        ("ftp://bad.dev", "deny"),
        ("https://bad.dev.", "deny"),
        ("https://me:x@bad.dev:99/", "deny"),
        ("https:bad.dev", "deny"),
        ("https:/bad.dev/x", "deny"),
        ("https:\\\\bad.dev\\x", "deny"),
        ("bad.dev/x", "deny"),
        ("https://b%61d.dev", "deny"),
        ("https://\uff42ad.dev", "deny"),
        ("https://bad\u3002dev", "deny"),
        ("https://b\u00fccher.dev", "deny"),
        ("https://xn--bcher-kva.dev", "deny"),
        ("https://example.org.", "allow"),
        ("https://ex%61mple.org", "ask"),
        ("https:example.org", "ask"),
        ("https://example.org?q=a%20b", "allow"),
        ("https://example.org/a%20b", "allow"),
    ],
)
def test_a_domain_is_that_host_and_a_refused_one_all_below_it(url: str, decision: str) -> None:
    from acp_bridge.features.rules.definitions import Call

    text = """
    allow = ["WebFetch(domain:example.org)", "WebFetch(domain:*.docs.dev)"]
    deny = ["WebFetch(domain:bad.dev)", "WebFetch(domain:b\u00fccher.dev)"]
    """
    call = Call(Tool.FETCH, frozenset({Tool.FETCH}), url=url)
    assert judged(text, call).action == decision


def test_further_rules_hold_for_one_agent_or_one_folder_alone() -> None:
    text = """
    allow = ["Bash(ls)"]
    [[only]]
    agent = "codex-acp"
    folder = "/project/**"
    allow = ["Bash(make)"]
    [[only]]
    folder = "~/src/**"
    deny = ["Bash(ls)"]
    """
    make, ls = example(Tool.BASH, "make"), example(Tool.BASH, "ls")
    assert judged(text, make, place("/project/x"), "codex-acp").action == "allow"
    assert judged(text, make, place("/project/x"), "other").action == "ask"
    assert judged(text, make, place("/elsewhere"), "codex-acp").action == "ask"
    assert judged(text, ls, place("/home/me/src")).action == "deny"
    assert judged(text, ls, place("/home/me/srcs")).action == "allow"


HELD = """
deny = ["Edit(src/secret/**)", "Edit(conf/key.pem)", "Edit(**/.env)"]
allow = ["Bash(rm *)", "Bash(mv *)", "Edit(src/**)", "Edit(conf)"]
"""


@pytest.mark.parametrize("command", ["rm -r src", "rm -rf ./src", "mv src x", "rm -r conf"])
def test_a_command_that_changes_a_folder_in_which_something_is_denied_is_asked(
    command: str,
) -> None:
    assert of_command(HELD, command) == "ask"
    assert of_command(HELD, "rm -r build") == "allow"


@pytest.mark.parametrize("path", ["src", "conf"])
def test_an_edit_of_a_folder_in_which_something_is_denied_is_asked(path: str) -> None:
    assert of_path(HELD, Tool.EDIT, path) == "ask"
    assert of_path(HELD, Tool.EDIT, "src/a") == "allow"


def test_the_name_of_a_folder_in_a_rule_may_have_brackets() -> None:
    text = 'deny = ["Edit(app/[id]/secret/**)"]\nallow = ["Bash(rm *)"]'
    assert of_command(text, "rm -r 'app/[id]'") == "ask"
    assert of_command(text, "rm -r app/other") == "allow"


def test_a_folder_above_an_absolute_path_that_is_denied_is_asked(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    text = f'deny = ["Edit({kept}/key)"]\nallow = ["Bash(rm *)"]'
    assert of_command(text, f"rm -r {kept}") == "ask"
    assert of_command(text, f"rm -r {tmp_path}/other") == "allow"
