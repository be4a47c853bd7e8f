"""Which update of a tool call needs none of an earlier one."""

from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.protocol import Json
from acp_bridge.core.updates.growing import grows, supersedes

SOME, OTHER = {"theirs": 1}, {"theirs": 2}


def content(*texts: str) -> list[Json]:
    return [{"type": "content", "content": {"type": "text", "text": text}} for text in texts]


def told(**members: Any) -> Json:
    """An update of a tool call."""
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "t", **members}}


EVERYTHING = {
    "title": "x",
    "name": "x",
    "kind": "other",
    "status": "pending",
    "locations": [],
    "rawInput": {},
}
TERMINAL = [*content("a"), {"type": "terminal", "terminalId": "1"}]
DIFF = [{"type": "diff", "path": "/a", "newText": "a"}]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (told(content=content("a")), told(content=content("ab"))),
        (told(content=content("a")), told(content=content("a"))),
        (told(content=content("")), told(content=content("a"))),
        (told(content=content("a")), told(content=content("ab", "c"))),
        (told(content=content("x", "a")), told(content=content("x", "ab"))),
        (told(content=content("```sh\na\n```\n")), told(content=content("```sh\na\nb\n```\n"))),
        (told(content=content("````\na\n````")), told(content=content("````\na```\n````"))),
        (told(rawOutput="a"), told(rawOutput="ab")),
        (told(rawOutput={"out": "a", "code": 0}), told(rawOutput={"out": "ab", "code": 0})),
        (told(rawOutput=["a"]), told(rawOutput=["a", "b"])),
        (told(rawOutput={"out": "a", "n": 1}), told(rawOutput={"out": "ab", "n": 1})),
        (
            told(**EVERYTHING, content=content("a"), rawOutput="a"),
            told(**EVERYTHING, content=content("ab"), rawOutput="ab"),
        ),
        (
            told(title="1 s", status="in_progress", kind="execute", content=content("a")),
            told(title="2 s", status="in_progress", kind="other", content=content("ab")),
        ),
        (
            told(status="in_progress", content=content("a"), rawOutput="a"),
            told(status="completed", content=content("ab"), rawOutput="ab"),
        ),
        (told(content=content("a"), _meta=SOME), told(content=content("ab"), _meta=SOME)),
        (
            {**told(content=content("a")), "_meta": SOME},
            {**told(content=content("ab")), "_meta": SOME},
        ),
    ],
)
def test_an_update_of_the_same_members_with_more_output_supersedes(
    earlier: Json, later: Json
) -> None:
    assert grows(earlier) == "t"
    assert supersedes(earlier, later)


#: texts that differ in more than in what follows, and what they begin with is no block of code.
NO_FENCES = [
    ("```\na\n```", "```\nb\n```"),
    ("```\nab\n```", "```\nac\n```"),
    ("```\na\n``` ", "```\nab\n``` "),
    ("```\na\n```X", "```\nab\n```X"),
    ("```sh\nabc", "```sh\nx"),
    ("`a\n`", "`ab\n`"),
]
A, AB = told(content=content("a")), told(content=content("ab"))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        pytest.param(A, told(content=content("ba")), id="it is another output"),
        pytest.param(AB, A, id="the output is shorter"),
        pytest.param(told(content=content("a", "b")), A, id="a part is missing"),
        pytest.param(
            told(content=content("a", "c")), told(content=content("ab", "c")), id="not at the end"
        ),
        *(
            pytest.param(told(content=content(before)), told(content=content(after)), id=before)
            for before, after in NO_FENCES
        ),
        *(
            pytest.param(told(rawOutput=before), told(rawOutput=after), id="of another form")
            for before, after in permutations(("a", ["a"], {"out": "a"}), 2)
        ),
        pytest.param(A, told(content=content("ab"), toolCallId="u"), id="of another card"),
        pytest.param(
            told(content=content("a"), toolCallId=3),
            told(content=content("ab"), toolCallId=3),
            id="of no card",
        ),
        pytest.param(
            A, told(content=content("ab"), sessionUpdate="tool_call"), id="it begins the card"
        ),
        pytest.param(A, told(content=content("ab"), title="x"), id="it tells more"),
        pytest.param(told(content=content("a"), title="x"), AB, id="it tells less"),
        pytest.param(
            told(content=content("a"), title="x"),
            told(content=content("ab"), title=None),
            id="null changes nothing in version 1",
        ),
        pytest.param(
            told(content=content("a"), rawOutput="a"),
            told(content=content("ab"), rawOutput="b"),
            id="one of two outputs is another",
        ),
        pytest.param(
            told(rawOutput={"out": "a"}), told(rawOutput={"out": "ab", "code": 0}), id="new member"
        ),
        pytest.param(told(rawOutput={"code": 0}), told(rawOutput={"code": 0}), id="no text"),
        pytest.param(
            told(content=content("a"), _meta=SOME),
            told(content=content("ab"), _meta=OTHER),
            id="another _meta",
        ),
        pytest.param({**A, "_meta": SOME}, {**AB, "_meta": OTHER}, id="another outer _meta"),
        pytest.param(A, {**AB, "_meta": SOME}, id="a new _meta"),
        pytest.param(
            told(content=content("a"), theirs="a"),
            told(content=content("ab"), theirs="b"),
            id="a member that nobody knows may add something",
        ),
        pytest.param(told(content=TERMINAL), told(content=TERMINAL), id="a terminal"),
        pytest.param(told(content=DIFF), told(content=DIFF), id="a diff"),
        pytest.param(told(title="x"), told(title="x"), id="no output"),
        pytest.param(
            told(content=content("a"), status="completed"),
            told(content=content("ab"), status="completed"),
            id="the card had ended",
        ),
        pytest.param({**A, "sessionId": "1"}, {**AB, "sessionId": "1"}, id="a subagent"),
        pytest.param(
            told(content=content("a"), sessionUpdate="tool_call"),
            told(content=content("ab"), sessionUpdate="tool_call"),
            id="the card's beginning",
        ),
        pytest.param({"update": 3}, AB, id="no update"),
        pytest.param(A, {}, id="nothing"),
    ],
)
def test_any_other_update_leaves_the_earlier_one_as_it_is(earlier: Json, later: Json) -> None:
    assert not supersedes(earlier, later)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"update": 3},
        told(title="x"),
        told(rawOutput={"code": 0}),
        told(content=content("a"), theirs=1),
        told(content=content("a"), status="failed"),
        told(content=content("a"), toolCallId=3),
        told(content="a"),
        {**A, "sessionId": "1"},
    ],
)
def test_an_update_that_tells_no_output_as_it_is_so_far_is_none_that_grows(params: Json) -> None:
    assert grows(params) == ""


texts = st.sampled_from(["a", "ab", "abc", "b", "```\na\n```", "```\nab\n```"])
values: st.SearchStrategy[Any] = texts | st.none()
members: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"toolCallId": st.sampled_from("tu")},
    optional={
        "content": st.lists(texts, max_size=2).map(lambda each: content(*each)),
        "rawOutput": values | st.fixed_dictionaries({"out": values}),
        "title": values,
        "status": st.sampled_from(["pending", "in_progress", "completed", None]),
    },
)


def cards(updates: list[Json]) -> dict[str, Json]:
    """What a client knows of each card in the end; null changes nothing (version 1)."""
    found: dict[str, Json] = {}
    for params in updates:
        update = params["update"]
        card = found.setdefault(update["toolCallId"], {})
        card |= {name: value for name, value in update.items() if value is not None}
    return found


@given(st.lists(members.map(lambda each: told(**each)), max_size=8))
def test_without_what_was_superseded_a_client_knows_the_same_of_each_card(
    updates: list[Json],
) -> None:
    dropped = {
        before
        for (before, earlier), (_, later) in combinations(enumerate(updates), 2)
        if supersedes(earlier, later)
    }
    left = [params for at, params in enumerate(updates) if at not in dropped]
    assert cards(left) == cards(updates)
