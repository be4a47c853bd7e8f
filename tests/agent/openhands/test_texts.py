"""Deltas and whole messages: each word is shown once, whatever was cut."""

from hypothesis import given
from hypothesis import strategies as st

from agent.client import Update
from agent.openhands.texts import Texts


def said(updates: list[Update], kind: str = "agent_message_chunk") -> list[tuple[str, str]]:
    return [
        (update["content"]["text"], update["messageId"])
        for update in updates
        if update["sessionUpdate"] == kind
    ]


def live() -> Texts:
    texts = Texts()
    texts.boundary()
    return texts


def test_of_a_message_only_what_follows_its_deltas_is_shown_under_the_same_id() -> None:
    texts = live()
    assert said(texts.delta("A0 ", "", "d1")) == [("A0 ", "d1")]
    assert said(texts.delta("A1 ", "", "d2")) == [("A1 ", "d1")]
    assert said(texts.whole(("A0 A1 A2",), "", "m1")) == [("A2", "d1")]
    assert said(texts.delta("B0 ", "", "d3")) == [("B0 ", "d3")]


def test_another_text_than_the_deltas_is_a_message_of_its_own() -> None:
    texts = live()
    texts.delta("A0 A", "", "d1")
    assert said(texts.whole(("B0 B1",), "", "m1")) == [("B0 B1", "m1")]


def test_a_message_whose_deltas_said_all_of_it_shows_nothing_more_whatever_blanks_it_has() -> None:
    texts = live()
    texts.delta("A0 A1 ", "", "d1")
    assert texts.whole(("A0 A1",), "", "m1") == []


def test_thoughts_and_words_are_told_apart() -> None:
    texts = live()
    updates = texts.delta("", "why ", "d1") + texts.delta("so ", "", "d2")
    assert said(updates, "agent_thought_chunk") == [("why ", "d1-thought")]
    rest = texts.whole(("so it is",), "why not", "m1")
    assert said(rest) == [("it is", "d2")]
    assert said(rest, "agent_thought_chunk") == [("not", "d1-thought")]


def test_after_a_gap_deltas_are_dropped_until_the_live_feed_has_told_a_message() -> None:
    texts = live()
    texts.delta("A0 ", "", "d1")
    texts.gap()
    assert texts.delta("A2 ", "", "d2") == []
    assert said(texts.whole(("A0 A1 A2 A3",), "", "m1")) == [("A1 A2 A3", "d1")]
    assert texts.delta("A3", "", "d3") == []  # late: of the message that was told already
    texts.boundary()
    assert said(texts.delta("B0 ", "", "d4")) == [("B0 ", "d4")]


def test_what_was_streamed_before_a_stop_is_not_taken_for_the_next_message() -> None:
    texts = live()
    texts.delta("A0 ", "", "d1")
    texts.clear()
    assert said(texts.whole(("A0 again",), "", "m2")) == [("A0 again", "m2")]


def test_words_that_end_the_turn_are_shown_once_beside_those_before_the_call() -> None:
    texts = live()
    texts.delta("Done", "", "d1")
    assert texts.whole(("Done", "Done"), "", "m1") == []
    assert said(texts.whole(("I finish.", "All is well."), "", "m2")) == [
        ("I finish.", "m2"),
        ("All is well.", "m2-1"),
    ]


def test_what_stands_between_splits_a_message_but_is_not_forgotten() -> None:
    texts = live()
    texts.delta("One. ", "", "d1")
    texts.split()
    assert said(texts.delta("Two. ", "", "d2")) == [("Two. ", "d2")]
    assert said(texts.whole(("", "One. Two. Three."), "", "m1")) == [("Three.", "d2")]


@given(st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=8), st.data())
def test_with_cuts_anywhere_the_shown_chunks_are_the_message(
    deltas: list[str], data: st.DataObject
) -> None:
    """A cut loses some deltas, and the next connection brings the later ones only."""
    texts, whole, shown = live(), "".join(deltas), ""
    lost_from = data.draw(st.integers(0, len(deltas)))
    back_at = data.draw(st.integers(lost_from, len(deltas)))
    for number, part in enumerate(deltas):
        if number == lost_from:
            texts.gap()
        if number < lost_from or number >= back_at:
            shown += "".join(text for text, _ in said(texts.delta(part, "", f"d{number}")))
    shown += "".join(text for text, _ in said(texts.whole((whole,), "", "m")))
    assert shown.strip() == whole.strip()
