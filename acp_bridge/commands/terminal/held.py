"""Puts a prompt into the queue of a session that sleeps: it is held until the user says run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio

from acp_bridge.agents import lease
from acp_bridge.journal import Journal, JournalError, PromptState, UnknownSession
from acp_bridge.protocol import Json

#: seconds for a bridge that is just opening or ending the session to let go of it.
_LOCK: Final = 5.0


async def hold_prompt(home: Path, session_id: str, params: Json) -> int:
    """Record a prompt as held; returns how many are held then. It is on the disk on return.

    The session's lock is held meanwhile, so no bridge has the session open.

    Raises:
        lease.Busy: a bridge has the session.
        JournalError: it can't be written.
    """
    journal = Journal(home)
    if not journal.path(session_id).is_file():  # no lock file is made for what is gone
        raise UnknownSession("no such session")
    try:
        lock = await lease.acquire(journal.lock_path(session_id), _LOCK)
    except OSError as exc:
        raise JournalError(f"it can't be locked ({exc.strerror})") from exc
    try:
        session = await journal.open(session_id)
        seq = session.accept(uuid4().hex, params)
        session.hold(seq)
        await session.sync()
        return len(session.prompts(PromptState.HELD))
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()
        os.close(lock)
