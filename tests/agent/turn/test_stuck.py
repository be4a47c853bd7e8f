"""Which histories are those of a model that goes round in circles: both sides of each limit."""

from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from agent.conversation.entries import Record
from agent.turn.stuck import WINDOW, Circle, announces, circle
from tests.agent.conversation.records import call, folded, result, text, user

#: a call and its result, several of one answer, or what an answer says
Step = tuple[str, str] | list[tuple[str, str]] | str


def records(steps: Sequence[Step]) -> Iterator[Record]:
    """Yields the records of a turn. A result that begins with "!" is that of a failed call."""
    numbers = count(1)
    for step in steps:
        if isinstance(step, str):
            yield user(step[1:]) if step.startswith(">") else text(step)
            continue
        pairs = step if isinstance(step, list) else [step]
        numbered = [(next(numbers), *pair) for pair in pairs]
        for number, what, _ in numbered:
            yield call(number, "shell", f'{{"command": "{what}"}}')
        for number, _, came in numbered:
            status = "failed" if came.startswith("!") else "completed"
            yield {**result(number, came), "status": status}


def found(*steps: Step) -> Circle | None:
    return circle(folded([user("go"), *records(steps)]).entries)


A, B, C, BAD = ("a", "1"), ("b", "2"), ("c", "3"), ("a", "!no")
SAY = "I will run the tests now."


@pytest.mark.parametrize(
    ("steps", "is_circle"),
    [
        ([A] * 3, None),
        ([A] * 4, Circle.EQUAL),
        ([A] * 5, Circle.EQUAL),
        ([B, *[A] * 4], Circle.EQUAL),
        ([*[A] * 4, B], None),
        ([A, A, B, A, A], None),
        ([("log", f"line {n}") for n in range(9)], None),
        ([A, A, A, ("a", "other")], None),
        ([*[A] * 4, "That is all."], None),
        ([BAD] * 2, None),
        ([BAD] * 3, Circle.FAILING),
        ([BAD] * 4, Circle.FAILING),
        ([A, BAD, BAD], None),
        ([BAD, A, BAD, BAD], None),
        ([("a", f"!no {n}") for n in range(9)], None),
        ([A, B, A, B, A], None),
        ([A, B, A, B, A, B], Circle.ALTERNATING),
        ([B, A, B, A, B, A, B], Circle.ALTERNATING),
        ([C, A, B, A, B, A, B], Circle.ALTERNATING),
        ([A, B, C, A, B, C, A, B, C], None),
        ([A, B, A, ("b", "new"), A, B], None),
        ([[A, B], [A, B]], None),
        ([[A, B], [A, B], [A, B]], Circle.ALTERNATING),
        ([[A, B, C]] * 3, None),
        ([[A, B, C]] * 4, Circle.EQUAL),
        ([[BAD, ("b", "!no"), ("c", "!no")]] * 3, Circle.FAILING),
        ([SAY, SAY], None),
        ([SAY, ">go on", SAY, ">go on", SAY], Circle.ANNOUNCING),
        ([SAY, ">go on", SAY, ">go on", SAY, ">go on", SAY], Circle.ANNOUNCING),
        ([SAY, ">go on", SAY, ">go on", "All is done."], None),
        ([SAY, ">go on", "All is done.", ">go on", SAY, ">go on", SAY], None),
        ([SAY, ">go on", A, ">go on", SAY, ">go on", SAY], None),
        ([], None),
    ],
)
def test_each_limit_counts_from_the_end(steps: list[Step], is_circle: Circle | None) -> None:
    assert found(*steps) == is_circle


@pytest.mark.parametrize("steps", [[A] * 4, [BAD] * 3, [A, B, A, B, A, B]])
def test_a_new_prompt_begins_anew(steps: list[Step]) -> None:
    assert found(*steps[:-1], ">again", steps[-1]) is None
    assert found(">again", *steps) is not None


def test_arguments_are_equal_as_json_values() -> None:
    told = ['{"a": 1, "b": [2]}', '{"b":[2],"a":1}', '{"a":1,"b":[2]}', '{ "a": 1, "b": [2] }']
    made = [r for n, t in enumerate(told) for r in (call(n, "x", t), result(n, "same"))]
    assert circle(folded([user("go"), *made]).entries) is Circle.EQUAL
    made[-2] = call(3, "x", '{"a": true, "b": [2]}')
    assert circle(folded([user("go"), *made]).entries) is None


def test_a_call_without_a_result_is_equal_to_no_other() -> None:
    made: list[Record] = []
    for number in range(4):
        made += [call(number), user("again")] if number == 3 else [call(number), result(number, "")]
    assert circle(folded([user("go"), *made[:-1]]).entries) is None


def test_results_are_equal_if_their_images_are() -> None:
    made = [r for n in range(4) for r in (call(n), result(n, "seen", images=["data:a"]))]
    assert circle(folded([user("go"), *made]).entries) is Circle.EQUAL
    made[-1] = result(3, "seen", images=["data:b"])
    assert circle(folded([user("go"), *made]).entries) is None


def test_a_command_that_ends_with_an_error_has_failed() -> None:
    def commands(code: int | None) -> list[Record]:
        raw = {"exitCode": code, "output": "no"}
        return [r for n in range(3) for r in (call(n), result(n, "no", raw=raw))]

    assert circle(folded([user("go"), *commands(1)]).entries) is Circle.FAILING
    assert circle(folded([user("go"), *commands(None)]).entries) is Circle.FAILING
    assert circle(folded([user("go"), *commands(0)]).entries) is None


def test_results_that_were_left_out_for_the_model_are_still_compared() -> None:
    cards = [f"call-{number}" for number in range(1, 4)]
    trimmed = [*records([A] * 3), {"t": "trim", "cards": cards}]
    last = [call(9, "shell", '{"command": "a"}'), result(9, "1")]
    assert circle(folded([user("go"), *trimmed, *last]).entries) is Circle.EQUAL


def test_what_the_model_was_told_is_no_step_of_its_own() -> None:
    note = {"t": "note", "text": "You go round in circles."}
    last = [call(9, "shell", '{"command": "a"}'), result(9, "1")]
    assert circle(folded([user("go"), *records([A] * 3), note, *last]).entries) is Circle.EQUAL


# room


@pytest.mark.parametrize(
    ("steps", "compactions", "is_circle"),
    [
        ([A, B, A], [2], None),
        ([A, B, A], [3, 4], Circle.COMPACTING),
        ([A, B, A, B], [3, 4, 5], Circle.COMPACTING),
        ([A, B, C], [3, 4], None),
        ([A, B, A, C], [3, 4], None),
        ([A, B, A], [2, 4], None),
        ([A, B], [3, 3], Circle.COMPACTING),
        ([A, B], [1, 2], None),
    ],
)
def test_two_compactions_without_a_call_that_is_new_are_a_circle(
    steps: list[Step], compactions: list[int], is_circle: Circle | None
) -> None:
    """The places count the entries: 1 is behind the prompt."""
    entries = folded([user("go"), *records(steps)]).entries
    assert circle(entries, compactions) == is_circle


def test_compactions_of_earlier_turns_do_not_count() -> None:
    entries = folded([user("go"), *records([A, A]), user("again"), *records([A])]).entries
    assert circle(entries, [2, 3]) is None
    assert circle(entries, [2, 5]) is None


def test_a_call_that_was_made_before_the_last_entries_is_new() -> None:
    def again_behind(others: int) -> Circle | None:
        steps = [A, *((f"{n}", "") for n in range(others)), A]
        entries = folded([user("go"), *records(steps)]).entries
        return circle(entries, [len(entries) - 1, len(entries)])

    assert again_behind(WINDOW - 2) is Circle.COMPACTING
    assert again_behind(WINDOW - 1) is None


# announcements


@pytest.mark.parametrize(
    "said",
    [
        "I'll read the file.",
        "The test fails. Let me look at the cause.",
        "Now I will run it.",
        "Okay, next I\u2019m going to edit `a.py`.",
        "First, let me search:",
        "Running the tests\u2026",
        "Calling read_file now.",
        'I do it: {"name": "read_file", "arguments": {"path": "a"}}',
        "<tool_call>\nread_file\n</tool_call>",
        "**Let me check that.**",
        "Ich werde die Tests ausf\u00fchren.",
    ],
)
def test_an_answer_that_ends_with_what_comes_next_announces_a_call(said: str) -> None:
    assert announces(said)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Done.",
        "I ran the tests: all pass.",
        "Let me know if you want more.",
        "I'll wait for your answer.",
        "I will go on once you have decided.",
        "Shall I go on?",
        "I'll do it? No: it is done already.",
        "Let me explain. A queue is a list of things that wait.",
        "The file has:\n- one line",
        "Run this:\n```\nmake\n```",
    ],
)
def test_other_answers_announce_none(said: str) -> None:
    assert not announces(said)


def test_a_provider_s_word_that_a_call_follows_announces_one() -> None:
    said = [user("go"), text("Hm."), {"t": "announced"}]
    assert circle(folded(said * 3).entries) is Circle.ANNOUNCING
    assert circle(folded(said * 2).entries) is None


def test_a_prompt_is_answered_before_anything_is_said_of_the_answers_before_it() -> None:
    assert found(SAY, ">go on", SAY, ">go on", SAY, ">go on") is None


def test_an_answer_that_no_model_is_given_any_more_is_not_counted() -> None:
    def told(end: list[Record]) -> Circle | None:
        return circle(folded([user("go"), text(SAY), *end, *[user("go"), text(SAY)] * 2]).entries)

    assert told([]) is Circle.ANNOUNCING
    assert told([{"t": "refused"}]) is None
