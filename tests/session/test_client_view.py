"""Two clients on one session: hold, backlog and the cut belong to each, and so does what it can."""

from typing import Any

import pytest

from acp_bridge.journal import SessionJournal
from acp_bridge.protocol import text_chunk
from acp_bridge.session.transcript.client_view import Quiet
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.updates import Updates
from tests.session.journals import failing, recorded_texts
from tests.session.memory import ClientEnd
from tests.session.showing import said, texts
from tests.session.waiting import beside

Json = dict[str, Any]
BOOLEANS: Json = {"session": {"configOptions": {"boolean": True}}}
OPTIONS = [{"id": "a", "type": "boolean"}, {"id": "b", "type": "select"}]
CHANGED: Json = {
    "update": {"sessionUpdate": "config_option_update", "configOptions": OPTIONS},
    "_meta": {"x": 1},
}


class Two:
    """One session that two clients have."""

    def __init__(self, journal: SessionJournal, *capabilities: Json) -> None:
        one, two = capabilities or ({}, {})
        self.one, self.two = ClientEnd(one), ClientEnd(two)
        self.transcript = TranscriptOut("s", journal, Updates(set()))
        self.view_one = self.transcript.attach(self.one.client)
        self.view_two = self.transcript.attach(self.two.client)

    def say(self, text: str) -> None:
        self.transcript.show(said(text, text))
        self.transcript.flush()


@pytest.mark.hazard("R1", "T2", "P6")
async def test_a_replay_to_one_client_holds_up_nothing_that_the_other_is_shown(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    answered: list[str] = []
    both.say("before")
    both.view_one.begin_replay()
    both.say("a")
    both.transcript.then(both.one.client, lambda: answered.append("one"))
    both.transcript.then(both.two.client, lambda: answered.append("two"))
    both.transcript.notify("_x/y", {})
    both.say("b")
    both.view_one.replay(said("replayed"))
    assert texts(both.one) == ["before", "replayed"]
    assert [m["method"] for m in both.two.sent.messages] == [
        *["session/update"] * 2,
        "_x/y",
        "session/update",
    ]
    assert answered == ["two"]
    both.view_one.end_replay()
    assert answered == ["two", "one"]
    assert [m["method"] for m in both.one.sent.take()] == [
        "session/update",
        "_x/y",
        "session/update",
    ]


@pytest.mark.hazard("R1", "T2")
async def test_two_clients_may_replay_at_once_and_each_goes_on_when_its_own_is_over(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    both.view_one.begin_replay()
    both.say("a")
    both.view_two.begin_replay()
    both.say("b")
    both.view_two.end_replay()
    assert (texts(both.one), texts(both.two)) == ([], ["a", "b"])
    both.say("c")
    both.view_one.end_replay()
    assert (texts(both.one), texts(both.two)) == (["a", "b", "c"], ["c"])


@pytest.mark.hazard("R1", "Q8")
async def test_a_second_replay_of_the_same_client_holds_its_updates_again(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    for number in ("1", "2"):
        both.view_one.begin_replay()
        both.say(number)
        assert both.view_one.full(1)
        assert texts(both.one) == []
        async with beside(both.view_one.room, 1) as room:
            assert not room.ended
            both.view_one.end_replay()
        assert texts(both.one) == [number]
        assert not both.view_one.full(1)


@pytest.mark.hazard("C7", "P6")
async def test_what_waits_is_counted_for_each_client_behind_a_replay_and_unread_alike(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    both.one.sent.stuck = 10
    both.view_two.begin_replay()
    assert (both.view_one.full(10), both.view_two.full(1)) == (True, False)
    assert not both.view_one.full(11)
    both.say("a")
    assert not both.view_one.full(11)
    assert both.view_two.full(1)
    assert not both.view_two.full(10_000)
    both.two.sent.stuck = 10_000
    assert both.view_two.full(10_001)


async def test_room_is_waited_for_until_the_replay_is_over_or_the_client_reads(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    both.view_two.begin_replay()
    both.say("a")
    both.one.sent.stuck = 5
    async with beside(both.view_one.room, 5) as one, beside(both.view_two.room, 5) as two:
        assert (one.ended, two.ended) == (False, False)
        both.view_two.end_replay()
        both.one.sent.take_all()
    assert (both.view_one.full(5), both.view_two.full(5)) == (False, False)


async def test_who_waits_for_room_and_is_cancelled_leaves_the_view_as_it_was(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    both.view_one.begin_replay()
    both.say("a")
    async with beside(both.view_one.room, 1) as room:
        room.cancel()
    assert texts(both.one) == []
    both.view_one.end_replay()
    assert texts(both.one) == ["a"]


@pytest.mark.hazard("T3")
async def test_boolean_options_are_left_out_for_the_client_that_cannot_take_them_and_kept(
    journal: SessionJournal,
) -> None:
    both = Two(journal, {}, BOOLEANS)
    both.transcript.show(said("before"))
    both.transcript.show(CHANGED)
    both.transcript.show(said("after"))
    both.transcript.flush()
    for client, options in ((both.one, OPTIONS[1:]), (both.two, OPTIONS)):
        before, changed, after = (message["params"] for message in client.sent.take())
        assert before["update"]["content"]["text"] == "before"
        assert after["update"]["content"]["text"] == "after"
        assert changed == {
            "sessionId": "s",
            "update": {**CHANGED["update"], "configOptions": options},
            "_meta": {"x": 1},
        }
    assert journal.get("state:config_option_update") == CHANGED


@pytest.mark.hazard("T3", "R1")
async def test_options_are_fit_for_the_client_in_a_replay_and_behind_it_too(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    both.view_one.begin_replay()
    both.transcript.show(CHANGED)
    both.transcript.flush()
    assert both.view_one.full(1)
    both.view_one.replay(CHANGED)
    both.view_one.end_replay()
    shown = [m["params"]["update"]["configOptions"] for m in both.one.sent.take()]
    assert shown == [OPTIONS[1:]] * 2


@pytest.mark.hazard("K2", "T3")
@pytest.mark.parametrize("record", [{"n": 1}, {"update": None}, {"update": ["odd"]}])
async def test_a_record_that_is_no_update_is_replayed_as_it_is_and_hides_no_other(
    journal: SessionJournal, record: Json
) -> None:
    both = Two(journal)
    both.view_one.replay(record)
    both.view_one.replay(said("next"))
    odd, _ = (message["params"] for message in both.one.sent.take())
    assert odd == {"sessionId": "s", **record}


@pytest.mark.hazard("K1", "Q8")
async def test_every_client_is_told_that_the_journal_cannot_be_written(
    journal: SessionJournal,
) -> None:
    both = Two(journal)
    both.view_one.begin_replay()
    with failing(journal, "INSERT ON updates"):
        both.say("a")
    both.view_one.end_replay()
    for client in (both.one, both.two):
        shown, warning = texts(client)
        assert shown == "a"
        assert "can't be written" in warning
    assert await recorded_texts(journal) == ["a"]  # it is kept, and replayed all the same


# --- the quiet after a cancel and after a load ----------------------------------------------------

USAGE: Json = {"update": {"sessionUpdate": "usage_update", "used": 1, "size": 2}}
COMMANDS: Json = {"update": {"sessionUpdate": "available_commands_update", "availableCommands": []}}


@pytest.mark.hazard("C23")
async def test_after_a_cancel_nothing_is_shown_until_the_client_speaks_and_nothing_is_lost(
    journal: SessionJournal,
) -> None:
    one, two = ClientEnd(), ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    for end in (one, two):
        transcript.attach(end.client)
    answered: list[str] = []
    transcript.then(one.client, lambda: answered.append("cancelled"))
    transcript.hush(one.client)
    transcript.show(USAGE)
    transcript.notice("something")
    transcript.notify("_x/y", {})
    # A second prompt that was cancelled with the first is answered all the same.
    transcript.then(one.client, lambda: answered.append("cancelled too"))
    assert answered == ["cancelled", "cancelled too"]
    assert one.sent.take() == []
    assert len(two.sent.take()) == 3
    transcript.end_quiet(one.client)
    assert [m["method"] for m in one.sent.take()] == ["session/update", "session/update", "_x/y"]


@pytest.mark.hazard("C23")
async def test_a_turn_that_begins_ends_the_quiet(journal: SessionJournal) -> None:
    end = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(end.client)
    transcript.hush(end.client)
    transcript.show(USAGE)
    transcript.begin_turn(1)
    transcript.show(USAGE)
    assert len(end.sent.take()) == 2


@pytest.mark.hazard("C23", "T2")
async def test_a_turn_that_begins_behind_a_replay_ends_a_quiet_that_waits_there_too(
    journal: SessionJournal,
) -> None:
    end = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    view = transcript.attach(end.client)
    view.begin_replay()
    transcript.hush(end.client)
    transcript.begin_turn(1)
    view.end_replay()
    transcript.show({"update": text_chunk("agent_message_chunk", "of the agent", "m")})
    transcript.flush()
    assert "of the agent" in str(end.sent.take())


@pytest.mark.hazard("C23", "T2")
async def test_a_prompt_that_is_cancelled_while_another_ones_turn_runs_makes_no_quiet(
    journal: SessionJournal,
) -> None:
    end = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(end.client)
    transcript.begin_turn(1)
    transcript.hush(end.client)
    transcript.show(USAGE)
    assert len(end.sent.take()) == 1


@pytest.mark.hazard("C23")
async def test_after_a_load_all_but_the_conversation_waits_for_the_client(
    journal: SessionJournal,
) -> None:
    end = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    view = transcript.attach(end.client)
    view.hush(Quiet.ASIDES)
    transcript.show(USAGE)
    transcript.notice("of the bridge")
    transcript.show({"update": text_chunk("agent_message_chunk", "of the agent", "m")})
    transcript.flush()
    (shown,) = end.sent.take()
    assert "of the agent" in str(shown)
    transcript.end_quiet(end.client)
    usage, notice = end.sent.take()
    assert usage["params"] == {"sessionId": "s", **USAGE}
    assert "of the bridge" in str(notice)


async def test_commands_are_shown_once_and_once_more_with_the_first_prompt(
    journal: SessionJournal,
) -> None:
    end = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(end.client)
    for _ in range(2):
        transcript.show(COMMANDS)
    assert len(end.sent.take()) == 1
    transcript.begin_turn(1)
    assert len(end.sent.take()) == 1
    transcript.show(COMMANDS)
    transcript.begin_turn(2)
    assert end.sent.take() == []
    other = {"update": {**COMMANDS["update"], "availableCommands": [{"name": "new"}]}}
    transcript.show(other)
    assert len(end.sent.take()) == 1
