"""Brings the rows of the index up to date with the sessions' own files.

Invariants
- A row that could not be written is written with the next one, before the next listing, and at the
  end. A listing that can't be used hinders nobody.
- A session that had its first prompt is listed, also if the bridge was killed before it could say
  so: the first listing looks into the files of those that had none.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from acp_bridge.journal.errors import IndexUnusable, JournalError
from acp_bridge.journal.files import read_info
from acp_bridge.journal.index import Index
from acp_bridge.journal.records import SessionInfo
from acp_bridge.journal.threads import in_thread

#: sessions without a prompt, the newest, into whose files the first listing looks.
_LOOKED_AT: Final = 100

logger = logging.getLogger(__name__)


class IndexRows:
    """Writes rows of one bridge's sessions."""

    def __init__(self, index: Index, path: Callable[[str], Path]) -> None:
        """`path` returns the path of a session's file."""
        self._index = index
        self._path = path
        #: what the index could not take yet, by session.
        self._unwritten: dict[str, SessionInfo] = {}
        self._looked = False

    async def put(self, info: SessionInfo, *, durable: bool = False) -> None:
        """Bring the row of a session up to date, now or later; if `durable`, it is on the disk."""
        self._unwritten.pop(info.session_id, None)
        try:
            await self._index.put(info, durable=durable)
        except IndexUnusable as error:
            logger.warning("journal: session %s: %s", info.session_id, error)
            self._unwritten.setdefault(info.session_id, info)
        else:
            await self.catch_up()

    def forget(self, session_id: str) -> None:
        """Write no row of this session any more: it was removed."""
        self._unwritten.pop(session_id, None)

    async def catch_up(self) -> None:
        """Write what the index could not take before, as far as it can now."""
        with suppress(IndexUnusable):
            while self._unwritten:
                session_id, info = next(iter(self._unwritten.items()))
                await self._index.put(info, late=True)
                if self._unwritten.get(session_id) is info:
                    del self._unwritten[session_id]

    async def look(self) -> None:
        """Do what has to be done before a listing. Raises IndexUnusable."""
        await self.catch_up()
        if not self._looked:
            for session_id in (await self._index.without_prompt())[:_LOOKED_AT]:
                with suppress(JournalError):  # no file, or one that can't be read
                    info = await in_thread(read_info, self._path(session_id))
                    if info and info.session_id == session_id and info.prompted:
                        await self._index.put(info, late=True)
            self._looked = True
