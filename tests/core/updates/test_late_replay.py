"""LateReplay: what repeats the record from its first prompt on is a replay, up to a difference."""

from typing import Any

import pytest

from acp_bridge.core.machine.states import Phase
from acp_bridge.core.updates.late_replay import LateReplay
from acp_bridge.core.updates.notices import notice
from acp_bridge.core.updates.updates import Updates

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


@pytest.mark.hazard("R11.1")
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


@pytest.mark.hazard("R11.4")
@pytest.mark.parametrize("early", [0, 1])
def test_the_same_words_as_those_of_a_turn_that_the_agent_has_forgotten_are_new(early: int) -> None:
    late = of(*RECORD)
    replay = [user("one"), agent("first answer"), CARD, CARD_END]
    for update in replay if early else ():
        late.note_early(update)
    late.add_prompt([{"type": "text", "text": "two"}])
    for update in () if early else replay:
        assert late.covers(update)
    assert not late.covers(agent("sec"))
    assert not late.covers(agent("ond"))


def test_a_prompt_of_several_blocks_of_which_the_agent_repeats_one_is_repeated() -> None:
    late = of(user("one"), user(""), user("more"), agent("first"))
    assert [late.covers(each) for each in (user("one"), agent("first"))] == [True, True]


def test_a_prompt_without_text_is_none_that_an_agent_would_repeat() -> None:
    late = of(user("one"), agent("first"), user(""), agent("second"), user("two"), agent("third"))
    replay = [user("one"), agent("first"), agent("second"), user("two"), agent("third")]
    assert all(late.covers(each) for each in replay)


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


TRIMMED = [user("one "), agent(" first\n"), agent("\nanswer\n"), user("\ntwo"), agent("second \n")]


@pytest.mark.hazard("R11")
@pytest.mark.parametrize("record", [RECORD, TRIMMED])
@pytest.mark.parametrize("early", range(1, 8))
def test_a_replay_whose_load_is_answered_in_the_middle_goes_on_where_it_was(
    record: list[Json], early: int
) -> None:
    whole = [user("one"), agent("first"), agent(" answer"), CARD, user("two"), agent("sec")]
    whole = whole if record is RECORD else [user("one"), agent("first\n\nanswer"), user("two")]
    updates = Updates({"m", "t"})
    updates.new_process(2)
    for update in whole[:early]:
        assert updates.incoming(update, Phase.REPLAY) is None
    updates.expect_late_replay(of(*record))
    for update in whole[early : early + 1]:  # while its settings are set again
        assert updates.incoming(update, Phase.REPLAY) is None
    updates.new_turn(1, [{"type": "text", "text": "three"}])
    late = whole[early + 1 :]
    assert [updates.incoming(update, Phase.LIVE) for update in late] == [None] * len(late)
    assert updates.incoming(agent("new words"), Phase.LIVE)
    assert updates.take_doubt() is False


@pytest.mark.hazard("R11")
@pytest.mark.parametrize("early", [RECORD, [user("ONE"), agent("first")], [agent("first")]])
def test_after_a_replay_that_was_whole_or_another_one_all_is_new(early: list[Json]) -> None:
    updates = Updates({"m", "t"})
    updates.new_process(2)
    for update in early:
        updates.incoming(update, Phase.REPLAY)
    updates.expect_late_replay(of(*RECORD, said("agent_thought", "The user wants")))
    updates.new_turn(1, [{"type": "text", "text": "three"}])
    assert updates.incoming(said("agent_thought", "The"), Phase.LIVE)
    assert updates.incoming(agent("first "), Phase.LIVE)


@pytest.mark.hazard("R11.3")
def test_a_late_replay_whose_messages_are_trimmed_at_their_ends_is_swallowed() -> None:
    updates = Updates({"m"})
    updates.new_process(2)
    updates.expect_late_replay(
        of(user("one\n"), agent("a "), agent("b\n\n"), user(" two"), agent("c"))
    )
    updates.new_turn(1)
    replay = [user("one"), agent("a"), agent(" "), agent("b"), user("two"), agent("c")]
    assert [updates.incoming(update, Phase.LIVE) for update in replay] == [None] * len(replay)
    assert updates.incoming(agent("\n"), Phase.LIVE)
