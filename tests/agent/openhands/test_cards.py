"""Tool calls as cards: one start, one end, diffs and places."""

from typing import Any

import pytest

from agent.client import Update
from agent.openhands.cards import Cards, described
from agent.openhands.events import Action, InnerCall, Result
from tests.agent.openhands import events as told


def action(event_id: str = "a1", kind: str = "TerminalAction", **values: Any) -> Action:
    found = told.event(told.action(event_id, kind, **values))
    assert isinstance(found, Action)
    return found


def result(raw: dict[str, Any]) -> Result:
    found = told.event(raw)
    assert isinstance(found, Result)
    return found


def statuses(updates: list[Update]) -> list[str]:
    return [update["status"] for update in updates if "status" in update]


def test_a_card_has_one_start_and_one_end() -> None:
    cards = Cards()
    begun = cards.start(action(command="ls"))
    ended = cards.end(result(told.result("a1", "file")))
    again = cards.end(result(told.result("a1", "file")))
    assert [update["sessionUpdate"] for update in begun] == ["tool_call"]
    assert (statuses(begun), statuses(ended), again) == (["pending"], ["completed"], [])
    assert begun[0]["toolCallId"] == ended[0]["toolCallId"] == "a1"
    assert (begun[0]["title"], begun[0]["kind"]) == ("`ls`", "execute")


@pytest.mark.parametrize(
    "ending",
    [told.result("a1", failed=True), told.refusal("a1"), told.error_of("call-a1")],
    ids=["failed", "refused", "interrupted"],
)
def test_a_call_that_fails_is_refused_or_interrupted_has_a_failed_card(ending: Any) -> None:
    cards = Cards()
    cards.start(action())
    assert statuses(cards.end(result(ending))) == ["failed"]
    assert cards.waiting == ()


def test_an_error_that_names_an_id_which_came_twice_ends_the_last_call_under_it() -> None:
    cards = Cards()
    cards.start(action("a1", call="same"))
    cards.end(result({**told.result("a1"), "tool_call_id": "same"}))
    cards.start(action("a2", call="same"))
    (ended,) = cards.end(result(told.error_of("same")))
    assert ended["toolCallId"] == "a2"


def test_a_result_of_a_call_that_was_never_told_shows_nothing() -> None:
    assert Cards().end(result(told.result("never"))) == []


def test_what_waits_is_what_has_no_result_and_can_be_run() -> None:
    cards = Cards()
    cards.start(action("a1"))
    cards.start(action("a2"))
    broken = told.event({**told.action("a3"), "action": None})
    assert isinstance(broken, Action)
    cards.start(broken)
    cards.end(result(told.result("a1")))
    assert [each.id for each in cards.waiting] == ["a2"]


def test_an_edit_shows_its_diff_and_its_place_before_and_after() -> None:
    edit = action(
        kind="FileEditorAction", command="str_replace", path="/p/f", old_str="old", new_str="new"
    )
    card = described(edit)
    assert (card["title"], card["kind"], card["locations"]) == (
        "Edit /p/f",
        "edit",
        [{"path": "/p/f"}],
    )
    assert card["content"] == [{"type": "diff", "path": "/p/f", "oldText": "old", "newText": "new"}]
    cards = Cards()
    cards.start(edit)
    done = told.result("a1", path="/p/f", old_content="an old", new_content="a new")
    (ended,) = cards.end(result(done))
    assert ended["content"] == [
        {"type": "diff", "path": "/p/f", "oldText": "an old", "newText": "a new"}
    ]


def test_a_new_file_has_no_old_text_and_a_view_is_a_read_with_its_line() -> None:
    make = action(kind="FileEditorAction", command="create", path="/p/f", file_text="new")
    assert described(make)["content"][0]["oldText"] is None
    cards = Cards()
    cards.start(make)
    done = told.result("a1", path="/p/f", prev_exist=False, old_content="", new_content="new")
    assert cards.end(result(done))[0]["content"][0]["oldText"] is None
    view = action(kind="FileEditorAction", command="view", path="/p/f", view_range=[7, 9])
    assert described(view)["kind"] == "read"
    assert described(view)["locations"] == [{"path": "/p/f", "line": 7}]


def test_a_list_of_tasks_is_the_plan() -> None:
    cards = Cards()
    cards.start(action(kind="TaskTrackerAction", command="plan"))
    tasks = [{"title": "one", "status": "done"}, {"title": "two", "status": "in_progress"}]
    ended = cards.end(result(told.result("a1", kind="TaskTrackerObservation", task_list=tasks)))
    assert ended[-1] == {
        "sessionUpdate": "plan",
        "entries": [
            {"content": "one", "priority": "medium", "status": "completed"},
            {"content": "two", "priority": "medium", "status": "in_progress"},
        ],
    }


def test_a_call_of_an_inner_agent_is_one_card_however_often_it_is_told() -> None:
    cards = Cards()

    def tell(status: str, error: bool = False) -> list[Update]:
        members = {"tool_call_id": "c", "title": "Read", "tool_kind": "read", "status": status}
        call = told.event(told.raw("ACPToolCallEvent", is_error=error, **members))
        assert isinstance(call, InnerCall)
        return cards.inner(call)

    kinds = [update["sessionUpdate"] for update in tell("pending") + tell("in_progress")]
    assert kinds == ["tool_call", "tool_call_update"]
    assert statuses(tell("completed")) == ["completed"]
    assert tell("completed") == tell("failed", error=True) == []
