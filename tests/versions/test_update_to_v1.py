"""What an agent of version 2 shows, as version 1 shows it: row by row."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.protocol import Json
from acp_bridge.versions.cards_to_v1 import Cards
from acp_bridge.versions.update_to_v1 import Shown
from tests.versions.agent_wire import TEXT, Wire, texts

USED = {"used": 1, "size": 2}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def content(words: str) -> dict[str, Any]:
    return {"type": "content", "content": text(words)}


def b64(words: str) -> str:
    return b64encode(words.encode()).decode()


def shown_texts(update: dict[str, Any]) -> list[str]:
    """The texts of a card's content."""
    return [each["content"]["text"] for each in update["content"]]


# --- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["agent_message", "agent_thought", "user_message"])
def test_a_message_that_is_told_as_a_whole_is_shown_in_chunks(kind: str) -> None:
    wire = Wire()
    link = {"type": "resource_link", "name": "n", "uri": "file:///n"}
    shown = wire.shows(kind, messageId="m", content=[text("a"), {**link, "icons": []}, text("b")])
    chunk = {"sessionUpdate": f"{kind}_chunk", "messageId": "m"}
    assert shown == [{**chunk, "content": each} for each in (text("a"), link, text("b"))]


def test_what_is_told_beyond_the_shown_text_is_one_more_chunk() -> None:
    wire = Wire()
    wire.says("agent_message_chunk", messageId="m", content=text("one "))
    wire.says("agent_message_chunk", messageId="m", content=text("two"))
    more = wire.shows("agent_message", messageId="m", content=[text("one two three"), TEXT])
    assert [each["content"] for each in more] == [text(" three"), TEXT]
    assert wire.shows("agent_message", messageId="m", content=[text("one two three"), TEXT]) == []
    (last,) = wire.shows("agent_message_chunk", messageId="m", content=text("!"))
    assert last["messageId"] == "m"


def test_a_text_that_is_replaced_is_shown_as_another_message() -> None:
    wire = Wire()
    wire.says("agent_message_chunk", messageId="m", content=text("wrong"))
    (right,) = wire.shows("agent_message", messageId="m", content=[text("right")])
    assert (right["messageId"], right["content"]) == ("m~2", text("right"))
    (more,) = wire.shows("agent_message_chunk", messageId="m", content=text("!"))
    assert more["messageId"] == "m~2"
    (again,) = wire.shows("agent_message", messageId="m", content=[text("r")])
    assert again["messageId"] == "m~3"


@pytest.mark.parametrize("members", [{}, {"content": None}, {"content": []}])
def test_a_message_that_is_cleared_or_left_as_it_is_shows_nothing(members: Any) -> None:
    wire = Wire()
    wire.says("agent_message_chunk", messageId="m", content=text("said"))
    assert wire.says("agent_message", messageId="m", **members) == []


def test_a_block_of_a_type_that_is_not_known_passes_and_what_is_none_is_dropped() -> None:
    shown, chunk = Shown(), {"sessionUpdate": "agent_message_chunk", "messageId": "m"}
    odd = {**chunk, "content": {"type": "_odd"}}
    assert shown.update(odd) == [odd]
    assert shown.update({**chunk, "content": {"type": 1}}) == []


@given(
    st.lists(st.text(max_size=5), max_size=6),
    st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=12),
)
def test_however_a_message_is_told_the_same_text_comes_out(
    words: list[str], told: list[tuple[bool, int]]
) -> None:
    whole = "".join(words)
    shown, at, found = Shown(), 0, list[Any]()
    for as_whole, length in [*told, (True, len(whole))]:
        end = min(len(whole), at + length)
        if as_whole:
            blocks = [text(whole[:end][cut : cut + 3]) for cut in range(0, end, 3)]
            update: dict[str, Any] = {"sessionUpdate": "agent_message", "content": blocks}
        else:
            update = {"sessionUpdate": "agent_message_chunk", "content": text(whole[at:end])}
        found += shown.update({**update, "messageId": "m"})
        at = end
    assert texts(found) == whole
    assert {each["messageId"] for each in found} <= {"m"}


# --- tool calls ---------------------------------------------------------------------------------


def test_a_call_that_is_told_first_is_a_card_with_a_title_and_an_update_after_that() -> None:
    wire = Wire()
    assert wire.shows("tool_call_update", toolCallId="c", name="grep", kind="search") == [
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "name": "grep",
            "kind": "search",
            "title": "grep",
        }
    ]
    assert wire.shows("tool_call_update", toolCallId="c", title="T", status="in_progress") == [
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c",
            "title": "T",
            "status": "in_progress",
        }
    ]
    (other,) = wire.shows("tool_call_update", toolCallId="d", kind="_odd")
    assert (other["title"], other["kind"]) == ("Tool", "other")


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("pending", "pending"),
        ("paused", "pending"),
        ("completed", "completed"),
        ("cancelled", "failed"),
        ("_odd", "in_progress"),
    ],
)
def test_a_status_that_version_1_has_not_becomes_the_nearest(told: str, shown: str) -> None:
    (card,) = Wire().shows("tool_call_update", toolCallId="c", status=told)
    assert card["status"] == shown


def test_what_is_cleared_becomes_empty() -> None:
    wire = Wire()
    wire.says(
        "tool_call_update",
        toolCallId="c",
        title="T",
        content=[content("x")],
        locations=[{"path": "/x"}],
        rawInput={"x": 1},
        rawOutput={"y": 1},
    )
    cleared = dict.fromkeys(
        ("title", "content", "locations", "rawInput", "rawOutput", "status", "name")
    )
    assert wire.shows("tool_call_update", toolCallId="c", **cleared) == [
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c",
            "title": "",
            "content": [],
            "locations": [],
            "rawInput": "",
            "rawOutput": "",
        }
    ]


def test_a_piece_of_content_is_shown_with_all_that_came_before() -> None:
    wire = Wire()
    (card,) = wire.shows("tool_call_content_chunk", toolCallId="c", content=content("a"))
    assert (card["sessionUpdate"], shown_texts(card)) == ("tool_call", ["a"])
    (card,) = wire.shows("tool_call_content_chunk", toolCallId="c", content=content("b"))
    assert (card["sessionUpdate"], shown_texts(card)) == ("tool_call_update", ["a", "b"])
    wire.says("tool_call_update", toolCallId="c", content=[content("z")])
    (card,) = wire.shows("tool_call_content_chunk", toolCallId="c", content=content("y"))
    assert shown_texts(card) == ["z", "y"]


def test_small_pieces_of_a_long_content_wait_for_more_or_for_the_next_word_of_the_card() -> None:
    wire = Wire()
    prompt = wire.prompt()
    wire.says("tool_call_content_chunk", toolCallId="c", content=content("x" * 4000))
    assert wire.says("tool_call_content_chunk", toolCallId="c", content=content("1")) == []
    (card,) = wire.shows("tool_call_update", toolCallId="c", status="completed")
    assert shown_texts(card)[1:] == ["1"]
    wire.says("tool_call_content_chunk", toolCallId="c", content=content("2"))
    told, answer = wire.state("idle")
    assert shown_texts(told["params"]["update"])[1:] == ["1", "2"]
    assert answer["id"] == prompt


def test_a_call_whose_id_is_used_once_more_after_its_end_is_another_card() -> None:
    wire = Wire()
    for _ in range(2):
        (card,) = wire.shows("tool_call_update", toolCallId="c", title="T", status="in_progress")
        assert card["sessionUpdate"] == "tool_call"
        (card,) = wire.shows("tool_call_update", toolCallId="c", status="cancelled")
        assert card["sessionUpdate"] == "tool_call_update"


def test_all_that_is_shown_of_a_content_in_many_pieces_is_a_few_times_its_length() -> None:
    cards, pieces = Cards(), 3000
    item = {"type": "content", "content": {"type": "text", "text": "x" * 100}}
    update = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": item}
    shown = [len(each["content"]) for _ in range(pieces) for each in cards.piece(update)]
    shown += [len(each["content"]) for each in cards.flush()]
    assert shown[-1] == pieces
    assert sum(shown) < 7 * pieces


def test_what_a_call_can_be_told_is_no_update_for_version_1() -> None:
    wire = Wire()
    wire.says("tool_call_update", toolCallId="c", title="T")
    assert wire.says("tool_call_update", toolCallId="c", capabilities={"cancel": {}}) == []


# --- terminals ----------------------------------------------------------------------------------


def test_a_terminal_is_a_text_on_the_card_that_shows_it() -> None:
    wire = Wire()
    shows = [{"type": "terminal", "terminalId": "t"}]
    (card,) = wire.shows("tool_call_update", toolCallId="c", title="Run", content=shows)
    assert card["content"] == []
    (card,) = wire.shows("terminal_update", terminalId="t", command="make", cwd="/w")
    assert shown_texts(card) == ["```console\n$ make\n```"]
    (card,) = wire.shows(
        "terminal_output_chunk", terminalId="t", data=b64("\x1b[31mred\x1b[0m\r\n")
    )
    assert shown_texts(card) == ["```console\n$ make\nred\n```"]
    (card,) = wire.shows("terminal_update", terminalId="t", exitStatus={"exitCode": 2})
    assert shown_texts(card) == ["```console\n$ make\nred\n[exit code 2]\n```"]
    (card,) = wire.shows("terminal_update", terminalId="t", output={"data": b64("new")})
    assert shown_texts(card) == ["```console\n$ make\nnew\n[exit code 2]\n```"]
    (card,) = wire.shows("terminal_update", terminalId="t", output=None, exitStatus=None)
    assert shown_texts(card) == ["```console\n$ make\n```"]


def test_a_terminal_that_no_card_shows_is_not_shown_until_one_does() -> None:
    wire = Wire()
    assert wire.says("terminal_update", terminalId="t", command="ls") == []
    assert wire.says("terminal_output_chunk", terminalId="t", data=b64("``` x")) == []
    assert wire.says("terminal_output_chunk", terminalId="t", data="no base64!") == []
    shows = [{"type": "terminal", "terminalId": "t"}]
    (card,) = wire.shows("tool_call_update", toolCallId="c", content=shows)
    assert shown_texts(card) == ["````console\n$ ls\n``` x\n````"]


def test_of_a_long_output_the_end_is_shown_and_not_every_piece_alone() -> None:
    cards, shown = Cards(), list[dict[str, Any]]()
    cards.call({"toolCallId": "c", "content": [{"type": "terminal", "terminalId": "t"}]})
    for _ in range(5000):
        shown += cards.output({"terminalId": "t", "data": b64("0123456789abcde\n")})
    assert sum(len(shown_texts(each)[0]) for each in shown) < 6 * 5000 * 16
    (last,) = cards.terminal({"terminalId": "t", "exitStatus": {"signal": "SIGKILL"}})
    (told,) = shown_texts(last)
    assert len(told) < 17_000
    assert told.startswith("```console\n[... ")
    assert told.endswith("0123456789abcde\n[ended by SIGKILL]\n```")


# --- diffs --------------------------------------------------------------------------------------

_ADD = """\
diff --git a/new.txt b/new.txt
new file mode 100644
--- /dev/null
+++ b/new.txt
@@ -0,0 +1,2 @@
+one
+two
"""
_EDIT = """\
diff --git a/old.txt b/old.txt
--- a/old.txt
+++ b/old.txt
@@ -1 +1 @@
-a
+b
"""


def diff_of(changes: list[Any], patch: str | None, form: str = "git_patch") -> list[Any]:
    told = {"patch": {"format": form, "text": patch}} if patch is not None else {}
    item = {"type": "diff", "changes": changes, **told}
    (card,) = Wire().shows("tool_call_update", toolCallId="c", content=[item])
    shown: list[Any] = card["content"]
    return shown


@pytest.mark.parametrize(
    ("patch", "now"),
    [
        (_ADD, "one\ntwo\n"),
        (_ADD + "\\ No newline at end of file\n", "one\ntwo"),
        ("diff --git a/new.txt b/new.txt\nnew file mode 100644\n", ""),
    ],
)
def test_a_file_that_is_added_as_a_whole_is_a_diff(patch: str, now: str) -> None:
    added = {"operation": "add", "path": "/w/new.txt"}
    assert diff_of([added], patch) == [
        {"type": "diff", "path": "/w/new.txt", "oldText": None, "newText": now}
    ]


def test_every_other_change_is_a_text_with_the_patch() -> None:
    changes = [
        {"operation": "add", "path": "/w/new.txt"},
        {"operation": "modify", "path": "/w/old.txt"},
        {"operation": "delete", "path": "/w/gone"},
        {"operation": "move", "oldPath": "/w/a", "path": "/w/b"},
    ]
    added, rest = diff_of(changes, _ADD + _EDIT)
    assert added["path"] == "/w/new.txt"
    lines = "modify /w/old.txt\ndelete /w/gone\nmove /w/a -> /w/b"
    assert rest == content(f"{lines}\n\n```diff\n{_EDIT.rstrip()}\n```")
    assert diff_of(changes[2:], None) == [content("delete /w/gone\nmove /w/a -> /w/b")]


def test_a_patch_in_a_form_that_is_not_known_is_shown_as_it_is() -> None:
    (shown,) = diff_of([{"operation": "add", "path": "/w/x"}], "odd\n", "_odd")
    assert shown == content("add /w/x\n\n```\nodd\n```")


def test_two_files_of_one_name_are_not_taken_for_each_other() -> None:
    changes = [{"operation": "add", "path": f"/w/{each}/new.txt"} for each in "ab"]
    first, second = (_ADD.replace("/new.txt", f"/{each}/new.txt") for each in "ab")
    assert [each["path"] for each in diff_of(changes, second + first)] == [
        "/w/a/new.txt",
        "/w/b/new.txt",
    ]
    assert [each["type"] for each in diff_of(changes[:1], _ADD + _ADD)] == ["content"]


# --- the rest -----------------------------------------------------------------------------------


MARKDOWN: Json = {"type": "markdown", "planId": "plan-mode", "content": "# Then"}


def test_the_plan_that_was_told_last_is_the_plan() -> None:
    entry = {"content": "x", "priority": "high", "status": "pending"}
    odd = {"content": "y", "priority": "_odd", "status": "_odd"}
    over = {"content": "z", "priority": "low", "status": "cancelled"}
    plan = {"type": "items", "planId": "p", "entries": [entry, odd, over]}
    assert Wire().shows("plan_update", plan=plan) == [
        {
            "sessionUpdate": "plan",
            "entries": [
                entry,
                {"content": "y", "priority": "medium", "status": "pending"},
                {"content": "z (cancelled)", "priority": "low", "status": "completed"},
            ],
        }
    ]
    assert Wire().says("plan_update", plan={"type": "_odd", "planId": "p"}) == []


@pytest.mark.parametrize("plan", [MARKDOWN, {"type": "file", "planId": "p", "uri": "file:///p"}])
def test_a_plan_that_is_a_document_is_told_to_a_client_that_takes_such_plans(plan: Json) -> None:
    update = {"sessionUpdate": "plan_update", "plan": plan}
    assert Shown(documents=True).update(update) == [update]
    assert Shown().update(update) == []


@pytest.mark.parametrize("broken", [{"planId": 1}, {"content": None}, {"type": []}])
def test_a_document_of_a_plan_with_a_member_of_a_wrong_type_is_not_told(broken: Json) -> None:
    update = {"sessionUpdate": "plan_update", "plan": {**MARKDOWN, **broken}}
    assert Shown(documents=True).update(update) == []


def test_a_notice_is_a_text_unless_it_is_for_information_alone() -> None:
    wire = Wire()
    (shown,) = wire.shows("notice", severity="warning", title="T", description="D")
    assert shown["sessionUpdate"] == "agent_message_chunk"
    assert shown["content"] == text("\n\nT\n\nD\n\n")
    (again,) = wire.shows("notice", severity="error", title="T")
    assert shown["messageId"] != again["messageId"]
    assert wire.says("notice", severity="info", title="T") == []


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("usage_update", USED),
        ("session_info_update", {"title": "T"}),
        ("compaction_update", {"compactionId": "k", "status": "in_progress"}),
        ("compaction_summary_chunk", {"compactionId": "k", "content": TEXT}),
        ("agent_message_chunk", {"messageId": "m", "content": TEXT}),
        ("agent_thought_chunk", {"messageId": "m", "content": TEXT}),
        ("user_message_chunk", {"messageId": "m", "content": TEXT}),
    ],
)
def test_what_is_the_same_in_both_versions_passes(kind: str, members: Any) -> None:
    assert Wire().shows(kind, **members) == [{"sessionUpdate": kind, **members}]


@pytest.mark.parametrize("kind", ["_odd", "prompt_suggestions_update"])
def test_an_update_that_is_not_known_passes(kind: str) -> None:
    update = {"sessionUpdate": kind, "x": 1}
    assert Shown().update(update) == [update]


@pytest.mark.parametrize("kind", ["tool_call", "plan", "current_mode_update", "replay_complete"])
def test_an_update_of_a_kind_that_is_not_the_agent_s_is_dropped(kind: str) -> None:
    assert Shown().update({"sessionUpdate": kind, "x": 1}) == []
