"""The listing is only a copy: lost, it is made again from the sessions themselves."""

from pathlib import Path

import pytest

from acp_bridge.journal import Journal
from tests.journal.files import remove


async def keep_sessions(home: Path) -> None:
    journal = Journal(home)
    await journal.create("a" * 32, cwd="/a", agent="one", agent_session_id="0")
    await journal.create("b" * 32, cwd="/b", agent="one")
    await journal.create("any id", cwd="/c", agent="two")
    await journal.touch("a" * 32, title="first")
    await journal.close()


@pytest.mark.hazard("K2")
async def test_a_lost_index_is_made_again_and_a_damaged_session_hides_no_other(
    tmp_path: Path,
) -> None:
    await keep_sessions(tmp_path)
    journal = Journal(tmp_path)
    before = await journal.list()
    known = await journal.known_agent_ids("one")
    await journal.close()
    remove(tmp_path, "index.db*")
    (tmp_path / "sessions" / "damaged.db").write_bytes(b"no database" * 1000)
    (tmp_path / "sessions" / "empty.db").touch()
    journal = Journal(tmp_path)
    assert await journal.list() == before
    assert await journal.known_agent_ids("one") == known == {"0": "a" * 32}
    await journal.close()


async def test_an_index_made_again_has_the_session_that_is_just_being_made(
    tmp_path: Path,
) -> None:
    await keep_sessions(tmp_path)
    remove(tmp_path, "index.db*")
    journal = Journal(tmp_path)
    await journal.create("c" * 32, cwd="/d", agent="one")
    rows, _ = await journal.list()
    assert [row.cwd for row in rows] == ["/d", "/a", "/c", "/b"]
    await journal.close()
