"""The way out: recorded before it is shown, in order, and a replay overtaken by nothing."""

from typing import Any

import pytest

from acp_bridge.journal import Journal, SessionJournal
from acp_bridge.protocol import user_chunk
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.updates import Updates
from tests.session.journals import failing, recorded, recorded_texts
from tests.session.memory import ClientEnd, Outgoing
from tests.session.showing import said, texts
from tests.session.waiting import beside

Json = dict[str, Any]


COMMANDS: Json = {
    "update": {"sessionUpdate": "available_commands_update", "availableCommands": []},
    "_meta": {"x": 1},
}


class Shown(Outgoing):
    """Notes, at each write, what the journal had by then."""

    def __init__(self, journal: SessionJournal) -> None:
        super().__init__()
        self._journal = journal
        self.kept: list[int] = []

    def write(self, data: bytes) -> None:
        super().write(data)
        self.kept.append(self._journal._last_row())


@pytest.mark.hazard("T2", "K1")
async def test_a_batch_is_recorded_in_one_row_before_it_is_shown_in_one_write(
    tmp_path: Any,
) -> None:
    home = Journal(tmp_path)
    journal = await home.create('s"é', cwd="/w", agent="a")
    shown = Shown(journal)
    transcript = TranscriptOut(journal.info.session_id, journal, Updates(set()))
    transcript.attach(ClientEnd(sent=shown).client)
    transcript.record_only({"update": user_chunk({"type": "text", "text": "mine"})})
    for text in ("a", "b"):
        transcript.show(said(text, text, _meta={"kept": [1, None]}))
    assert shown.kept == []
    transcript.flush()
    transcript.flush()
    assert shown.kept == [1]
    first, second = shown.take()
    assert first == {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {"sessionId": 's"é', **said("a", "a", _meta={"kept": [1, None]})},
    }
    assert second["params"]["update"] == said("b", "b")["update"]
    assert await recorded_texts(journal) == ["mine", "a", "b"]
    await home.close()


@pytest.mark.hazard("R1", "T2")
async def test_what_is_shown_and_answered_during_a_replay_comes_behind_it_in_order(
    journal: SessionJournal,
) -> None:
    client = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    view = transcript.attach(client.client)
    transcript.show(said("before"))
    transcript.flush()
    view.begin_replay()
    answered: list[str] = []
    transcript.show(said("during"))
    transcript.flush()
    transcript.then(client.client, lambda: view.replay(said("an answer")))
    transcript.then(client.client, lambda: answered.append("done"))
    view.replay(said("replayed"))
    assert texts(client) == ["before", "replayed"]
    assert view.full(1)
    async with beside(view.room, 1) as room:
        assert not room.ended
        # Though it is not shown yet, it is recorded.
        assert await recorded_texts(journal) == ["beforeduring"]
        view.end_replay()
    assert not view.full(1)
    assert (texts(client), answered) == (["during", "an answer"], ["done"])
    transcript.then(client.client, lambda: answered.append("at once"))
    assert answered[-1] == "at once"


@pytest.mark.hazard("R1")
async def test_of_what_is_no_part_of_the_conversation_the_last_is_kept_by_its_kind(
    journal: SessionJournal,
) -> None:
    client = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(client.client)
    for _ in range(2):
        transcript.show(COMMANDS)
        transcript.flush()
    assert len(client.sent.take()) == 1  # a list that was shown is not shown again
    assert await recorded(journal) == []
    assert journal.get("state:available_commands_update") == COMMANDS


@pytest.mark.hazard("K1", "Q8")
async def test_a_journal_that_fails_is_said_once_and_again_after_it_had_caught_up(
    journal: SessionJournal,
) -> None:
    client = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(client.client)
    with failing(journal, "INSERT ON updates"):
        for text in ("one", "two"):
            transcript.show(said(text))
            transcript.flush()
    one, warning, two = texts(client)
    assert (one, two) == ("one", "two")
    assert warning.startswith("\n\n[acp-bridge] The journal can't be written")
    transcript.show(said("three"))
    transcript.flush()
    with failing(journal, "INSERT ON updates"):
        transcript.show(said("four", "n"))
        transcript.flush()
    assert len(texts(client)) == 3
    journal.catch_up()
    assert not journal.behind
    assert await recorded_texts(journal) == ["onetwothree", "four"]


async def test_a_state_that_cannot_be_kept_is_shown_all_the_same(journal: SessionJournal) -> None:
    client = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(client.client)
    with failing(journal, "INSERT ON settings"):
        transcript.show(COMMANDS)
        transcript.flush()
        assert journal.behind
    assert client.sent.take()[0]["params"] == {"sessionId": "s", **COMMANDS}
    journal.catch_up()
    assert journal.get("state:available_commands_update") == COMMANDS


@pytest.mark.hazard("Q13")
async def test_before_an_answer_it_is_said_that_the_journal_lacks_something(
    journal: SessionJournal,
) -> None:
    client = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(client.client)
    with failing(journal, "UPDATE ON prompts"):
        seq = journal.accept("p", {"prompt": []})
        journal.end_prompt(seq, {"stopReason": "end_turn"}, None)
        transcript.flush()
        assert client.sent.take() == []  # nothing comes of itself
        answered: list[int] = []
        transcript.then(client.client, lambda: answered.append(len(client.sent.messages)))
    assert answered == [1]
    assert "is not recorded" in texts(client)[0]


@pytest.mark.hazard("Q4")
async def test_what_is_shown_belongs_to_the_turn_until_that_turn_ends(
    journal: SessionJournal,
) -> None:
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.seq = 3
    transcript.show(said("of the turn"))
    transcript.end_turn(2)  # another one, that never ran
    assert transcript.seq == 3
    transcript.end_turn(3)
    transcript.show(said("of none"))
    transcript.flush()
    rows = journal._file.db.execute("SELECT turn FROM updates ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [3, 0]


async def test_the_bridges_own_words_are_marked_and_kept(journal: SessionJournal) -> None:
    client = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(client.client)
    transcript.notice("Said.")
    transcript.notice("Said again.")
    transcript.flush()
    first, second = (message["params"] for message in client.sent.take())
    assert first["_meta"] == {"acp_bridge": {"notice": True}}
    assert first["update"]["messageId"] != second["update"]["messageId"]
    assert len(await recorded(journal)) == 2


@pytest.mark.hazard("T2")
async def test_a_notification_that_is_no_update_keeps_its_place_among_the_updates(
    journal: SessionJournal,
) -> None:
    client = ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    transcript.attach(client.client)
    transcript.show(said("before"))
    transcript.notify("_x/y", [1])
    transcript.show_only(said("shown only"))
    transcript.show(said("after"))
    transcript.flush()
    _, notified, *_ = messages = client.sent.take()
    assert notified == {"jsonrpc": "2.0", "method": "_x/y", "params": [1]}
    assert [message["method"] for message in messages].index("_x/y") == 1
    assert len(messages) == 4
    assert await recorded_texts(journal) == ["beforeafter"]


@pytest.mark.hazard("T2", "R1")
async def test_a_session_that_nobody_sees_is_recorded_and_answers_go_out_at_once(
    journal: SessionJournal,
) -> None:
    transcript = TranscriptOut("s", journal, Updates(set()))
    answered: list[int] = []
    transcript.show(said("alone"))
    transcript.then(ClientEnd().client, lambda: answered.append(len(transcript.views)))
    assert answered == [0]
    assert transcript.asked() is None
    assert await recorded_texts(journal) == ["alone"]


async def test_a_client_that_has_the_session_keeps_its_view_and_is_the_one_that_is_asked(
    journal: SessionJournal,
) -> None:
    first, second = ClientEnd(), ClientEnd()
    transcript = TranscriptOut("s", journal, Updates(set()))
    view = transcript.attach(first.client)
    transcript.show(said("once"))
    assert transcript.attach(first.client) is view
    other = transcript.attach(second.client)
    assert transcript.views == (view, other)
    assert transcript.asked() is first.client
    # What was said before it came is not shown to the second one.
    assert (texts(first), texts(second)) == (["once"], [])
