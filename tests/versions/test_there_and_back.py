"""From version 1 to version 2 and back: what a client sees of a session is the same.

The ways of both translators, of the bridge with a client of version 2 and of the bridge with an
agent of version 2, put behind each other.
"""

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.protocol import Json
from acp_bridge.versions.settings_to_v2 import Settings
from acp_bridge.versions.update_to_v1 import Shown
from acp_bridge.versions.update_to_v2 import ToV2

WORDS = st.text(min_size=1, max_size=8)
TEXT_CONTENT = st.builds(
    lambda text: {"type": "content", "content": text},
    st.builds(lambda text: {"type": "text", "text": text}, WORDS),
)
#: of a call: null leaves a member as it is, and so does its absence.
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "title": WORDS,
    "kind": st.sampled_from(["read", "edit", "execute", "other"]),
    "status": st.sampled_from(["pending", "in_progress", "completed", "failed"]),
    "content": st.lists(TEXT_CONTENT, min_size=1, max_size=2),
    "locations": st.lists(st.builds(lambda path: {"path": f"/{path}"}, WORDS), max_size=2),
    "rawInput": st.dictionaries(WORDS, WORDS, min_size=1, max_size=2),
    "rawOutput": st.dictionaries(WORDS, WORDS, min_size=1, max_size=2),
}
CHUNK = st.builds(
    lambda kind, text, own: {
        "sessionUpdate": kind,
        "content": {"type": "text", "text": text},
        **({} if own is None else {"messageId": own}),
    },
    st.sampled_from(["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"]),
    WORDS,
    st.sampled_from([None, None, "m1", "m2"]),
)
CALL = st.builds(
    lambda name, title: {"sessionUpdate": "tool_call", "toolCallId": name, "title": title},
    st.sampled_from("ab"),
    WORDS,
)
CALL_UPDATE = st.builds(
    lambda name, members: {"sessionUpdate": "tool_call_update", "toolCallId": name, **members},
    st.sampled_from("ab"),
    st.fixed_dictionaries({}, optional={k: st.none() | v for k, v in MEMBERS.items()}),
)
PLAN = st.builds(
    lambda words: {
        "sessionUpdate": "plan",
        "entries": [{"content": words, "priority": "low", "status": "pending"}],
    },
    WORDS,
)
UPDATES = st.lists(CHUNK | CALL | CALL_UPDATE | PLAN, max_size=12)


def there_and_back(updates: list[Json]) -> list[Json]:
    there, back = ToV2("made-", Settings()), Shown()
    found: list[Json] = []
    for update in updates:
        for params in there.updates({"sessionId": "s", "update": update}):
            found += back.update(params["update"])
    return [*found, *back.cards.flush()]


def seen(updates: list[Json]) -> Json:
    """What a client of version 1 shows in the end: texts by kind, cards, the last plan."""
    texts: defaultdict[str, str] = defaultdict(str)
    cards: dict[str, Json] = {}
    plan: Any = None
    for update in updates:
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk"):
            texts[kind] += update["content"]["text"]
        elif kind == "plan":
            plan = update["entries"]
        else:
            told = {name: update[name] for name in MEMBERS if update.get(name) is not None}
            before = {} if kind == "tool_call" else cards.get(update["toolCallId"], {})
            cards[update["toolCallId"]] = {**before, **told}
    return {"texts": texts, "cards": cards, "plan": plan}


def known_first(updates: list[Json]) -> list[Json]:
    """An agent begins each call once, and with its title, before it tells more of it."""
    begun: set[str] = set()
    kept = []
    for update in updates:
        name = update.get("toolCallId")
        begins = update["sessionUpdate"] == "tool_call"
        if name is None or (begins and name not in begun) or (not begins and name in begun):
            if begins:
                begun.add(str(name))
            kept.append(update)
    return kept


@given(UPDATES)
def test_texts_cards_and_plans_are_the_same(updates: list[Json]) -> None:
    told = known_first(updates)
    shown, wanted = seen(there_and_back(told)), seen(told)
    assert shown["texts"] == wanted["texts"]
    assert shown["plan"] == wanted["plan"]
    for name, card in wanted["cards"].items():
        assert {key: shown["cards"][name].get(key) for key in card} == card
