"""`/queue`: what is one, and how prompts are named in a list."""

from typing import Any

import pytest

from acp_bridge.session.queue_command import held_note, parse, summary


def text(words: str) -> list[Any]:
    return [{"type": "text", "text": words}]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (text("/queue"), []),
        (text("  /queue\n"), []),
        (text("/queue run"), ["run"]),
        (text("/queue  drop  2 "), ["drop", "2"]),
        (text("/queued"), None),
        (text("say /queue"), None),
        (text("queue"), None),
        (text(""), None),
        (text("/queue") + text("run"), None),
        ([{"type": "image", "data": "/queue"}], None),
        ([{"type": "text", "text": None}], None),
        (["/queue"], None),
    ],
)
def test_a_prompt_is_a_queue_command_when_it_is_that_word_alone_or_with_more_behind_it(
    prompt: list[Any], words: list[str] | None
) -> None:
    assert parse(prompt) == words


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (text("one\n two\t3"), "one two 3"),
        (text("x" * 20), "x" * 10 + "…"),
        (text("x" * 11), "x" * 11),
        ([{"type": "image"}, *text("a"), *text("b")], "a b"),
        ([{"type": "image"}], ""),
        (["odd"], ""),
    ],
)
def test_a_prompt_is_summed_up_in_one_line_of_bounded_length(prompt: list[Any], told: str) -> None:
    assert summary(prompt, 11) == told


@pytest.mark.hazard("R12")
def test_the_note_about_held_prompts_numbers_them_and_says_what_to_do() -> None:
    one, two = {"prompt": text("first")}, {"prompt": text("second " * 40)}
    assert "1 prompt was waiting" in held_note([one])
    note = held_note([one, two])
    assert "2 prompts were waiting" in note
    assert "\n  1. first\n  2. second second" in note
    assert max(map(len, note.splitlines())) <= 80
    assert "/queue run" in note
    assert "/queue drop [number]" in note
