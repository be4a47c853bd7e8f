"""Records of transcripts: made by hand, and any sequence of them for properties."""

import json
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from agent.conversation.entries import Record
from agent.conversation.history import History
from agent.model import Message

IMAGE = "data:image/png;base64,AAAA"


def user(text: str, *blocks: dict[str, Any]) -> Record:
    return {"t": "user", "blocks": [{"type": "text", "text": text}, *blocks]}


def steer(text: str) -> Record:
    return {"t": "steer", "blocks": [{"type": "text", "text": text}]}


def text(token: str) -> Record:
    return {"t": "text", "d": token}


def reasoning(token: str) -> Record:
    return {"t": "reasoning", "d": token}


def call(number: int, name: str = "shell", arguments: str = "{}", **card: Any) -> Record:
    shown = {"toolCallId": f"call-{number}", "title": "t", **card}
    return {"t": "call", "id": f"c{number}", "name": name, "arguments": arguments, "card": shown}


def result(number: int, text: str, **more: Any) -> Record:
    return {"t": "result", "card": f"call-{number}", "status": "completed", "text": text, **more}


def usage(given: int, got: int, cost: float | None = None, what: str = "turn") -> Record:
    counts = {"input": given, "output": got, "cached": 0}
    return {"t": "usage", "model": "m", **counts, "cost": cost, "for": what}


def folded(records: Sequence[Record]) -> History:
    history = History()
    for record in records:
        history.fold(record)
    return history


def assert_well_formed(messages: Sequence[Message]) -> None:
    """What every provider wants of its messages."""
    waiting: list[str] = []
    ids: list[str] = []
    for number, message in enumerate(messages):
        assert message["role"] != "system" or number == 0
        assert _says_something(message)
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls", [])]
            ids += waiting
        for call in message.get("tool_calls", []):
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting
    assert all(ids)
    assert len(ids) == len(set(ids))


def _says_something(message: Message) -> bool:
    """No text of it is blank; only an answer with calls may have none."""
    content = message["content"]
    if content == "":
        return bool(message.get("tool_calls"))
    texts = [content] if isinstance(content, str) else [p["text"] for p in content if "text" in p]
    return bool(content) and all(text.strip() for text in texts)


numbers = st.integers(0, 4)
words = st.text(max_size=5) | st.sampled_from([" ", "\n"])
images = st.lists(st.just(IMAGE), max_size=2)
block = st.one_of(
    st.builds(lambda t: {"type": "text", "text": t}, words),
    st.just({"type": "image", "mimeType": "image/png", "data": "AAAA"}),
)
content = st.lists(
    st.sampled_from([{"type": "terminal", "terminalId": "t1"}, {"type": "diff", "path": "/p"}])
)
junk = st.dictionaries(
    st.sampled_from(["t", "d", "card", "blocks", "entries", "cards", "text", "input", "output"]),
    st.sampled_from(
        ["text", "user", "steer", "trim", "summary", "provider", "usage", 7, -7, [], [7], None]
    ),
)
#: any record, whole or not
records = st.one_of(
    st.builds(lambda b: {"t": "user", "blocks": b}, st.lists(block, max_size=2)),
    st.builds(lambda b: {"t": "steer", "blocks": b}, st.lists(block, max_size=2)),
    st.builds(text, words),
    st.builds(reasoning, words),
    st.builds(call, numbers),
    st.builds(call, numbers, words, st.sampled_from(['{"a": "cut', "[1]", "", "{}", "NaN"])),
    st.builds(lambda n, i: {**call(n), "id": i}, numbers, st.sampled_from(["", "c1"])),
    st.builds(lambda n, c: call(n, content=c), numbers, content),
    st.builds(result, numbers, words),
    st.builds(lambda n, c, i: result(n, "r", content=c, images=i), numbers, content, images),
    st.builds(lambda d: {"t": "provider", "d": {"signed": d}}, words),
    st.builds(lambda d: {"t": "system", "text": d}, words),
    st.builds(lambda d: {"t": "plan", "entries": [d]}, words),
    st.builds(usage, numbers, numbers),
    st.builds(lambda n: {"t": "trim", "cards": [f"call-{n}"]}, numbers),
    st.builds(lambda n: {"t": "summary", "text": "s", "entries": n}, st.integers(-1, 9)),
    st.just({"t": "refused"}),
    st.just({"t": "announced"}),
    st.builds(lambda b: {**user("x"), "gone": b}, st.lists(words, max_size=2)),
    st.builds(lambda v: {"t": "chosen", "option": "mode", "value": v}, words),
    st.builds(lambda k: {"t": "always", "key": k, "allow": True}, st.lists(words, max_size=2)),
    st.builds(lambda t: {"t": "note", "text": t}, words),
    st.builds(lambda n, c: {"t": "shown", "card": f"call-{n}", "content": c}, numbers, content),
    junk,
)
