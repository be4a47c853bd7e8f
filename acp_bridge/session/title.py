"""The title under which a session is listed: the first prompt's words, or what the agent says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from acp_bridge import notices
from acp_bridge.journal import UNSET, Journal, JournalError, SessionJournal, Unset
from acp_bridge.log import event
from acp_bridge.protocol import INFO_UPDATE, Json

#: characters of a title that is made of a prompt.
_LENGTH = 80


class TitlePort(Protocol):
    """What the title needs of its session."""

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a piece of work whose failure is this session's only."""


class Title:
    """Keeps one session's title in the journal and its listing."""

    def __init__(self, port: TitlePort, listing: Journal, journal: SessionJournal) -> None:
        """`listing` has the rows of all sessions."""
        self._port = port
        self._listing = listing
        self._journal = journal
        self._session_id = journal.info.session_id
        self._known = journal.info.title is not None
        self._listed = journal.info.prompted

    def note_prompt(self, params: Json) -> None:
        """Take a prompt: the first one with words titles a session that has no title.

        With the first prompt that the journal took a session is listed, title or none.
        """
        if not self._known and (title := notices.summary(params["prompt"], _LENGTH)):
            self._set(title)
        elif not self._listed:
            self._port.spawn(self._keep, UNSET)
        self._listed = self._journal.info.prompted

    def note_update(self, update: Json) -> None:
        """Take an update of the agent: it may give a title, or take it away."""
        if update.get("sessionUpdate") == INFO_UPDATE and "title" in update:
            title = update["title"]
            self._set(title if isinstance(title, str) else None)

    def _set(self, title: str | None) -> None:
        self._known = True
        self._port.spawn(self._keep, title)

    async def _keep(self, title: str | Unset | None) -> None:
        try:
            await self._listing.touch(self._session_id, title=title)
        except JournalError as exc:
            event("journal.failed", session=self._session_id, what=exc)
