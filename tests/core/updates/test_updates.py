"""Updates: ids unique at the client, one end for each card, leaks, and the rest as it is."""

import json
from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.machine.states import Phase
from acp_bridge.core.protocol import TRANSCRIPT, is_state
from acp_bridge.core.session.prompts import queue_command
from acp_bridge.core.updates.late_replay import LateReplay
from acp_bridge.core.updates.open_cards import OpenCards, for_replay
from acp_bridge.core.updates.updates import Leak, Updates

Json = dict[str, Any]


def chunk(message_id: str | None = None) -> Json:
    content = {"type": "text", "text": "x"}
    update: Json = {"sessionUpdate": "agent_message_chunk", "content": content}
    return update if message_id is None else {**update, "messageId": message_id}


def card(card_id: str, status: str | None = None, *, opens: bool = True) -> Json:
    kind = "tool_call" if opens else "tool_call_update"
    update: Json = {"sessionUpdate": kind, "toolCallId": card_id, "title": "t"}
    return update if status is None else {**update, "status": status}


def live(updates: Updates, update: Json) -> Json:
    shown = updates.incoming(update, Phase.LIVE)
    assert shown is not None
    return shown


def in_turn(taken: set[str] | None = None) -> Updates:
    updates = Updates(taken or set())
    updates.new_turn(1)
    return updates


@pytest.mark.hazard("P13.1")
def test_an_id_used_again_by_another_turn_or_process_is_a_new_one_at_the_client() -> None:
    updates = in_turn({"t~2", "m"})
    assert live(updates, card("t"))["toolCallId"] == "t"
    assert live(updates, card("t", "completed", opens=False))["toolCallId"] == "t"
    updates.new_turn(2)
    assert live(updates, card("t"))["toolCallId"] == "t~3"
    assert live(updates, chunk("m"))["messageId"] == "m~2"
    assert live(updates, chunk("m"))["messageId"] == "m~2"
    assert updates.client_card_id("t") == "t~3"
    updates.new_process(2)
    updates.new_turn(3)
    assert live(updates, card("t", opens=False))["toolCallId"] == "t~4"
    assert live(updates, chunk("m"))["messageId"] == "m~3"
    assert updates.take_new_ids() == ["t", "t~3", "m~2", "t~4", "m~3"]
    assert updates.take_new_ids() == []


@pytest.mark.hazard("C16.1")
def test_a_card_ends_once_and_nothing_opens_it_again_in_its_turn() -> None:
    updates = in_turn()
    live(updates, card("t", "in_progress"))
    assert live(updates, card("t", "completed", opens=False))["status"] == "completed"
    for late in (card("t", "in_progress", opens=False), card("t", "failed")):
        assert "status" not in live(updates, late)
    assert updates.close_cards() == []


@pytest.mark.hazard("C16.2", "C6.1")
def test_the_end_of_a_bad_turn_closes_the_open_cards_and_what_follows_of_them_is_a_leak() -> None:
    updates = in_turn()
    live(updates, card("open"))
    live(updates, card("done", "completed"))
    live(updates, chunk("m"))
    closing = updates.close_cards()
    ends = [params["update"] for params in closing]
    assert [(u["toolCallId"], u["status"]) for u in ends] == [("open", "failed")]
    assert updates.close_cards() == []
    updates.new_turn(2)
    for leaked in (card("open", "completed", opens=False), chunk("m")):
        with pytest.raises(Leak):
            updates.incoming(leaked, Phase.LIVE)
    # Named anew by a `tool_call`, it is another one.
    assert live(updates, card("open"))["toolCallId"] == "open~2"


def test_a_card_left_open_by_a_turn_that_ended_well_may_be_ended_in_a_later_one() -> None:
    updates = in_turn()
    live(updates, card("t"))
    updates.new_turn(2)
    assert live(updates, card("t", "completed", opens=False)) == card("t", "completed", opens=False)


@pytest.mark.hazard("C22.1", "C16")
def test_a_bad_end_closes_no_card_and_kills_no_message_of_an_earlier_turn() -> None:
    updates = in_turn()
    live(updates, card("pending"))
    live(updates, chunk("reused"))
    updates.new_turn(2)
    live(updates, card("t"))
    assert [u["update"]["toolCallId"] for u in updates.close_cards()] == ["t"]
    updates.new_turn(3)
    assert live(updates, chunk("reused"))["messageId"] == "reused~2"
    ended = card("pending", "completed", opens=False)
    assert live(updates, ended) == ended


@pytest.mark.hazard("R11")
def test_the_agents_echo_of_the_prompt_is_left_out_and_what_the_user_says_later_is_not() -> None:
    updates = Updates(set())
    image = {"type": "image", "data": "aGk="}
    updates.new_turn(1, [{"type": "text", "text": "fix it"}, image])

    def user(content: Json) -> Json:
        return {"sessionUpdate": "user_message_chunk", "content": content}

    for piece in ("fix", " it"):
        assert updates.incoming(user({"type": "text", "text": piece}), Phase.LIVE) is None
    assert updates.incoming(user(image), Phase.LIVE) is None
    live(updates, chunk("m"))
    steered = user({"type": "text", "text": "fix it"})
    assert live(updates, steered) == steered


@pytest.mark.hazard("R11")
def test_an_agent_that_replayed_in_time_does_not_replay_again_with_the_same_first_prompt() -> None:
    hello = {"type": "text", "text": "hello"}
    said = {"sessionUpdate": "user_message_chunk", "content": hello}
    late = LateReplay()
    late.note({"update": said})
    late.note({"update": chunk("m")})
    updates = Updates(set())
    updates.new_process(2)
    for update in (said, chunk("m")):
        assert updates.incoming(update, Phase.REPLAY) is None
    updates.expect_late_replay(late)
    updates.new_turn(1, [hello])
    assert updates.incoming(said, Phase.LIVE) is None
    assert live(updates, chunk("n"))["content"] == chunk()["content"]


def test_an_agent_that_echoes_and_never_replays_keeps_its_answer() -> None:
    hello = {"type": "text", "text": "hello"}
    said = {"sessionUpdate": "user_message_chunk", "content": hello}
    late = LateReplay()
    late.note({"update": said})
    late.note({"update": chunk("m")})
    updates = Updates(set())
    updates.expect_late_replay(late)
    updates.new_turn(1, [hello])
    assert updates.incoming(said, Phase.LIVE) is None
    assert live(updates, chunk("n"))["content"] == chunk()["content"]


@pytest.mark.hazard("C6", "R11")
@pytest.mark.parametrize(
    "said", [chunk(), chunk("m"), card("t"), {"sessionUpdate": "plan", "entries": []}]
)
def test_the_conversation_is_swallowed_in_a_replay_and_never_shown_after_a_cancelled_turn(
    said: Json,
) -> None:
    updates = in_turn()
    assert updates.incoming(said, Phase.REPLAY) is None
    if "toolCallId" in said:  # work that nobody asked for
        with pytest.raises(Leak):
            updates.incoming(said, Phase.LEAK)
    else:
        assert updates.incoming(said, Phase.LEAK) is None
    assert said["sessionUpdate"] in TRANSCRIPT
    assert not is_state(said)
    assert updates.take_new_ids() == []


@pytest.mark.hazard("T3", "P9")
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", ["usage_update", "session_info_update", "unknown", ""])
def test_what_is_not_of_the_conversation_passes_in_every_phase_as_it_is(
    phase: Phase, kind: str
) -> None:
    update = {"sessionUpdate": kind, "toolCallId": "t", "messageId": "m", "_meta": {"x": [None]}}
    before = json.dumps(update)
    shown = Updates(set()).incoming(update, phase)
    assert shown is update
    assert json.dumps(shown) == before


@pytest.mark.hazard("T3")
def test_odd_ids_states_and_commands_are_passed_on_and_break_nothing() -> None:
    updates = in_turn()
    for odd in (None, 7, ["t"], {"a": 1}):
        for update in (
            {**card("t"), "toolCallId": odd},
            {**chunk(), "messageId": odd},
            {"sessionUpdate": "available_commands_update", "availableCommands": odd},
            {"sessionUpdate": "config_option_update", "configOptions": odd},
        ):
            if isinstance(update.get("availableCommands"), list):
                continue
            assert live(updates, update) == update
        assert live(updates, {**card("t"), "status": odd})["toolCallId"] == "t"


def test_the_queue_command_is_added_to_the_agents_own_unless_it_has_one() -> None:
    ours = queue_command.command(queue_command.offered(None))
    updates = Updates(set(), ours)
    commands = [{"name": "compact", "description": "d"}, "odd", {"name": ["odd"]}]
    shown = live(
        updates, {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    )
    assert shown["availableCommands"] == [*commands, ours]
    assert updates.command.name == "/queue"
    own = {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "queue"}]}
    listed = live(updates, own)["availableCommands"]
    assert listed[0] == {"name": "queue"}
    assert (listed[1]["name"], listed[1]["description"]) == ("bridge", ours["description"])
    assert listed[1]["input"]["hint"].startswith("queue | queue hold | queue go")
    assert updates.command.name == "/bridge queue"


@pytest.mark.parametrize("booleans", [True, False])
def test_boolean_options_are_left_out_for_a_client_that_does_not_know_them(booleans: bool) -> None:
    options = [{"id": "a", "type": "boolean"}, {"id": "b", "type": "select"}, "odd"]
    given = {"sessionUpdate": "config_option_update", "configOptions": options}
    shown = live(Updates(set()), given)
    assert shown == given  # the session keeps what the agent said
    known = {"session": {"configOptions": {"boolean": True}}} if booleans else {}
    fit = ClientAbilities(known).fit(shown)
    assert fit == {**given, "configOptions": options if booleans else options[1:]}
    assert len(options) == 3


@pytest.mark.hazard("R7.1")
def test_a_replay_names_no_terminal_and_changes_nothing_else() -> None:
    text = {"type": "content", "content": {"type": "text", "text": "x"}}
    update = {**card("t"), "content": [{"type": "terminal", "terminalId": "1"}, text]}
    assert for_replay({"update": update, "_meta": 1}) == {
        "update": {**update, "content": [text]},
        "_meta": 1,
    }
    for other in ({"update": chunk()}, {"update": card("t")}, {"update": None}, {}):
        assert for_replay(other) is other


@pytest.mark.hazard("C16")
def test_the_cards_that_a_recorded_conversation_leaves_open_are_found_in_order() -> None:
    recorded = [
        card("b"),
        card("a", "pending"),
        card("c", "in_progress"),
        chunk(),
        card("a", "in_progress", opens=False),
        card("c", "failed", opens=False),
        card("d", opens=False),
        {**card("e"), "toolCallId": 5},
    ]
    cards = OpenCards()
    for update in recorded:
        cards.note(update)
    assert [update["toolCallId"] for update in cards.closing()] == ["b", "a", "d"]
    assert {update["status"] for update in cards.closing()} == {"failed"}


@pytest.mark.hazard("C16")
def test_a_card_that_was_not_opened_in_what_is_read_is_noticed() -> None:
    cards = OpenCards()
    for update in (
        card("a"),
        card("a", opens=False),
        chunk(),
        {**card("b", opens=False), "toolCallId": 5},
    ):
        cards.note(update)
    assert not cards.older
    cards.note(card("b", "completed", opens=False))
    assert cards.older
    assert [update["toolCallId"] for update in cards.closing()] == ["a"]
