"""What the bridge itself says: one form, marked, and each prompt named in one short line."""

import re
from typing import Any

import pytest

from acp_bridge.core.protocol import own_meta
from acp_bridge.core.updates import notices

Json = dict[str, Any]
SENTENCES = [
    notices.UNRECORDED,
    notices.INTERRUPTED,
    notices.FORGOT_YOUNG,
    notices.MEMORY_LOST,
    notices.NOT_READY,
]


def text(words: str) -> list[Any]:
    return [{"type": "text", "text": words}]


def prompt(words: str) -> Json:
    return {"sessionId": "s", "prompt": text(words)}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (text("one\n two\t3"), "one two 3"),
        (text("x" * 20), "x" * 10 + "…"),
        (text("x" * 11), "x" * 11),
        ([{"type": "image"}, *text("a"), *text("b")], "a b"),
        ([{"type": "image"}], ""),
        (["odd"], ""),
        ([{"type": "text", "text": 5}, *text("\ud800")], "5 \ud800"),
    ],
)
def test_a_prompt_is_summed_up_in_one_line_of_bounded_length(given: list[Any], told: str) -> None:
    assert notices.summary(given, 11) == told


@pytest.mark.hazard("R12.2")
def test_the_notice_of_left_over_prompts_numbers_them_and_says_what_to_do() -> None:
    one, two = prompt("first"), prompt("second " * 40)
    assert "1 prompt was waiting" in notices.left_over([(7, one)])
    said = notices.left_over([(7, one), (3, two)])
    assert "2 prompts were waiting" in said
    assert "\n\n- 7: first\n- 3: second second" in said
    assert max(map(len, said.splitlines())) <= 80
    assert "`/queue run`" in said
    assert "`/queue drop [NUMBER]`" in said


@pytest.mark.hazard("R12", "Q1.1")
def test_the_queue_is_told_in_order_with_what_is_left_over_apart() -> None:
    assert notices.queue([], []) == "Nothing is waiting."
    a, b, h = (5, prompt("a")), (4, prompt("b")), (2, prompt("h"))
    assert notices.queue([a, b], []) == "2 waiting.\n\n- 5: a\n- 4: b"
    assert notices.queue([a], [h]) == (
        "1 waiting.\n\n- 5: a\n\nLeft over since a restart:\n\n- 2: h\n\n"
        "`/queue run` runs them, `/queue drop [NUMBER]` forgets."
    )
    assert "Nothing is waiting.\n\nLeft over" in notices.queue([], [h])


def test_dropping_says_how_many_were_dropped_or_what_could_not_be() -> None:
    assert notices.dropped(2) == "Dropped 2."
    assert notices.dropped(0) == notices.NOTHING_LEFT


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_notice_is_an_agent_message_of_its_own_marked_as_the_bridges(sentence: str) -> None:
    assert sentence.startswith("[acp-bridge] ")
    first, second = notices.notice(sentence), notices.notice(sentence)
    assert own_meta(first) == {"notice": True}
    assert first["update"]["sessionUpdate"] == "agent_message_chunk"
    # It is a paragraph of its own, also where clients join messages and look at no ids.
    assert first["update"]["content"] == {"type": "text", "text": f"\n\n{sentence}\n\n"}
    assert first["update"]["messageId"] != second["update"]["messageId"]
    assert first["update"]["messageId"].startswith("acp-bridge-")


def test_no_notice_has_a_word_of_the_wire() -> None:
    said = [
        value
        for name, value in vars(notices).items()
        if isinstance(value, str) and " " in value and not name.startswith("__")
    ]
    assert len(said) > 30
    assert [each for each in said if re.search(r"_acp_bridge/|\bsession/[a-z]|_meta\b", each)] == []


def test_a_kill_names_a_few_of_the_programs_that_end_with_it_and_counts_the_others() -> None:
    assert "What it had started" not in notices.killed_at_work([])
    named = notices.killed_at_work(["a`b", *"cdefgh"])
    assert named.endswith("ends with it: `a'b`, `c`, `d`, `e`, `f`, 2 more.")
