"""The history folded from records: well formed after any of them."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.history import INTERRUPTED, History, Record, title_of

cards = st.integers(0, 4).map(lambda n: f"call-{n}")
texts = st.text(max_size=5)
blocks = st.fixed_dictionaries({"type": st.just("text"), "text": texts})
records = st.one_of(
    st.builds(lambda b: {"t": "user", "blocks": b}, st.lists(blocks, max_size=2)),
    st.builds(lambda d: {"t": "text", "d": d}, texts),
    st.builds(lambda d: {"t": "reasoning", "d": d}, texts),
    st.builds(
        lambda card: {
            "t": "call",
            "id": card,
            "name": "shell",
            "arguments": "{}",
            "card": {"toolCallId": card, "title": "t"},
        },
        cards,
    ),
    st.builds(
        lambda card, text: {"t": "result", "card": card, "status": "completed", "text": text},
        cards,
        texts,
    ),
    st.dictionaries(st.sampled_from(["t", "d", "card"]), st.sampled_from(["text", "user", 7])),
)


def folded(records: Sequence[Record]) -> History:
    history = History()
    for record in records:
        history.fold(record)
    return history


@pytest.mark.hazard("C17", "K2")
@given(st.lists(records))
def test_whatever_was_recorded_every_call_is_followed_by_its_result(found: list[Record]) -> None:
    waiting: list[str] = []
    for message in folded(found).messages():
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls", [])]
    assert not waiting


@pytest.mark.hazard("C16")
@given(st.lists(records))
def test_whatever_was_recorded_a_replay_ends_every_card_it_opens(found: list[Record]) -> None:
    opened: list[str] = []
    for update in folded(found).replay():
        if update["sessionUpdate"] == "tool_call":
            opened.append(update["toolCallId"])
        elif update["sessionUpdate"] == "tool_call_update":
            assert opened.pop() == update["toolCallId"]
            assert update["status"] in ("completed", "failed")
    assert not opened


@pytest.mark.hazard("R1")
def test_a_replay_shows_messages_not_tokens() -> None:
    history = folded(
        [
            {"t": "user", "blocks": [{"type": "text", "text": "hi"}]},
            {"t": "reasoning", "d": "h"},
            {"t": "reasoning", "d": "m"},
            {"t": "text", "d": "a"},
            {"t": "text", "d": "b"},
        ]
    )
    shown = [(u["sessionUpdate"], u["content"]["text"]) for u in history.replay()]
    assert shown == [
        ("user_message_chunk", "hi"),
        ("agent_thought_chunk", "hm"),
        ("agent_message_chunk", "ab"),
    ]
    assert list(history.replay()) == list(history.replay())


@pytest.mark.hazard("C17")
def test_a_call_without_a_result_was_interrupted() -> None:
    card = {"toolCallId": "call-1", "title": "t"}
    call: dict[str, Any] = {"t": "call", "id": "c", "name": "shell", "arguments": "{}"}
    history = folded([{**call, "card": card}])
    assert history.messages()[-1]["content"] == INTERRUPTED
    assert list(history.replay())[-1]["status"] == "failed"


def test_a_title_is_the_first_line_shortened() -> None:
    assert title_of("\n Mend it\nnow") == "Mend it"
    assert len(title_of("x" * 500)) == 60
