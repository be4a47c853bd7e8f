"""Knows how the repository of a session's folder stood when the last turn ended, and where.

Only a session that may be opened on other machines, in a database, has that; for a file alone
nothing is looked at. A machine is a data folder with copies of sessions.
"""

from __future__ import annotations

import socket
from typing import Final

from acp_bridge.agents.deadline import Deadline
from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.protocol import Json, as_object
from acp_bridge.runtime import waits
from acp_bridge.runtime.log import event
from acp_bridge.session.core import Core

#: the key under which the journal has it.
_KEY: Final = "repository"
#: machines that were told of one that differs, and are kept.
_TOLD: Final = 16


class WorkingFolder:
    """Compares the repository of one session's folder with what it was on another machine."""

    def __init__(self, core: Core, journal: SessionJournal, deadline: Deadline | None) -> None:
        """Nothing is looked at. `deadline`: as the agent's guards have it."""
        self._core = core
        self._journal = journal
        self._deadline = deadline
        self._said: str | None = None
        #: how the turn had ended at whose end it was looked last.
        self._noted: Json = {}

    def take_said(self) -> str | None:
        """Return, once, the notice that the repository stands otherwise here; None: it does not."""
        said, self._said = self._said, None
        return said

    async def note(self, end: Json, within: float = waits.REPOSITORY) -> None:
        """Keep how it stands when a turn has ended, unless that is done. Never raises.

        `end`: how the last turn has ended. If it can't be told within so many seconds, nothing is
        kept, and neither is what was before.
        """
        if not self._journal.machine or end == self._noted:
            return
        from acp_bridge.session.repository import look

        stands = await look(self._core.workspace.cwd, within, self._deadline)
        kept: Json = {"machine": self._journal.machine, "name": socket.gethostname()}
        kept |= stands.kept if stands else {}
        try:
            if not self._journal.closed and kept != self._journal.get(_KEY):
                self._journal.set(_KEY, kept)
            self._noted = end
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)

    async def compare(self) -> None:
        """Look whether it differs from how the last turn left it on another machine. Never raises.

        A machine is told that once.
        """
        if not self._journal.machine:
            return
        from acp_bridge.session.repository import look
        from acp_bridge.updates.repository import Standing, stands_otherwise

        try:
            kept = as_object(self._journal.get(_KEY))
            told = kept.get("told")
            told = told[-_TOLD:] if isinstance(told, list) else []
            there = Standing.of(kept)
            if there is None or self._journal.machine in (kept.get("machine"), *told):
                return
            here = await look(self._core.workspace.cwd, waits.REPOSITORY, self._deadline)
            if here is None:
                return
            self._journal.set(_KEY, {**kept, "told": [*told, self._journal.machine]})
            if there.is_other(here):
                self._said = stands_otherwise(str(kept.get("name")), there, here)
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)
