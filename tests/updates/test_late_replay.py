"""LateReplay: what repeats the record from its first prompt on is a replay, up to a difference."""

from typing import Any

import pytest

from acp_bridge.machine.states import Phase
from acp_bridge.updates.late_replay import LateReplay
from acp_bridge.updates.notices import notice
from acp_bridge.updates.updates import Updates

Json = dict[str, Any]


def said(kind: str, text: str, message_id: str = "m") -> Json:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": f"{kind}_chunk", "content": content, "messageId": message_id}


def user(text: str) -> Json:
    return said("user_message", text)


def agent(text: str) -> Json:
    return said("agent_message", text)


CARD = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "t"}
CARD_END = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}
RECORD = [user("one"), agent("first "), agent("answer"), CARD, CARD_END, user("two"), agent("sec")]


def of(*record: Json) -> LateReplay:
    late = LateReplay()
    for update in record:
        late.note({"update": update})
    return late


@pytest.mark.hazard("R11")
@pytest.mark.parametrize(
    "replay",
    [
        RECORD,
        [user("one"), agent("first answer"), CARD, CARD_END, user("two"), agent("sec")],
        [user("one"), user("two"), agent("fi"), agent("rst answersec")],
        [user("one"), agent("first answer")],
        [],
    ],
)
def test_what_repeats_the_record_however_it_is_cut_is_swallowed_and_the_answer_shown(
    replay: list[Json],
) -> None:
    updates = Updates({"m", "t"})
    updates.new_process(2)
    updates.expect_late_replay(of(*RECORD))
    updates.new_turn(1)
    assert [updates.incoming(update, Phase.LIVE) for update in replay] == [None] * len(replay)
    shown = updates.incoming(agent("new words"), Phase.LIVE)
    assert shown is not None
    assert shown["content"]["text"] == "new words"


@pytest.mark.hazard("R11")
def test_the_prompt_that_is_sent_meanwhile_may_end_the_replay() -> None:
    late = of(*RECORD)
    late.add_prompt([{"type": "text", "text": "three"}, {"type": "image"}])
    assert all(late.covers(update) for update in [*RECORD, user("three")])
    assert not late.covers(agent("three"))


@pytest.mark.hazard("R11", "T2")
@pytest.mark.parametrize(
    "first", [agent("first "), CARD, said("agent_thought", "one"), user("on!")]
)
def test_what_does_not_begin_with_the_first_prompt_is_an_answer_and_all_that_follows_too(
    first: Json,
) -> None:
    late = of(*RECORD)
    assert not late.covers(first)
    assert late.over
    assert not late.covers(user("one"))


@pytest.mark.hazard("R11")
def test_a_replay_is_expected_in_the_first_turn_only() -> None:
    updates = Updates(set())
    updates.expect_late_replay(of(*RECORD))
    updates.new_turn(1)
    updates.new_turn(2)
    assert updates.incoming(user("one"), Phase.LIVE) == user("one")


def test_of_nothing_recorded_nothing_is_a_replay() -> None:
    late = of({"sessionUpdate": "plan"}, {"odd": 1})
    assert not late.covers(user(""))


@pytest.mark.hazard("R11")
def test_what_the_bridge_itself_said_is_not_awaited_in_a_replay() -> None:
    late = of(*RECORD[:2])
    late.note(notice("[acp-bridge] Interrupted"))
    late.note({"update": agent("answer"), "_meta": {"other": {"notice": True}}})
    assert all(late.covers(update) for update in RECORD[:3])


@pytest.mark.hazard("R11", "T3")
@pytest.mark.parametrize("odd", [None, 5, ["t"], {"t": 1}])
def test_an_odd_id_of_a_card_is_no_replay_and_breaks_nothing(odd: Any) -> None:
    late = of(*RECORD)
    assert late.covers(user("one"))
    assert not late.covers({**CARD, "toolCallId": odd})
    assert late.over
