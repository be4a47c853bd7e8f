"""What another bridge's death left in the journal: turns are interrupted, prompts left over, once.

It is built by hand: a bridge that ends by itself leaves no such journal, and here several died.
"""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from acp_bridge.core.journal import JournalError, PromptState, SessionJournal
from acp_bridge.core.protocol import feedback_prompt, text_chunk
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.recovery import Recovery
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.session.journals import failing, recorded, states, unreadable
from tests.core.session.played_core import PlayedCore

Json = dict[str, Any]
WAITING, LEFT_OVER, SENT, DONE = PromptState


def prompt(words: str) -> Json:
    return {"sessionId": "s", "prompt": [{"type": "text", "text": words}]}


def card(card_id: str, status: str | None = None, *, opens: bool = True) -> Json:
    kind = "tool_call" if opens else "tool_call_update"
    update: Json = {"sessionUpdate": kind, "toolCallId": card_id}
    return update if status is None else {**update, "status": status}


def failed(card_id: str) -> Json:
    return card(card_id, "failed", opens=False)


class Dead:
    """The journal of a bridge that was killed, and the next one, which takes it over."""

    def __init__(self, journal: SessionJournal) -> None:
        self.journal = journal
        self.prompts = Prompts(
            journal, TranscriptOut("s", journal, Updates(set())), PlayedCore(), checkpoint
        )

    def accepted(self, words: str) -> int:
        return self.journal.accept(words, prompt(words))

    def turn(self, words: str, *updates: Json, ended: bool = False) -> int:
        """A prompt ran and this was shown."""
        seq = self.accepted(words)
        self.journal.start_turn(seq)
        for update in updates:
            self.journal.record(seq, encode({"update": update}))
        if ended:
            self.journal.end_prompt(seq, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})
        return seq

    def recovery(self) -> Recovery:
        """Return the part of the next bridge that takes the journal over."""
        transcript = TranscriptOut("s", self.journal, Updates(set()))
        self.prompts = Prompts(self.journal, transcript, PlayedCore(), checkpoint)
        return Recovery(self.journal, self.prompts, Updates(set()))

    async def recover(self) -> list[Any]:
        """Return what that adds to the transcript: the words of a message, or a whole update."""
        before, recovery = await recorded(self.journal), self.recovery()
        with anyio.fail_after(5):
            await recovery.run()
        return [said(params["update"]) for params in (await recorded(self.journal))[len(before) :]]

    @property
    def left_over(self) -> list[str]:
        return [params["prompt"][0]["text"] for params in self.prompts.left_over.values()]


def said(update: Json) -> Any:
    return update["content"]["text"].strip()[:24] if "messageId" in update else update


INTERRUPTED = "[acp-bridge] Interrupted"


async def test_a_session_that_was_at_rest_is_left_as_it_is(journal: SessionJournal) -> None:
    dead = Dead(journal)
    dead.turn("one", card("open"), ended=True)
    assert (await dead.recover(), dead.left_over, states(journal)) == ([], [], [DONE])


@pytest.mark.hazard("Q6.1", "Q5", "R12.1")
async def test_a_turn_is_interrupted_once_and_what_waited_is_left_over_in_order(
    journal: SessionJournal,
) -> None:
    dead = Dead(journal)
    dead.turn("done", ended=True)
    dead.turn("ran", text_chunk("agent_message_chunk", "half", "m"))
    for words in ("next", "later"):
        dead.accepted(words)
    assert await dead.recover() == [INTERRUPTED]
    assert dead.left_over == ["next", "later"]
    assert states(journal) == [DONE, DONE, LEFT_OVER, LEFT_OVER]
    assert journal.prompts()[1].outcome == {"interrupted": True}
    # Another bridge dies before anything more happens.
    assert (await dead.recover(), dead.left_over) == ([], ["next", "later"])


async def test_feedback_that_waited_is_left_over_ahead_of_the_prompts_that_came_before_it(
    journal: SessionJournal,
) -> None:
    dead = Dead(journal)
    dead.turn("ran", ended=True)
    dead.accepted("next")
    journal.accept("id", {"sessionId": "s", **feedback_prompt("the tests fail")})
    dead.accepted("later")
    for _ in range(2):
        await dead.recover()
        assert dead.left_over == ["the tests fail", "next", "later"]


@pytest.mark.hazard("C16.3")
async def test_the_cards_of_the_interrupted_turn_that_are_open_end_before_it_is_said(
    journal: SessionJournal,
) -> None:
    dead = Dead(journal)
    dead.turn("one", card("old"), ended=True)
    dead.turn(
        "two",
        card("b", "pending"),
        card("a"),
        card("done", "completed"),
        card("a", "in_progress", opens=False),
        card("made", opens=False),
    )
    closed = [failed("b"), failed("a"), failed("made")]
    assert await dead.recover() == [*closed, INTERRUPTED]


@pytest.mark.hazard("C16")
async def test_a_card_that_ended_before_and_was_gone_on_with_is_not_ended_again(
    journal: SessionJournal,
) -> None:
    dead = Dead(journal)
    dead.turn("one", card("done"), card("done", "completed", opens=False), card("open"), ended=True)
    dead.turn("two", card("done", opens=False), card("open", opens=False), card("new"))
    assert await dead.recover() == [failed("open"), failed("new"), INTERRUPTED]


@pytest.mark.hazard("C16", "K2.2")
@pytest.mark.parametrize("record", [{"n": 1}, {"update": None}, {"update": [1]}])
async def test_a_record_that_is_no_update_hides_no_open_card(
    journal: SessionJournal, record: Json
) -> None:
    dead = Dead(journal)
    seq = dead.turn("one", card("a"))
    journal.record(seq, encode(record))
    journal.record(seq, encode({"update": card("b")}))
    assert await dead.recover() == [failed("a"), failed("b"), INTERRUPTED]


@pytest.mark.hazard("Q6", "R3", "C16.1")
@pytest.mark.parametrize(
    "write",
    ["INSERT ON updates", "UPDATE ON prompts", "UPDATE ON prompts WHEN old.state='waiting'"],
)
async def test_what_could_not_be_written_is_said_by_the_next_load_and_no_card_ends_twice(
    journal: SessionJournal, write: str
) -> None:
    dead = Dead(journal)
    dead.turn("ran", card("a"))
    dead.accepted("next")
    with failing(journal, write), pytest.raises(JournalError):
        await dead.recover()
    assert states(journal) == [SENT, WAITING]
    await dead.recover()
    updates = [params["update"] for params in await recorded(journal)]
    assert updates.count(failed("a")) == 1
    assert [said(update) for update in updates].count(INTERRUPTED) == 1
    assert said(updates[-1]) == INTERRUPTED
    assert dead.left_over == ["next"]


@pytest.mark.hazard("Q13.7", "C16")
async def test_of_a_turn_whose_end_could_not_be_written_it_is_said_that_a_part_is_missing(
    journal: SessionJournal,
) -> None:
    dead = Dead(journal)
    seq = dead.turn("ran", card("a"))
    journal._file.db.execute("PRAGMA query_only=1")
    dead.journal.end_prompt(seq, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})
    journal._file.db.execute("PRAGMA query_only=0")
    journal._file.unwritten.drop_first()  # the bridge was killed
    await journal.settle_left()
    assert await dead.recover() == [failed("a"), "[acp-bridge] The journal"]
    assert journal.prompts()[0].outcome == {"unrecorded": True}
    assert (states(journal), dead.left_over) == ([DONE], [])


@pytest.mark.hazard("Q6", "R3.2")
@pytest.mark.parametrize("table", ["updates", "prompts"])
async def test_what_cannot_be_read_changes_nothing(journal: SessionJournal, table: str) -> None:
    dead = Dead(journal)
    dead.turn("ran", card("a"))
    with unreadable(journal, table), pytest.raises(JournalError):
        await dead.recovery().run()
    assert states(journal) == [SENT]
    assert await dead.recover() == [failed("a"), INTERRUPTED]


@pytest.mark.hazard("Q6.2", "C16")
async def test_what_recovery_says_is_of_the_turn_that_was_interrupted(
    journal: SessionJournal,
) -> None:
    dead = Dead(journal)
    seq = dead.turn("ran", card("a"))
    await dead.recover()
    rows = journal._file.db.execute("SELECT DISTINCT turn FROM updates").fetchall()
    assert rows == [(seq,)]


@pytest.mark.hazard("C16.3", "V7.4")
async def test_a_subagent_ends_for_clients_that_go_on_and_notes_of_ended_cards_are_forgotten(
    journal: SessionJournal,
) -> None:
    dead, updates = Dead(journal), Updates(set(), notes={"a": "failed"})
    child = updates.children.new("theirs", "")
    updates.children.note(child, {"state": {"state": "running"}})
    child.announced = True
    dead.turn("ran", card("a"))
    dead.recovery()
    recovery = Recovery(journal, dead.prompts, updates)
    await recovery.run()
    assert updates.notes == {}
    assert updates.notes_changed
    assert recovery.said[0]["update"] == failed("a")
    assert recovery.said[-1]["update"]["state"] == {"state": "idle", "stopReason": "cancelled"}
