"""The agent's memory of a session: what it is asked for, given up, and told again."""

from typing import Any

import pytest

from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.protocol import text_chunk, user_chunk
from acp_bridge.session.opening import Known
from acp_bridge.session.process.memory import Memory, transcript
from acp_bridge.updates import notices
from acp_bridge.wire.jsonrpc import encode
from tests.session.journals import failing

Json = dict[str, Any]
PROMPT = [{"type": "text", "text": "and on"}]
pytestmark = pytest.mark.hazard("R15")


def say(journal: SessionJournal, *updates: Json) -> None:
    journal.record(0, b"".join(encode({"update": update}) for update in updates))


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def end_turn(journal: SessionJournal, prompt_id: str, answer: Json) -> None:
    journal.end_prompt(journal.accept(prompt_id, {}), {}, answer)


def refused(journal: SessionJournal) -> Memory:
    """The memory of a session that the agent would not load."""
    memory = Memory(journal)
    memory.refusal = "the agent would not load the session: no"
    return memory


@pytest.mark.parametrize("restore", [True, False])
async def test_a_session_is_given_up_also_if_the_agent_has_not_refused_it(
    journal: SessionJournal, restore: bool
) -> None:
    memory = Memory(journal)
    assert memory.give_up(restore=restore).startswith("[acp-bridge] Memory lost, as you said")
    assert memory.known == Known(None, False)


async def test_a_session_that_was_given_up_is_asked_for_no_more_also_by_the_next_bridge(
    journal: SessionJournal,
) -> None:
    end_turn(journal, "p", {"stopReason": "end_turn"})
    memory = refused(journal)
    assert memory.known == Known("0", True)
    assert memory.give_up(restore=False) == notices.MEMORY_NEW
    assert memory.known == Memory(journal).known == Known(None, False)
    await memory.note_open(is_new=True)
    # The new one has no turn of its own yet, and may be forgotten like any young one.
    assert memory.known == Memory(journal).known == Known("0", False)
    end_turn(journal, "q", {"stopReason": "end_turn"})
    assert memory.known == Memory(journal).known == Known("0", True)
    assert memory.refusal is None
    assert memory.take_transcript(PROMPT) is None


async def test_a_word_that_can_not_be_kept_changes_nothing(
    journal: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(journal: SessionJournal, key: str, value: object) -> None:
        raise JournalError("broken")

    memory = refused(journal)
    monkeypatch.setattr(SessionJournal, "set", broken)
    assert memory.give_up(restore=True) == notices.MEMORY_STOPPED
    assert memory.known == Known("0", False)


@pytest.mark.hazard("Q13")
async def test_a_word_that_can_not_be_written_yet_holds_and_is_kept(
    journal: SessionJournal,
) -> None:
    memory = refused(journal)
    with failing(journal, "INSERT ON settings"):
        assert memory.give_up(restore=True) == notices.MEMORY_RESTORED
        assert journal.behind
        assert memory.known == Memory(journal).known == Known(None, False)
    journal.catch_up()
    assert Memory(journal).known == Known(None, False)


async def test_the_transcript_goes_with_one_prompt_and_again_only_if_that_session_is_lost_too(
    journal: SessionJournal,
) -> None:
    memory = refused(journal)
    assert memory.give_up(restore=True) == notices.MEMORY_RESTORED
    await memory.note_open(is_new=True)
    assert memory.take_transcript([text("/compact")]) is None
    carried = memory.take_transcript(PROMPT)
    assert carried is not None
    assert carried["text"].startswith(notices.TRANSCRIPT_WHOLE)
    assert memory.take_transcript(PROMPT) is None
    for again in (memory, Memory(journal)):
        await again.note_open(is_new=False)
        assert again.take_transcript(PROMPT) is None
        await again.note_open(is_new=True)  # the turn with the transcript was killed
        assert again.take_transcript(PROMPT) is not None
    end_turn(journal, "p", {"stopReason": "end_turn"})
    await memory.note_open(is_new=True)
    assert memory.take_transcript(PROMPT) is None


async def test_a_transcript_that_was_not_sent_is_made_again_by_the_next_bridge(
    journal: SessionJournal,
) -> None:
    memory = refused(journal)
    memory.give_up(restore=True)
    await memory.note_open(is_new=True)
    again = Memory(journal)
    await again.note_open(is_new=False)
    assert again.take_transcript(PROMPT) is not None


async def test_a_transcript_has_what_both_said_and_which_tools_ran_and_no_word_of_the_bridge(
    journal: SessionJournal,
) -> None:
    say(
        journal,
        user_chunk(text("mend it")),
        user_chunk({"type": "image", "data": "x"}),
        text_chunk("agent_thought_chunk", "hm", "t"),
        {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "read a.py"},
        {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"},
        text_chunk("agent_message_chunk", "done", "m"),
        user_chunk(text("/queue drop")),
    )
    journal.record(0, encode(notices.notice("by the bridge")))
    written = await transcript(journal)
    assert written == (
        f"{notices.TRANSCRIPT_WHOLE}\n\n<transcript>\n"
        "User: mend it\n\n[tool: read a.py]\n\nAgent: done\n</transcript>"
    )


async def test_of_a_long_conversation_the_newest_part_is_told_and_that_it_is_a_part(
    journal: SessionJournal,
) -> None:
    for number in range(100):
        say(journal, user_chunk(text(f"{number}: " + "x" * 1000)))
        say(journal, text_chunk("agent_message_chunk", "well", f"m{number}"))
    say(journal, text_chunk("agent_message_chunk", "begin " + "y" * 100_000 + " end", "l"))
    written = await transcript(journal)
    assert written.startswith(notices.TRANSCRIPT_CUT)
    assert "User: 99: " in written
    assert "User: 50: " not in written
    assert "Agent: begin y" in written
    assert "y end" in written
    assert len(written) < 33_500
