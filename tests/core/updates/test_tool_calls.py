"""What a question shows of a tool call, in the forms in which agents send what is run."""

from typing import Any

import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.updates.tool_calls import asked, runs_or_changes, shown, summary, updated

pytestmark = pytest.mark.hazard("V9")

RM = "rm -rf ~/src"


def lines(call: Json) -> list[str]:
    """The lines that stand before the content of a call."""
    whole = shown(call)
    if whole == call:
        return []
    text: str = whole["content"][0]["content"]["text"]
    return text.split("\n")


@pytest.mark.hazard("V9.3")
@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"command": RM, "description": "List files", "timeout": 5}, f"command: {RM}"),  # claude
        ({"command": ["bash", "-lc", RM], "cwd": "/"}, f"command: bash -lc '{RM}'"),  # codex
        ({"parsed_cmd": [{"type": "read", "cmd": RM}]}, f"cmd: {RM}"),
        ({"input": {"args": {"Shell_Command": RM}}}, f"Shell_Command: {RM}"),
        ({"actions": [{"why": "x"}, {"command": RM}]}, f"command: {RM}"),  # openhands
        ({"filePath": RM}, f"filePath: {RM}"),
        ({"what": {"is": [RM]}}, f'what: {{"is": ["{RM}"]}}'),
        (RM, f"input: {RM}"),
        ([RM, 1], f'input: ["{RM}", 1]'),
        ({"changes": {"/etc/passwd": {"add": RM}}}, f'{{"/etc/passwd": {{"add": "{RM}"}}}}'),
    ],
)
def test_a_command_is_shown_in_whatever_form_its_agent_sends_it(raw: Any, told: str) -> None:
    call = {"title": "List files", "rawInput": raw}
    assert any(told in line for line in lines(call))
    assert told in summary(call)


@pytest.mark.hazard("V9.3")
@pytest.mark.parametrize("title", [RM, f"`{RM}`"])
def test_a_command_that_is_the_title_is_shown_once(title: str) -> None:
    assert lines({"title": title, "rawInput": {"command": RM}}) == []
    assert summary({"title": title, "rawInput": {"command": RM}}) == title


@pytest.mark.parametrize("title", [f"List files, not {RM}", f"Never `{RM}`", RM.upper(), None])
def test_a_title_that_only_has_the_command_in_it_does_not_hide_it(title: str | None) -> None:
    assert lines({"title": title, "rawInput": {"command": RM}}) == [f"command: {RM}"]


@pytest.mark.hazard("V9.4")
@pytest.mark.parametrize("call", [{"title": "List files"}, {"title": "x", "rawInput": {}}, {}])
def test_a_title_alone_is_said_to_be_all_that_is_known(call: Json) -> None:
    assert lines(call) == ["Nothing but this title is known: the agent does not say what runs."]
    assert summary(call).endswith(" (nothing but this title is known)")


@pytest.mark.parametrize(
    "content",
    [
        [{}, 7],
        [{"type": "terminal", "terminalId": "t"}],
        [{"type": "content", "content": {"type": "text", "text": " \n"}}],
    ],
)
def test_a_content_that_shows_nothing_says_no_more_than_the_title(content: Any) -> None:
    assert "Nothing but this title is known" in lines({"title": "x", "content": content})[0]


def test_what_no_client_would_show_is_shown() -> None:
    odd = {"type": "script", "text": RM}
    call = {"title": "x", "content": [odd], "command": RM, "plan": [1], "status": "pending"}
    assert lines(call) == [
        f"command: {RM}",
        "plan: [1]",
        f'content: {{"type": "script", "text": "{RM}"}}',
    ]
    assert runs_or_changes({"command": RM})


def test_what_no_client_would_show_of_a_location_or_a_diff_is_shown() -> None:
    place, diff = {"uri": "file:///etc/passwd"}, {"type": "diff", "path": "a", "newText": "b"}
    call = {"title": "x", "locations": [place], "content": [{**diff, "run": RM}]}
    assert lines(call) == [
        f'content: {{"type": "diff", "path": "a", "newText": "b", "run": "{RM}"}}',
        'location: {"uri": "file:///etc/passwd"}',
    ]
    assert lines({"title": "x", "locations": [{"path": "a", "line": 1}], "content": [diff]}) == []


@pytest.mark.parametrize("title", ["make", "List make", f"List files, not {RM}"])
def test_what_a_title_says_is_hidden_only_if_it_is_the_file_that_is_meant(title: str) -> None:
    raw = {"run_this": title.rpartition(" ")[2], "exec": RM}
    assert lines({"title": title, "rawInput": raw}) == [f"{n}: {v}" for n, v in raw.items()]


@pytest.mark.hazard("V9.3")
def test_commands_come_first_and_each_further_line_of_one_is_indented() -> None:
    raw = {"why": "a\nb", "command": "ls\ncommand: ls", "e\nf": 1}
    assert lines({"title": "x", "rawInput": raw}) == [
        *("command:", "  ls", "  command: ls"),
        *("why:", "  a", "  b", "e\\nf: 1"),
    ]


@pytest.mark.hazard("V9.3")
def test_all_paths_are_counted_and_listed_wherever_they_stand() -> None:
    diff = {"type": "diff", "path": "/etc/hosts", "oldText": "old", "newText": "new"}
    places = [{"path": f"/{n}", "line": n} for n in range(20)]
    raw = {"path": "/raw", "old_string": "old", "new_string": "new", "command": "new"}
    call = {"title": "List /1", "locations": places, "content": [diff], "rawInput": raw}
    assert lines(call) == [
        *("command: new", "paths (21):", *(f"  /{n}:{n}" for n in range(20)), "  /etc/hosts"),
        "path: /raw",  # what the diff shows is left out, but never a command
    ]
    assert "/19:19 · /etc/hosts · path: /raw" in summary(call)
    one = {"title": "Edit a", "locations": [{"path": "a"}], "rawInput": {"path": "a"}}
    assert lines(one) == []
    assert lines({**one, "locations": [{"path": "/x/a"}]}) == ["path: /x/a"]
    assert lines({"title": "List all", "locations": [{"path": "a"}]}) == ["path: a"]


def test_a_long_title_is_shown_whole_beside_its_line() -> None:
    title = "List files " * 20 + RM
    assert lines({"title": title}) == [f"title: {title}"]
    assert lines({"title": "a\nb"}) == ["title:", "  a", "  b"]


@pytest.mark.hazard("V9.7")
def test_a_line_of_a_list_is_bounded_and_counts_what_it_leaves_out() -> None:
    many = {"title": "x", "rawInput": {"command": "\n".join(f"echo {n}" for n in range(500))}}
    told = summary(many)
    assert told.startswith("x: command: · echo 0 · echo 1")
    assert told.endswith(" more lines")
    assert len(told) < 400
    shown_of = told.count("echo")
    assert told.endswith(f"… {500 - shown_of} more lines")
    long = {"title": "x" * 90 + "\x1b" * 9, "rawInput": {"command": "y" * 10_000 + RM}}
    assert summary(long).endswith(" … 1 more line")
    assert len(summary(long)) < 400


def test_what_can_not_be_seen_is_escaped_in_a_line() -> None:
    call = {"title": "a\x1b[2J", "rawInput": {"command": "ls\u202e\x07\u200b\ud800"}}
    assert summary(call) == "a\\x1b[2J: command: ls\\u202e\\x07\\u200b\\ud800"


def test_an_input_of_any_shape_is_shown_and_breaks_nothing() -> None:
    deep: Any = {"command": RM}
    for _ in range(900):
        deep = [deep]
    odd: list[Any] = [0, False, 1.5, [[]], {"": ""}, {"command": {"command": []}}, deep]
    for raw in odd:
        call = {"title": 7, "kind": {}, "rawInput": raw, "locations": [{}, {"path": 7}, 5]}
        assert summary({**call, "content": [7, {"type": "diff"}, {}, {"content": {"a": 1}}]})
        assert shown(call)


def test_updates_are_joined_and_what_is_empty_hides_nothing() -> None:
    call = updated({}, {"title": "a", "rawInput": {"command": "l"}, "kind": "read"})
    nothing: Json = {"rawInput": {}, "title": "", "kind": None, "content": []}
    assert updated(call, nothing) == call
    assert updated(call, {"rawInput": {"cwd": "/"}})["rawInput"] == {"command": "l", "cwd": "/"}
    assert updated(call, {"rawInput": {"command": "ls"}})["rawInput"] == {"command": "ls"}


@pytest.mark.hazard("V9.2")
@pytest.mark.parametrize(
    ("card", "request_", "told"),
    [
        ({"rawInput": {"command": RM}}, {"rawInput": "ls"}, ["input: ls", f"command: {RM}"]),
        ({"rawInput": RM}, {"rawInput": {"command": "ls"}}, ["command: ls", f"card): {RM}"]),
        ({"rawInput": [RM]}, {"rawInput": ["ls"]}, ["input: ls", f"input (on its card): '{RM}'"]),
        ({"title": RM}, {"title": "ls"}, [f"title (on its card): {RM}"]),
        ({"locations": [{"path": "/a"}]}, {"locations": [{"path": "/b"}]}, ["  /a", "  /b"]),
    ],
)
def test_where_card_and_request_differ_both_are_shown(
    card: Json, request_: Json, told: list[str]
) -> None:
    text = "\n".join(lines(asked({"title": "x", **card}, {"title": "x", **request_})))
    for each in told:
        assert each in text


def test_content_of_the_card_and_of_the_request_stands_beside_each_other_once() -> None:
    one, two = ({"type": "diff", "path": path, "newText": path} for path in ("/a", "/b"))
    assert asked({"content": [one]}, {"content": [two, one]})["content"] == [two, one]
    assert asked({"content": [one]}, {})["content"] == [one]


def test_what_names_a_command_or_shows_a_change_is_told_from_what_reads() -> None:
    assert runs_or_changes({"rawInput": {"a": [{"cmd": ["ls"]}]}})
    assert runs_or_changes({"content": [{"type": "diff"}]})
    assert not runs_or_changes({"rawInput": {"path": "a", "command": ""}, "content": [{}]})
