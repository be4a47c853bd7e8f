"""When the journal gets an output that grows, and what it keeps of that."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import SESSION_PROMPT, Json
from acp_bridge.core.wire.jsonrpc import loads
from tests.core.session.journals import failing, recorded
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.turned_clock import TurnedClock

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("T2.6")]


def output(text: str, **more: str) -> Json:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    return {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": content} | more


def text_in(update: Json) -> str:
    content = update.get("content", update.get("status"))
    block = content[0]["content"] if isinstance(content, list) else content
    return str(block["text"] if isinstance(block, dict) else block)


async def kept(here: Living) -> list[str]:
    """The texts in the journal as it is now, but those of the prompt; of a card the status."""
    told = [params["update"] for params in await recorded(here.journal)]
    return [text_in(each) for each in told if each["sessionUpdate"] != "user_message_chunk"]


def rows(here: Living) -> list[bytes]:
    """The rows of updates in the file that have lines."""
    found = here.journal._file.db.execute("SELECT lines FROM updates WHERE lines != x''")
    return [lines for (lines,) in found]


def lines_in_file(home: Path) -> str:
    """All that the session's file has, once it is closed."""
    (path,) = (each for each in files(home) if each.suffix == ".db")
    with closing(sqlite3.connect(path)) as db:
        return "".join(str(lines) for (lines,) in db.execute("SELECT lines FROM updates"))


async def works(here: Living) -> tuple[PlayedAgent, Any]:
    """Begin a turn, and its tool call; returns the agent and its prompt."""
    agent = await here.agent()
    here.prompt()
    turn = await agent.asked(SESSION_PROMPT)
    agent.update(sessionUpdate="tool_call", toolCallId="t", title="make", status="in_progress")
    return agent, turn


async def test_it_is_written_twice_a_second_at_most_and_soon_after_it_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        text, last = "", here.journal.last_row
        for _ in range(60):  # three seconds
            text += "x"
            agent.update(**output(text))
            await clock.passes(0.05)
        assert here.journal.last_row - last <= 7
        await clock.passes(0.5)
        assert await kept(here) == ["in_progress", text]
        written = here.journal.last_row
        await clock.passes(10)
        assert here.journal.last_row == written
        agent.update(**output(text + "y"))  # it was long ago: at once
        assert await kept(here) == ["in_progress", text + "y"]
        agent.answer(turn, DONE)


def is_stopped(here: Living, agent: PlayedAgent, turn: Any) -> None:
    here.session.feed(ev.Cancel())
    agent.answer(turn, CANCELLED)


def dies(here: Living, agent: PlayedAgent, turn: Any) -> None:
    agent.exits(Exit(3, None))
    agent.dies()


def ends_well(here: Living, agent: PlayedAgent, turn: Any) -> None:
    agent.answer(turn, DONE)


def ends_its_card(here: Living, agent: PlayedAgent, turn: Any) -> None:
    agent.update(sessionUpdate="tool_call_update", toolCallId="t", status="completed")


def speaks(here: Living, agent: PlayedAgent, turn: Any) -> None:
    agent.says_text("said")


def begins_anew(here: Living, agent: PlayedAgent, turn: Any) -> None:
    agent.update(**output("other"))


@pytest.mark.parametrize(
    "happens", [is_stopped, dies, ends_well, ends_its_card, speaks, begins_anew]
)
async def test_before_anything_else_is_recorded_the_journal_has_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Any
) -> None:
    TurnedClock(monkeypatch)  # stands still
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        for text in ("a", "ab", "abc"):
            agent.update(**output(text))
        assert (await kept(here))[:2] == ["in_progress", "a"]
        happens(here, agent, turn)
        if happens is not begins_anew:
            assert (await kept(here))[:2] == ["in_progress", "abc"]
        shown = [text_in(each) for each in here.updates() if "toolCallId" in each]
        assert shown[:4] == ["in_progress", "a", "ab", "abc"]
        agent.answer(turn, DONE)
        assert (await kept(here))[:2] == ["in_progress", "abc"]


async def test_a_session_that_is_closed_between_two_turns_has_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await here.turn(agent)
        agent.update(sessionUpdate="tool_call", toolCallId="t", title="make", status="pending")
        for text in ("a", "ab", "abc"):
            agent.update(**output(text))
        assert await kept(here) == ["pending", "a"]
    assert '"abc"' in lines_in_file(tmp_path)


async def test_what_was_said_stands_where_it_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        agent.update(**output("a"))
        agent.update(**output("ab"))
        agent.says_text("one")
        agent.update(**output("abc"))
        agent.says_text("two", "n")
        agent.update(**output("abcd", status="in_progress"))
        agent.update(**output("abcde", status="in_progress"))
        agent.answer(turn, DONE)
        assert await kept(here) == ["in_progress", "one", "abc", "two", "abcde"]


async def test_an_end_that_tells_the_whole_output_is_all_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        agent.update(**output("a", status="in_progress"))
        agent.update(**output("ab", status="in_progress"))
        agent.update(**output("abc", status="completed"))
        assert await kept(here) == ["in_progress", "abc"]
        assert not any(b'"a"' in lines or b'"ab"' in lines for lines in rows(here))
        agent.answer(turn, DONE)


async def test_while_the_journal_can_not_be_written_nothing_of_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        agent.update(**output("a"))
        with failing(here.journal, "INSERT ON updates"):
            for text in ("ab", "abc"):
                agent.update(**output(text))
                agent.says_text(text, text)
        here.journal.catch_up()
        agent.update(**output("abcd"))
        agent.answer(turn, DONE)
        told = [each for each in await kept(here) if "acp-bridge" not in each]
        assert told == ["in_progress", "ab", "ab", "abc", "abc", "abcd"]


async def test_an_update_supersedes_none_of_an_earlier_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        agent.update(**output("a"))
        agent.answer(turn, DONE)
        agent.update(**output("ab"))
        agent.update(**output("abc"))
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.update(**output("abcd"))
        agent.answer(turn, DONE)
        lines = b"\n".join(rows(here)).splitlines()  # rows may have been compacted
        assert [text_of_line(each) for each in lines if each][-4:] == ["a", "abc", "prompt", "abcd"]


async def test_a_replay_that_goes_on_shows_what_was_kept_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        agent.update(**output("a"))
        begun = here.journal.extent()
        agent.update(**output("ab"))
        here.session.transcript.flush()
        shown = [each async for page in here.journal.replay(up_to=begun) for each in page]
        assert text_in(shown[-1]["update"]) == "a"
        begun.close()
        agent.update(**output("abc"))
        agent.answer(turn, DONE)
        assert await kept(here) == ["in_progress", "abc"]


async def test_a_long_command_leaves_no_long_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent, turn = await works(here)
        text = "x" * 50_000
        for _ in range(200):
            text += "x"
            agent.update(**output(text))
            await clock.passes(0.5)
        assert sum(path.stat().st_size for path in files(tmp_path)) < 6_000_000
        agent.answer(turn, DONE)


def text_of_line(line: bytes) -> str:
    return text_in(loads(line).get("update", {"content": "prompt"}))


def files(home: Path) -> list[Path]:
    return [*home.glob("sessions/*")]
