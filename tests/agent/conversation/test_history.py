"""The history folded from records: what the user is shown, and figures of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.conversation.entries import INTERRUPTED, Record, Spent
from agent.conversation.history import title_of
from tests.agent.conversation.records import (
    call,
    folded,
    reasoning,
    records,
    result,
    steer,
    text,
    usage,
    user,
)

TERMINAL = {"type": "terminal", "terminalId": "t1"}
DIFF = {"type": "diff", "path": "/a", "oldText": "1", "newText": "2"}


def words(said: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": said}}


@pytest.mark.hazard("C16.14", "R7")
@given(st.lists(records))
def test_whatever_was_recorded_a_replay_ends_every_card_it_opens(found: list[Record]) -> None:
    opened: list[str] = []
    shown = folded(found).replay()
    for update in shown:
        if update["sessionUpdate"] == "tool_call":
            opened.append(update["toolCallId"])
        elif update["sessionUpdate"] == "tool_call_update":
            assert opened.pop() == update["toolCallId"]
            assert update["status"] in ("completed", "failed")
    assert not opened
    assert "'terminal'" not in str(shown)


@given(st.lists(records))
def test_trims_and_summaries_change_nothing_for_the_user(found: list[Record]) -> None:
    def seen(found: list[Record]) -> str:
        """All words and cards: a message may go on as another after a summary."""
        shown = folded(found).replay()
        return "".join(u["content"].get("text", "") if "messageId" in u else str(u) for u in shown)

    found = [r for r in found if r.get("t") != "plan"]  # its place is the answer's end
    assert seen(found) == seen([r for r in found if r.get("t") not in ("trim", "summary")])


@pytest.mark.hazard("R1")
def test_a_replay_shows_messages_not_tokens() -> None:
    history = folded([user("hi"), reasoning("h"), reasoning("m"), text("a"), text("b")])
    shown = [(u["sessionUpdate"], u["content"]["text"]) for u in history.replay()]
    assert shown == [
        ("user_message_chunk", "hi"),
        ("agent_thought_chunk", "hm"),
        ("agent_message_chunk", "ab"),
    ]
    assert history.replay() == history.replay()


def test_words_that_joined_a_turn_are_replayed_in_their_place_as_the_users() -> None:
    plan = {"t": "plan", "entries": [{"content": "p"}]}
    found = [user("hi"), call(1), plan, result(1, "x"), steer("in verse"), plan, text("so")]
    shown = folded(found).replay()
    assert [u["sessionUpdate"] for u in shown] == [
        *("user_message_chunk", "tool_call", "tool_call_update"),
        *("user_message_chunk", "agent_message_chunk", "plan"),  # one plan for the whole turn
    ]
    assert [u["content"]["text"] for u in shown if "messageId" in u] == ["hi", "in verse", "so"]
    assert len({u["messageId"] for u in shown if "messageId" in u}) == 3


def test_tokens_that_follow_a_replay_belong_to_the_same_message() -> None:
    history = folded([user("hi"), text("a")])
    assert history.replay(running=True)[-1]["messageId"] == history.message_id
    history.fold(text("b"))
    assert history.replay()[-1]["content"]["text"] == "ab"
    assert history.replay()[-1]["messageId"] == history.message_id


def test_a_running_turn_ends_its_own_cards() -> None:
    history = folded([user("hi"), call(1), call(2), result(2, "x")])
    ends = [u for u in history.replay(running=True) if u["sessionUpdate"] == "tool_call_update"]
    assert [u["toolCallId"] for u in ends] == ["call-2"]


def test_a_card_that_an_earlier_turn_left_open_is_ended_even_then() -> None:
    history = folded([user("hi"), call(1), user("again"), call(2)])
    ends = [u for u in history.replay(running=True) if u["sessionUpdate"] == "tool_call_update"]
    assert [u["toolCallId"] for u in ends] == ["call-1"]


def test_a_plan_belongs_to_the_answer_whose_calls_are_running() -> None:
    history = folded([user("hi"), call(1), call(2), result(1, "x")])
    before = history.message_id
    history.fold({"t": "plan", "entries": [{"content": "look"}]})
    assert history.message_id == before


@pytest.mark.hazard("C17.2")
def test_a_call_without_a_result_is_shown_as_interrupted() -> None:
    update = folded([call(1)]).replay()[-1]
    assert update["status"] == "failed"
    assert update["content"] == [words(INTERRUPTED)]


def test_a_result_is_shown_with_its_content_and_raw_output() -> None:
    update = folded([call(1), result(1, "done", content=[DIFF], raw={"n": 1})]).replay()[-1]
    assert update["content"] == [DIFF]
    assert update["rawOutput"] == {"n": 1}
    assert folded([call(1), result(1, "done")]).replay()[-1]["content"] == [words("done")]
    assert folded([call(1), result(1, "done", content=[])]).replay()[-1]["content"] == []


@pytest.mark.hazard("R7.1")
def test_a_terminal_is_replayed_as_its_text() -> None:
    history = folded(
        [call(1, content=[TERMINAL, DIFF]), result(1, "exit 0", content=[TERMINAL, DIFF])]
    )
    start, end = history.replay()
    assert start["content"] == [DIFF]
    assert end["content"] == [DIFF, words("exit 0")]


def test_the_last_plan_of_each_turn_is_replayed_in_its_place() -> None:
    def plan(name: str) -> Record:
        return {"t": "plan", "entries": [{"content": name}]}

    first = [user("a"), call(1), plan("1"), result(1, ""), call(2), plan("2"), plan("3")]
    history = folded([*first, result(2, ""), text("done"), user("b"), plan("4"), text("so")])
    shown = [u.get("entries", u["sessionUpdate"]) for u in history.replay()]
    assert shown == [
        "user_message_chunk",
        *["tool_call", "tool_call_update"] * 2,
        [{"content": "3"}],
        "agent_message_chunk",
        "user_message_chunk",
        "agent_message_chunk",
        [{"content": "4"}],
    ]


def test_what_was_spent_is_the_sum_of_what_is_known() -> None:
    assert folded([]).spent == Spent(None, 0)
    assert folded([usage(10, 2)]).spent == Spent(None, 12, 10, 2)
    spent = [usage(10, 2, 0.5), usage(100, 20, None), usage(7, 7, 0.25, "summary")]
    assert folded(spent).spent == Spent(0.75, 120, 117, 29)


def test_a_count_belongs_to_what_the_model_was_given() -> None:
    first = [user("a"), usage(10, 2), call(1)]
    assert folded(first).measured == (10, 1)
    after = [*first, result(1, "r"), usage(20, 2)]
    assert folded(after).measured == (20, 2)
    assert folded([*after, call(2), result(2, "r"), text("x"), usage(30, 2)]).measured == (30, 3)
    assert folded([*after, {"t": "trim", "cards": []}]).measured is None


def test_the_tools_that_were_used_are_known_but_not_those_that_never_were() -> None:
    history = folded([call(1, "shell"), call(2, "mcp__a__b"), call(3, "shell"), call(4, "dance")])
    for number in (1, 2, 3):
        history.fold(result(number, "done"))
    history.fold({**result(4, "There is no tool named dance."), "status": "failed"})
    assert history.tool_names == {"shell", "mcp__a__b"}
    assert history.next_card == "call-5"


def test_a_tool_was_used_too_if_its_call_failed_or_has_no_result() -> None:
    history = folded([call(1, "a"), call(2, "b"), {**result(1, "no"), "status": "failed"}])
    assert history.tool_names == {"a", "b"}


def test_the_last_decision_on_each_thing_holds() -> None:
    decisions = folded(
        [
            *({"t": "chosen", "option": "mode", "value": value} for value in ("auto", "ask")),
            {"t": "chosen", "option": "model", "value": "m"},
            {"t": "always", "key": ["edit", False, "", "/p"], "allow": True},
            {"t": "always", "key": ["edit", True, "", "/p"], "allow": True},
            {"t": "always", "key": ["edit", False, "", "/p"], "allow": False},
            # what is not well formed decides nothing
            {"t": "chosen", "option": "mode", "value": True},
            {"t": "chosen", "value": "auto"},
            {"t": "always", "key": ["edit", 7], "allow": True},
            {"t": "always", "key": ["edit", ["x"]], "allow": True},
            {"t": "always", "key": "edit", "allow": True},
            {"t": "always", "key": ["read"], "allow": 1},
        ]
    ).decisions
    assert decisions.chosen == {"mode": "ask", "model": "m"}
    assert decisions.always == {
        ("edit", False, "", "/p"): False,
        ("edit", True, "", "/p"): True,
    }


def test_a_title_is_the_first_line_shortened() -> None:
    assert title_of("\n Mend it\nnow") == "Mend it"
    assert len(title_of("x" * 500)) == 60
    assert folded([text("x")]).title is None
    assert folded([user("Mend it"), user("now")]).title == "Mend it"
