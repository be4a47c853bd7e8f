"""Keeps the state of the repository of a session's folder at the last turn's end, and its machine.

Only a session that may be opened on other machines, in a database, has that; for a file alone
no repository is looked at. A machine is a data folder with copies of sessions.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from acp_bridge.core.journal import JournalError
from acp_bridge.core.protocol import Json, as_object
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.feature import Feature, Parts, Plugin
from acp_bridge.core.settings import Settings

#: the key under which the journal has the repository's state.
_KEY: Final = "repository"
#: how many machines that have compared the repository are remembered.
_TOLD: Final = 16


class WorkingFolder(Feature):
    """Compares the repository of one session's folder with what it was on another machine."""

    def __init__(self, session: Parts) -> None:
        """No repository was looked at yet."""
        self._core, self._journal, self._prompts = session.core, session.journal, session.prompts
        #: that of the agent's guards, which the guard of git follows, too.
        self._deadline = session.deadline
        #: how the turn ended after which the repository was looked at last.
        self._noted: Json = {}

    async def note_use(self) -> None:
        """Keep the repository's state at the end of a turn, unless that is done."""
        await self._note(waits.REPOSITORY)

    async def close(self, reason: str) -> None:
        """Keep the repository's state at the end of the last turn, unless that is done."""
        await self._note(waits.REPOSITORY_AT_END)

    async def _note(self, within: float) -> None:
        """Keep the state if it can be told `within` so many seconds; else none, nor an older one.

        Never raises.
        """
        end = self._prompts.last_end
        if not self._journal.machine or end == self._noted:
            return
        from acp_bridge.features.repository.repository import look

        stands = await look(self._core.workspace.cwd, within, self._deadline)
        kept: Json = {"machine": self._journal.machine, "name": socket.gethostname()}
        kept |= stands.kept if stands else {}
        try:
            if not self._journal.closed and kept != self._journal.get(_KEY):
                self._journal.set(_KEY, kept)
            self._noted = end
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)

    async def open(self) -> str | None:
        """Compare the repository with its state after the last turn on another machine, once.

        Returns the notice of a difference, or None. Never raises.
        """
        if not self._journal.machine:
            return None
        from acp_bridge.features.repository.notices import Standing, stands_otherwise
        from acp_bridge.features.repository.repository import look

        try:
            kept = as_object(self._journal.get(_KEY))
            told = kept.get("told")
            told = told[-_TOLD:] if isinstance(told, list) else []
            there = Standing.of(kept)
            if there is None or self._journal.machine in (kept.get("machine"), *told):
                return None
            here = await look(self._core.workspace.cwd, waits.REPOSITORY, self._deadline)
            if here is None:
                return None
            self._journal.set(_KEY, {**kept, "told": [*told, self._journal.machine]})
            if there.is_other(here):
                return stands_otherwise(str(kept.get("name")), there, here)
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)
        return None


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what compares the repository of a session's folder."""
    return [WorkingFolder(session)]


PLUGIN: Final = Plugin(made_for)
