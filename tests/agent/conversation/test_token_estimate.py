"""Tokens told without a tokenizer."""

from typing import Any

import pytest

from agent.conversation.entries import Record
from agent.conversation.history import History
from agent.conversation.messages import TRIMMED
from agent.conversation.token_estimate import IMAGE_TOKENS, USUAL_RATE, TokenEstimate
from tests.agent.conversation.records import (
    IMAGE,
    call,
    folded,
    reasoning,
    result,
    text,
    usage,
    user,
)

SPECS = [{"type": "function", "function": {"name": "f", "description": "d" * 3_900}}]


def estimate(
    *found: Record, specs: Any = (), images: bool = True, rate: float = USUAL_RATE
) -> TokenEstimate:
    return TokenEstimate(folded(found), specs, images=images, rate=rate)


def test_everything_that_is_sent_counts() -> None:
    arguments = '{"a": "' + "a" * 391 + '"}'
    told = [user("u" * 400), reasoning("r" * 400), text("t" * 400), call(1, "tool", arguments)]
    assert estimate(*told, result(1, "x" * 400)).tokens() == round((5 * 400 + len("tool")) / 4)
    empty = estimate(specs=SPECS).tokens()
    assert empty == pytest.approx(1_000, rel=0.02)


def test_an_image_counts_if_the_model_takes_it() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "A" * 100_000}
    with_image = user("u", image), call(1), result(1, "", images=[IMAGE])
    assert 2 * IMAGE_TOKENS <= estimate(*with_image).tokens() < 2 * IMAGE_TOKENS + 50
    assert estimate(*with_image, images=False).tokens() < 50


def test_what_trimming_saves_is_what_the_note_does_not_take() -> None:
    history = folded([user("u"), call(1), result(1, "x" * 4_000, images=[IMAGE]), call(2)])
    measured = TokenEstimate(history, (), images=True)
    before = measured.tokens()
    first, second = (c for entry in history.entries[1:] for c in getattr(entry, "calls", ()))
    saved = measured.of_result(first)
    history.fold({"t": "trim", "cards": ["call-1"]})
    assert before - measured.tokens() == pytest.approx(saved, abs=10)
    assert measured.of_result(first) == 0
    assert measured.of_result(second) == 0
    assert len(TRIMMED) < 100


def test_a_count_tells_the_rate_of_what_it_was_for() -> None:
    told = [user("u" * 8_000), text("a" * 50_000), usage(4_000, 1)]
    assert estimate(*told).rate == pytest.approx(0.5)
    assert estimate(*told, specs=SPECS).rate == pytest.approx(4_000 / 12_000, rel=0.02)
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    seen = [user("u" * 8_000, image), text("a"), usage(4_000 + IMAGE_TOKENS, 1)]
    assert estimate(*seen).rate == pytest.approx(0.5, rel=0.01)


def test_without_the_tools_a_count_tells_nothing() -> None:
    told = [user("u" * 8_000), text("a"), usage(4_000, 1)]
    assert estimate(*told, specs=None, rate=0.3).rate == 0.3


def test_a_count_of_little_tells_nothing() -> None:
    assert estimate(user("u" * 100), text("a"), usage(100, 1), rate=0.3).rate == 0.3


@pytest.mark.parametrize(("count", "rate"), [(1, 0.1), (1_000_000, 1.5)])
def test_a_count_that_can_not_be_is_bounded(count: int, rate: float) -> None:
    assert estimate(user("u" * 8_000), text("a"), usage(count, 1)).rate == rate


def test_a_gauge_sees_what_was_said_since() -> None:
    history = History()
    measured = TokenEstimate(history, (), images=True)
    assert measured.tokens() == 0
    history.fold(user("u" * 400))
    assert measured.tokens() == 100
