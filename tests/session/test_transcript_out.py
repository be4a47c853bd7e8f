"""The outlet: recorded before it is shown, in order, and a replay overtaken by nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from acp_bridge.session.outlet import Outlet

from acp_bridge.journal import Journal, SessionJournal
from acp_bridge.updates import text_chunk
from tests.session.memory import Sent

Json = dict[str, Any]


def said(text: str, message_id: str = "m", **more: Any) -> Json:
    return {"update": text_chunk("agent_message_chunk", text, message_id), **more}


COMMANDS: Json = {
    "update": {"sessionUpdate": "available_commands_update", "availableCommands": []},
    "_meta": {"x": 1},
}


class Shown(Sent):
    """Notes, at each write, what the journal had by then."""

    def __init__(self, journal: SessionJournal) -> None:
        super().__init__()
        self._journal = journal
        self.kept: list[int] = []

    def write(self, data: bytes) -> None:
        super().write(data)
        self.kept.append(self._journal._last_row())

    def texts(self) -> list[str]:
        return [m["params"]["update"]["content"]["text"] for m in self.take()]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SessionJournal]:
    home = Journal(tmp_path)
    yield await home.create('s"é', cwd="/w", agent="a")
    await home.close()


async def recorded(journal: SessionJournal) -> list[Json]:
    return [params async for page in journal.replay() for params in page]


@pytest.mark.hazard("T2", "K1")
async def test_a_batch_is_recorded_in_one_row_before_it_is_shown_in_one_write(
    journal: SessionJournal,
) -> None:
    shown = Shown(journal)
    outlet = Outlet(journal.info.session_id, journal, shown.write)
    outlet.record_only({"update": text_chunk("user_message_chunk", "mine")})
    for text in ("a", "b"):
        outlet.show(said(text, text, _meta={"kept": [1, None]}))
    assert shown.kept == []
    outlet.flush()
    outlet.flush()
    assert shown.kept == [1]
    first, second = shown.take()
    assert first == {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {"sessionId": 's"é', **said("a", "a", _meta={"kept": [1, None]})},
    }
    assert second["params"]["update"] == said("b", "b")["update"]
    texts = [params["update"]["content"]["text"] for params in await recorded(journal)]
    assert texts == ["mine", "a", "b"]


@pytest.mark.hazard("R1", "T2")
async def test_what_is_shown_and_answered_during_a_replay_comes_behind_it_in_order(
    journal: SessionJournal,
) -> None:
    shown = Shown(journal)
    outlet = Outlet("s", journal, shown.write)
    outlet.show(said("before"))
    outlet.hold()
    answered: list[str] = []
    outlet.show(said("during"))
    outlet.flush()
    outlet.then(lambda: outlet.replay(said("an answer")))
    outlet.then(lambda: answered.append("done"))
    outlet.replay(said("replayed"))
    assert shown.texts() == ["before", "replayed"]
    assert outlet.held_bytes > 0
    assert not outlet.loaded.is_set()
    # Though it is not shown yet, it is recorded.
    assert len(await recorded(journal)) == 1
    outlet.let_go()
    assert outlet.loaded.is_set()
    assert outlet.held_bytes == 0
    assert (shown.texts(), answered) == (["during", "an answer"], ["done"])
    outlet.then(lambda: answered.append("at once"))
    assert answered[-1] == "at once"


@pytest.mark.hazard("R1")
async def test_of_what_is_no_part_of_the_conversation_the_last_is_kept_by_its_kind(
    journal: SessionJournal,
) -> None:
    shown = Shown(journal)
    outlet = Outlet("s", journal, shown.write)
    for _ in range(2):
        outlet.show(COMMANDS)
        outlet.flush()
    assert len(shown.take()) == 2
    assert await recorded(journal) == []
    assert journal.get("state:available_commands_update") == COMMANDS


@pytest.mark.hazard("K1", "Q8")
async def test_a_journal_that_fails_is_said_once_and_again_after_it_had_worked(
    journal: SessionJournal,
) -> None:
    shown = Shown(journal)
    outlet = Outlet("s", journal, shown.write)
    fails, works = (
        "CREATE TRIGGER full BEFORE INSERT ON updates BEGIN SELECT RAISE(ABORT, 'full'); END",
        "DROP TRIGGER full",
    )
    journal._file.db.execute(fails)
    for text in ("one", "two"):
        outlet.show(said(text))
        outlet.flush()
    one, warning, two = shown.texts()
    assert (one, two) == ("one", "two")
    assert warning.startswith("[acp-bridge] The journal can't be written")
    journal._file.db.execute(works)
    outlet.show(said("three"))
    outlet.flush()
    journal._file.db.execute(fails)
    outlet.show(said("four"))
    outlet.flush()
    assert len(shown.texts()) == 3
    assert [params["update"]["content"]["text"] for params in await recorded(journal)] == ["three"]


@pytest.mark.hazard("Q4")
async def test_what_is_shown_belongs_to_the_turn_until_that_turn_ends(
    journal: SessionJournal,
) -> None:
    outlet = Outlet("s", journal, Shown(journal).write)
    outlet.turn = 3
    outlet.show(said("of the turn"))
    outlet.end_turn(2)  # another one, that never ran
    assert outlet.turn == 3
    outlet.end_turn(3)
    outlet.show(said("of none"))
    outlet.flush()
    rows = journal._file.db.execute("SELECT turn FROM updates ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [3, 0]


async def test_the_bridges_own_words_are_marked_and_kept(journal: SessionJournal) -> None:
    shown = Shown(journal)
    outlet = Outlet("s", journal, shown.write)
    outlet.notice("Said.")
    outlet.notice("Said again.")
    outlet.flush()
    first, second = (message["params"] for message in shown.take())
    assert first["_meta"] == {"acp_bridge": {"notice": True}}
    assert first["update"]["messageId"] != second["update"]["messageId"]
    assert len(await recorded(journal)) == 2
