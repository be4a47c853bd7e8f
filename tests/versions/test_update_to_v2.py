"""Each row from version 1 to version 2: what a client of version 2 is shown of an update."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.protocol import Json
from acp_bridge.versions.settings_to_v2 import Settings
from acp_bridge.versions.update_to_v2 import ToV2
from tests.support.v2_schema import V2Connection


class Shown:
    """What a client is shown, each update judged by the schema."""

    def __init__(self) -> None:
        self._to_v2 = ToV2("m", Settings())
        self._judge = V2Connection()

    def __call__(self, update: Json, **marks: Json) -> list[Json]:
        told = self._to_v2.updates({**marks, "sessionId": "s", "update": update})
        for params in told:
            message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
            self._judge.judge("agent", message)
        return [each["update"] for each in told]

    def begin_replay(self) -> None:
        self._to_v2.begin_replay()


@pytest.fixture
def shown() -> Shown:
    return Shown()


def chunk(text: str, kind: str = "agent_message_chunk", message_id: str | None = None) -> Json:
    own = {} if message_id is None else {"messageId": message_id}
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **own}


def call(named: str = "tool_call", **more: object) -> Json:
    return {"sessionUpdate": named, "toolCallId": "c", **more}


# --- messages -----------------------------------------------------------------------------------


def test_a_run_of_chunks_without_an_id_is_one_message(shown: Shown) -> None:
    ids = {update["messageId"] for text in "abc" for update in shown(chunk(text))}
    assert len(ids) == 1


def test_an_id_that_the_agent_gave_stays(shown: Shown) -> None:
    (update,) = shown(chunk("a", message_id="its own"))
    assert update["messageId"] == "its own"


def test_a_tool_call_between_two_chunks_makes_two_messages(shown: Shown) -> None:
    (before,) = shown(chunk("a"))
    shown(call(title="t"))
    (after,) = shown(chunk("b"))
    assert before["messageId"] != after["messageId"]


def test_thoughts_and_messages_are_apart(shown: Shown) -> None:
    (thought,) = shown(chunk("a", "agent_thought_chunk"))
    (message,) = shown(chunk("b"))
    assert thought["messageId"] != message["messageId"]


def test_two_texts_of_the_users_are_two_prompts(shown: Shown) -> None:
    (first,) = shown(chunk("a", "user_message_chunk"))
    (second,) = shown(chunk("b", "user_message_chunk"))
    assert first["messageId"] != second["messageId"]


def test_marks_beside_an_update_stay_beside_it(shown: Shown) -> None:
    to_v2 = ToV2("m", Settings())
    mark = {"acp_bridge": {"notice": True}}
    (told,) = to_v2.updates({"_meta": mark, "sessionId": "s", "update": chunk("a")})
    assert told["_meta"] == mark


@given(st.lists(st.text(min_size=1), min_size=1), st.booleans())
def test_however_a_text_is_cut_the_client_puts_it_together(pieces: list[str], own: bool) -> None:
    shown = Shown()
    found: dict[str, str] = {}
    for piece in pieces:
        for update in shown(chunk(piece, message_id="own" if own else None)):
            before = found.get(update["messageId"], "")
            found[update["messageId"]] = before + update["content"]["text"]
    assert list(found.values()) == ["".join(pieces)]


# --- tool calls ---------------------------------------------------------------------------------


def test_a_tool_call_is_an_update_with_a_status(shown: Shown) -> None:
    (update,) = shown(call(title="Read", kind="read", rawInput={"path": "/x"}))
    assert update["sessionUpdate"] == "tool_call_update"
    assert (update["status"], update["title"]) == ("pending", "Read")


def test_null_leaves_a_member_as_it_is_so_it_is_not_told(shown: Shown) -> None:
    shown(call(title="Read"))
    (update,) = shown(call("tool_call_update", title=None, status="completed", content=None))
    assert update == call("tool_call_update", status="completed")


def test_a_call_whose_id_begins_anew_keeps_nothing_of_the_old_one(shown: Shown) -> None:
    shown(call(title="Old", rawInput={"a": 1}, status="completed"))
    (update,) = shown(call(title="New"))
    assert update["rawInput"] is None
    assert update["status"] == "pending"


def test_a_call_that_is_replayed_begins_for_the_first_time(shown: Shown) -> None:
    shown(call(title="Old", rawInput={"a": 1}))
    shown.begin_replay()
    (update,) = shown(call(title="Old"))
    assert "rawInput" not in update


def test_a_terminal_of_the_client_is_not_shown(shown: Shown) -> None:
    text = {"type": "content", "content": {"type": "text", "text": "out"}}
    (update,) = shown(call(title="t", content=[{"type": "terminal", "terminalId": "x"}, text]))
    assert update["content"] == [text]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, "one\ntwo\n"),
        (None, "no end"),
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("x\n", ""),
        ("form\x0cfeed\u2028line\n", "form\x0cfeed\u2028other\n"),
        ("\r\nb\r\n", "\r\nc\r\n"),
    ],
)
def test_a_diff_is_a_change_with_a_patch_that_git_applies(
    tmp_path: Path, shown: Shown, old: str | None, new: str
) -> None:
    diff = {"type": "diff", "path": f"{tmp_path}/f", "oldText": old, "newText": new}
    (update,) = shown(call(title="Edit", content=[diff]))
    (told,) = update["content"]
    (change,) = told["changes"]
    assert change == {"operation": "add" if old is None else "modify", "path": f"{tmp_path}/f"}
    place = tmp_path / "place"
    at = place / str(tmp_path).lstrip("/") / "f"
    at.parent.mkdir(parents=True)
    if old is not None:
        at.write_bytes(old.encode())
    command = ["git", "apply", "--unsafe-paths", "-"]
    subprocess.run(command, input=told["patch"]["text"].encode(), cwd=place, check=True)
    assert at.read_bytes() == new.encode()


def test_a_diff_of_very_long_texts_has_no_patch(shown: Shown) -> None:
    diff = {"type": "diff", "path": "/f", "oldText": "a" * 300_000, "newText": "b" * 300_000}
    (update,) = shown(call(title="Edit", content=[diff]))
    assert "patch" not in update["content"][0]


# --- plans and the rest -------------------------------------------------------------------------


def test_a_plan_has_the_one_id_of_an_agent_s_plan(shown: Shown) -> None:
    entries = [{"content": "do", "priority": "low", "status": "completed"}]
    (update,) = shown({"sessionUpdate": "plan", "entries": entries})
    assert update["plan"] == {"type": "items", "planId": "plan", "entries": entries}


def test_a_plan_in_markdown_is_told_as_it_is(shown: Shown) -> None:
    plan = {"type": "markdown", "planId": "plan-mode", "content": "# Then"}
    update = {"sessionUpdate": "plan_update", "plan": plan}
    assert shown(update) == [update]


def test_a_plan_in_a_form_that_is_not_known_takes_the_place_of_none(shown: Shown) -> None:
    for plan in ({"type": "_odd", "planId": "p"}, {"type": "markdown", "planId": "p"}):
        assert shown({"sessionUpdate": "plan_update", "plan": plan}) == []


def test_a_plan_that_is_taken_back_is_not_told(shown: Shown) -> None:
    assert shown({"sessionUpdate": "plan_removed", "id": "p"}) == []


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
        {"sessionUpdate": "session_info_update", "title": "T"},
        {"sessionUpdate": "compaction_update", "compactionId": "1", "status": "completed"},
        {"sessionUpdate": "notice", "severity": "info", "title": "t"},
        {"sessionUpdate": "_its_own", "anything": 1},
    ],
    ids=lambda update: str(update["sessionUpdate"]),
)
def test_what_is_the_same_in_both_versions_stays(shown: Shown, update: Json) -> None:
    before = json.loads(json.dumps(update))
    assert shown(update) == [before]
