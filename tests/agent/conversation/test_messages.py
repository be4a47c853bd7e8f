"""What the model is given: well formed after any records, and the same after a reload."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.conversation.entries import INTERRUPTED, Record
from agent.conversation.messages import PLANNED, PLANNING, TRIMMED
from agent.model import Message
from tests.agent.conversation.records import (
    IMAGE,
    assert_well_formed,
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

PICTURE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
SEEN = {"type": "image_url", "image_url": {"url": IMAGE}}


def summary(entries: int, text: str = "so far") -> Record:
    return {"t": "summary", "text": text, "entries": entries}


def said(messages: list[Message]) -> list[tuple[str, Any]]:
    return [(m["role"], m["content"]) for m in messages]


@pytest.mark.hazard("C17.1", "K2")
@given(st.lists(records), st.booleans())
def test_whatever_was_recorded_the_messages_are_well_formed(
    found: list[Record], images: bool
) -> None:
    history = folded(found)
    assert_well_formed(history.messages(images=images))
    for upto in range(len(history.entries)):
        assert_well_formed(history.messages(images=images, upto=upto))
    if not images:
        assert "image_url" not in str(history.messages(images=False))


def test_all_of_a_turn_is_given_in_order() -> None:
    history = folded(
        [
            {"t": "system", "text": "old"},
            {"t": "system", "text": "You are."},
            user("list"),
            reasoning("hm"),
            text("One "),
            text("moment"),
            {"t": "provider", "d": {"signed": "hm!"}},
            usage(1, 1),
            call(1, "shell", '{"command": "ls"}'),
            call(2),
            result(2, "b"),
            result(1, "a"),
            text("Done"),
        ]
    )
    function = {"name": "shell", "arguments": '{"command": "ls"}'}
    assert history.messages() == [
        {"role": "system", "content": "You are."},
        {"role": "user", "content": "list"},
        {
            "role": "assistant",
            "content": "One moment",
            "reasoning_content": "hm",
            "provider": {"signed": "hm!"},
            "tool_calls": [
                {"id": "c1", "type": "function", "function": function},
                {"id": "c2", "type": "function", "function": {"name": "shell", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "tool", "tool_call_id": "c2", "content": "b"},
        {"role": "assistant", "content": "Done"},
    ]


def test_answers_that_are_calls_alone_are_not_run_together() -> None:
    messages = folded([user("go"), call(1), result(1, "a"), call(2), result(2, "b")]).messages()
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize(
    "written", ['{"path": "a', "[1]", "", "nonsense", '{"n": NaN}', "[" * 9999]
)
def test_arguments_that_are_no_object_are_given_back_in_one(written: str) -> None:
    """Providers parse them, and one that can't would refuse every later request."""
    answer = folded([user("go"), call(1, "note", written)]).messages()[1]
    given = json.loads(answer["tool_calls"][0]["function"]["arguments"])
    assert given == ({"invalid": written} if written else {})


def test_a_name_or_an_id_that_no_provider_takes_is_mended() -> None:
    odd = [{**call(n, name), "id": id} for n, name, id in [(1, "a b.c", "x"), (2, "", "")]]
    again = {**call(3), "id": "x"}
    turn = [user("go"), *odd, result(1, "1"), result(2, "2"), again, result(3, "3")]
    messages = folded(turn).messages()
    calls = [c for m in messages for c in m.get("tool_calls", [])]
    assert [c["function"]["name"] for c in calls] == ["a_b_c", "unnamed", "shell"]
    assert [c["id"] for c in calls] == ["x", "call-2-1", "call-3-2"]
    assert_well_formed(messages)


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_no_text_is_blank(blank: str) -> None:
    """Anthropic refuses such a request, and it would be repeated with each later prompt."""
    history = folded(
        [user(blank), text("a"), user(blank, PICTURE), text(blank), call(1), result(1, blank)]
    )
    assert said(history.messages()) == [
        ("user", "(nothing)"),
        ("assistant", "a"),
        ("user", [SEEN]),
        ("assistant", ""),
        ("tool", "(no output)"),
    ]


@pytest.mark.hazard("C17")
def test_what_was_streamed_before_an_interruption_stays() -> None:
    streamed = folded([user("go"), reasoning("hm"), text("I am abo"), user("go on")])
    assert said(streamed.messages()) == [
        ("user", "go"),
        ("assistant", "I am abo"),
        ("user", "go on"),
    ]
    cut = folded([user("go"), call(1), user("go on")])
    assert said(cut.messages())[2:] == [("tool", INTERRUPTED), ("user", "go on")]


@pytest.mark.parametrize("nothing", [[reasoning("hm")], [text("")], [text("\n")]])
def test_an_answer_that_says_nothing_is_left_out(nothing: list[Record]) -> None:
    assert said(folded([user("go"), *nothing, user("so?")]).messages()) == [
        ("user", "go"),
        ("user", "so?"),
    ]


def test_the_model_is_told_that_it_is_to_plan_and_when_no_longer() -> None:
    modes = ["ask", "plan", "plan", "edit", "edit"]
    prompts = [{**user(str(n)), "mode": mode} for n, mode in enumerate(modes)]
    history = folded([user("old"), *prompts])
    assert said(history.messages()) == [
        ("user", "old"),
        ("user", "0"),
        ("user", f"1\n{PLANNING}"),
        ("user", f"2\n{PLANNING}"),
        ("user", f"3\n{PLANNED}"),
        ("user", "4"),
    ]
    history.fold(summary(4))
    assert history.messages()[1]["content"] == f"3\n{PLANNED}"
    assert PLANNING not in str(history.replay())
    assert history.title == "old"


def test_images_of_prompts_and_tools_are_given_or_noted() -> None:
    history = folded([user("see", PICTURE), call(1), call(2), result(1, "", images=[IMAGE])])
    history.fold(result(2, "b"))
    prompt, _, first, second, shown = history.messages()
    assert prompt["content"] == [{"type": "text", "text": "see"}, SEEN]
    assert (first["content"], second["content"]) == ("(no output)", "b")
    assert shown["role"] == "user"
    assert shown["content"] == [{"type": "text", "text": "What the tools showed:"}, SEEN]
    blind = said(history.messages(images=False))
    assert blind[0] == ("user", "see\n(an image, not shown)")
    assert "can't see" in blind[2][1]
    assert len(blind) == 4


def test_who_is_given_messages_can_t_change_what_the_next_is_given() -> None:
    history = folded([user("see", PICTURE)])
    (prompt,) = history.messages()
    assert isinstance(prompt["content"], list)
    prompt["content"].pop()
    prompt["content"][0]["text"] = "else"
    assert history.messages()[0]["content"] == [{"type": "text", "text": "see"}, SEEN]


def test_a_trimmed_result_is_a_note_and_its_images_are_gone() -> None:
    history = folded([user("go"), call(1), call(2), result(1, "long", images=[IMAGE])])
    history.fold({"t": "trim", "cards": ["call-1", "call-2", "call-9", 7]})
    history.fold(result(2, "b"))
    assert said(history.messages())[2:] == [("tool", TRIMMED), ("tool", "b")]
    assert history.replay()[2]["content"][0]["content"]["text"] == "long"


def test_a_summary_stands_for_the_first_entries() -> None:
    turns = [user("one"), text("1"), user("two"), text("2")]
    history = folded([{"t": "system", "text": "You are."}, *turns, summary(2)])
    system, stands, *rest = said(history.messages())
    assert system == ("system", "You are.")
    assert stands[0] == "user"
    assert stands[1].endswith("\n\nso far")
    assert rest == [("user", "two"), ("assistant", "2")]
    history.fold(summary(4, "all of it"))
    assert len(history.messages()) == 2
    assert "all of it" in str(history.messages())
    assert "so far" not in str(history.messages())


def test_the_prompt_that_is_being_answered_outlives_a_summary_of_it() -> None:
    turn = [user("one"), text("1"), user("two"), call(1), result(1, "a"), call(2), result(2, "b")]
    history = folded([*turn, summary(4)])
    roles = [m["role"] for m in history.messages()]
    assert roles == ["user", "user", "assistant", "tool"]
    assert history.messages()[1]["content"] == "two"
    before = history.messages()
    history.fold(user("three"))
    assert history.messages()[:-1] == before


def test_a_turn_that_was_refused_is_no_longer_given() -> None:
    """ACP: the prompt and everything after it are not part of the next one."""
    before = [user("one"), text("1")]
    refused = [user("two"), call(1), result(1, "a"), steer("please"), text("I can't")]
    refused = [*refused, {"t": "refused"}]
    history = folded([*before, *refused])
    assert history.messages() == folded(before).messages()
    assert "I can't" in str(history.replay())
    history.fold(user("three"))
    assert said(history.messages())[2:] == [("user", "three")]
    history.fold(summary(4))
    assert said(history.messages())[1:] == [("user", "three")]
    assert folded([{"t": "refused"}]).messages() == []


def test_what_follows_a_summary_of_everything_is_a_new_message() -> None:
    history = folded([user("one"), text("1"), summary(2), text("2")])
    assert said(history.messages())[1:] == [("assistant", "2")]
    assert [u["messageId"] for u in history.replay()] == ["m0", "m1", "m2"]
