"""A prompt for a session that sleeps is on the disk as left over; nothing else is changed."""

import os
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, JournalError, PromptState, UnknownSession
from acp_bridge.terminal.commands import send
from acp_bridge.terminal.commands.send import leave_prompt
from acp_bridge.terminal.shared.sending import prompt_params

SESSION = "a" * 32


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    journal = Journal(tmp_path)
    session = await journal.create(SESSION, cwd="/w", agent="a")
    sent, waiting = session.accept("sent", {"prompt": []}), session.accept("waits", {"prompt": []})
    assert sent < waiting
    session.start_turn(sent)
    await journal.close()
    return tmp_path


async def test_it_is_left_over_and_what_a_killed_bridge_left_is_for_the_next_one_to_settle(
    home: Path,
) -> None:
    assert await leave_prompt(home, SESSION, prompt_params(SESSION, "one")) == 2
    assert await leave_prompt(home, SESSION, prompt_params(SESSION, "two")) == 3
    journal = Journal(home)
    rows = (await journal.open(SESSION)).prompts()
    await journal.close()
    assert [row.state for row in rows] == [
        *(PromptState.SENT, PromptState.WAITING, PromptState.LEFT_OVER, PromptState.LEFT_OVER)
    ]
    assert rows[-1].params == prompt_params(SESSION, "two")


async def test_a_session_that_a_bridge_has_is_left_to_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_LOCK", 0.0)
    lock = await lease.acquire(Journal(home).lock_path(SESSION), 0)
    with anyio.fail_after(5), pytest.raises(lease.Busy):
        await leave_prompt(home, SESSION, prompt_params(SESSION, "one"))
    os.close(lock)
    assert await leave_prompt(home, SESSION, prompt_params(SESSION, "one")) == 2


async def test_a_session_that_is_gone_is_not_made_anew(home: Path) -> None:
    with pytest.raises(UnknownSession):
        await leave_prompt(home, "b" * 32, prompt_params("b" * 32, "one"))
    assert not Journal(home).path("b" * 32).exists()
    assert not Journal(home).lock_path("b" * 32).exists()


async def test_a_lock_that_can_not_be_made_is_said_as_a_disk_that_can_not_be_written(
    home: Path,
) -> None:
    Journal(home).lock_path(SESSION).unlink(missing_ok=True)
    Journal(home).lock_path(SESSION).mkdir()
    with pytest.raises(JournalError, match="Is a directory"):
        await leave_prompt(home, SESSION, prompt_params(SESSION, "one"))
