"""Queues a prompt in a session that no bridge has open: it is left over until the user runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, JournalError, PromptState, UnknownSession
from acp_bridge.core.protocol import Json

#: seconds to wait for a bridge that is opening or ending the session to release its lock.
_LOCK: Final = 5.0


async def leave_prompt(home: Path, session_id: str, params: Json) -> int:
    """Record a prompt as left over; returns how many prompts are left over, this one included.

    Those that waited when a bridge was killed count, too. `params`: of the `session/prompt`. The
    prompt is on disk on return. The session's lock is taken meanwhile, so no bridge can open it.

    Raises:
        lease.Busy: a bridge has the session.
        JournalError: it can't be written.
    """
    journal = Journal(home)
    if not journal.path(session_id).is_file():  # make no lock file for a deleted session
        raise UnknownSession
    try:
        lock = await lease.acquire(journal.lock_path(session_id), _LOCK)
    except OSError as exc:
        raise JournalError(f"it can't be locked ({exc.strerror})") from exc
    try:
        session = await journal.open(session_id)
        seq = session.accept(uuid4().hex, params)
        session.leave_over(seq)
        await session.sync()
        return len(session.prompts(PromptState.WAITING, PromptState.LEFT_OVER))
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()
        os.close(lock)
