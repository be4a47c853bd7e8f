"""What an agent of version 2 asks, in version 1, and what the user's rules find in it."""

from typing import Any

import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.features.rules.calls import call_of
from acp_bridge.features.rules.definitions import Tool
from acp_bridge.versions.cards_to_v1 import Cards
from acp_bridge.versions.question_to_v1 import permission_to_v1
from tests.versions.agent_wire import Wire

OPTIONS = [
    {"optionId": "y", "name": "Yes", "kind": "allow_once"},
    {"optionId": "n", "name": "No", "kind": "reject_once"},
]


def permission(wire: Wire, **members: Any) -> dict[str, Any]:
    params = {"sessionId": "s", "title": "May I?", "options": OPTIONS, **members}
    out = wire.agent_asks("session/request_permission", params)
    asked = out.to_bridge[-1]
    assert isinstance(asked, dict)
    answer = {"outcome": {"outcome": "selected", "optionId": "y"}}
    back = wire.bridge({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    assert back.to_agent == [{"jsonrpc": "2.0", "id": asked["id"], "result": answer}]
    found: dict[str, Any] = asked["params"]
    return found


def test_a_permission_for_a_tool_call_has_the_call_and_the_words_of_the_question() -> None:
    wire = Wire()
    wire.prompt()
    wire.says("tool_call_update", toolCallId="c", title="Edit x", kind="edit")
    diff = {"type": "diff", "changes": [{"operation": "move", "oldPath": "/a", "path": "/b"}]}
    call = {"toolCallId": "c", "content": [diff], "rawInput": {"x": 1}}
    asked = permission(
        wire, description="Because.", subject={"type": "tool_call", "toolCall": call}
    )
    assert asked["options"] == OPTIONS
    assert asked["toolCall"]["title"] == "Edit x"
    assert asked["toolCall"]["rawInput"] == {"x": 1}
    assert asked["toolCall"]["locations"] == [{"path": "/a"}, {"path": "/b"}]
    shown = [each["content"]["text"] for each in asked["toolCall"]["content"]]
    assert shown == ["move /a -> /b", "May I?\n\nBecause."]


def test_a_permission_for_a_command_asks_about_a_call_that_runs_it() -> None:
    wire = Wire()
    subject = {"type": "command", "command": "rm x", "cwd": "/w"}
    asked = permission(wire, subject=subject)["toolCall"]
    assert asked.pop("toolCallId").startswith("acp-bridge-")
    assert asked == {
        "title": "May I?",
        "kind": "execute",
        "rawInput": {"command": "rm x", "cwd": "/w"},
        "content": [],
    }
    known = permission(wire, subject={**subject, "toolCallId": "c"})["toolCall"]
    assert known["toolCallId"] == "c"


@pytest.mark.parametrize("members", [{}, {"subject": {"type": "_odd", "x": 1}}])
def test_a_permission_for_something_else_shows_its_title_and_is_of_no_known_kind(
    members: Any,
) -> None:
    asked = permission(Wire(), **members)["toolCall"]
    assert (asked["title"], asked["kind"]) == ("May I?", "other")


def test_an_option_of_a_kind_that_is_not_known_is_not_offered() -> None:
    odd = {"optionId": "o", "name": "Odd", "kind": "_odd"}
    assert permission(Wire(), options=[*OPTIONS, odd])["options"] == OPTIONS


def test_a_form_is_the_same_in_both_versions_and_another_mode_is_refused() -> None:
    wire = Wire()
    form = {
        "sessionId": "s",
        "mode": "form",
        "message": "Name?",
        "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}},
    }
    out = wire.agent_asks("elicitation/create", form)
    (asked,) = out.to_bridge
    assert isinstance(asked, dict)
    assert asked["params"] == form
    answer = {"action": "accept", "content": {"n": "x"}}
    wire.bridge({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    out = wire.agent_asks("elicitation/create", {**form, "mode": "_odd"})
    assert not out.to_bridge
    assert out.to_agent[0]["error"]["code"] == -32602


# --- for the rules of the user ------------------------------------------------------------------


def asked_for_edit(changes: list[Any], patch: str | None = None) -> Json:
    """What version 1 is asked for an edit of these files."""
    told = {"patch": {"format": "git_patch", "text": patch}} if patch is not None else {}
    diff = {"type": "diff", "changes": changes, **told}
    call = {"toolCallId": "c", "kind": "edit", "content": [diff]}
    params = {
        "title": "Edit",
        "options": OPTIONS,
        "subject": {"type": "tool_call", "toolCall": call},
    }
    asked: Json = permission_to_v1(params, Cards(), "q")["toolCall"]
    return asked


_SRC = {"operation": "modify", "path": "/w/src/a"}


@pytest.mark.parametrize(
    "odd",
    [
        {"operation": "_link", "path": "/w/src/a", "target": "/etc/x"},
        {"operation": "move", "path": "/w/src/a"},
        {"operation": "delete", "path": 5},
        {"path": "/w/src/a"},
        "/etc/x",
    ],
)
@pytest.mark.hazard("A1.1")
def test_an_edit_with_a_change_that_is_not_understood_is_allowed_by_no_rule(odd: Any) -> None:
    assert call_of(asked_for_edit([_SRC]), ["edit"]).tool is Tool.EDIT
    call = call_of(asked_for_edit([_SRC, odd]), ["edit"])
    assert call.tool is None
    assert "/w/src/a" in call.paths


_HEAD = "diff --git a/w/src/a b/w/src/a\n--- a/w/src/a\n+++ b/w/src/a\n"
_HUNK = "@@ -1,2 +1,2 @@\n--- /not/a/file\n+++ /neither\n x\n"


@pytest.mark.parametrize(
    ("patch", "more"),
    [
        (_HEAD + _HUNK, []),
        ("diff --git a/src/a b/src/a\nold mode 100644\nnew mode 100755\n", []),
        (_HEAD + _HUNK + "--- a/etc/x\n+++ b/etc/x\n@@ -1 +1 @@\n", ["etc/x", "/etc/x"]),
        (_HEAD + _HUNK + "diff --git a/x b/etc/x\nold mode 100644\n", ["etc/x", "/etc/x"]),
        (_HEAD + "@@ -1,99 +1,99 @@\n-a\ndiff --git a/y b/y\n", ["y", "/y"]),
        (
            "diff --git a/src/a b/src/a\nrename from secret\nrename to src/a\n",
            ["secret", "/secret"],
        ),
    ],
)
@pytest.mark.hazard("A1")
def test_a_file_that_a_patch_alone_names_is_one_of_the_edit_s_paths(
    patch: str, more: list[str]
) -> None:
    assert list(call_of(asked_for_edit([_SRC], patch)).paths) == ["/w/src/a", *more]


def test_a_question_without_an_option_that_is_known_is_refused() -> None:
    for options in ([{"optionId": "y", "name": "Yes", "kind": "_odd"}], [], "x"):
        params = {"sessionId": "s", "title": "May I?", "options": options}
        asked = {"jsonrpc": "2.0", "id": 7, "method": "session/request_permission"}
        out = Wire().end.take_from_agent({**asked, "params": params})
        (refusal,) = out.to_agent
        assert (refusal["id"], refusal["error"]["code"], out.to_bridge) == (7, -32602, [])
