"""The title under which a session is listed: the user's, else the agent's, else the first words.

A title that the user gave stays: whatever the agent says later is shown and kept with that one in
its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import UNSET, Journal, JournalError, SessionJournal, Unset
from acp_bridge.core.protocol import INFO_UPDATE, SET_TITLE, TITLE, Json, add_own_methods
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.feature import Command, Feature, Parts, Plugin
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates.notices import summary
from acp_bridge.core.updates.wording import words

#: characters of a title that is made of a prompt.
_LENGTH = 80
#: characters of a title that the user gives.
_OWN_LENGTH: Final = 200
#: the journal's key under which it stands that the user gave the title.
_OWN: Final = "titled"


class Title(Feature):
    """Keeps one session's title in the journal and its listing."""

    states = frozenset({INFO_UPDATE})
    words = ("title WORDS",)

    def __init__(self, session: Parts) -> None:
        """The title is the one in the journal."""
        self._core = session.core
        self._transcript = session.transcript
        self._journal = journal = session.journal
        self.takes = {TITLE: self._take, SET_TITLE: self._take}
        self._own: str | None = None
        with suppress(JournalError):  # then nobody can know
            self._own = journal.info.title if journal.get(_OWN) else None
        self._listing = session.listing
        self._session_id = journal.info.session_id
        #: the title to be kept next, if any; whether something is to be kept, and is being kept.
        self._wanted: str | Unset | None = UNSET
        self._due = self._keeping = False
        self._known = journal.info.title is not None

    def note_prompt(self, params: Json) -> bool:
        """Title the session by the first prompt with words, if it has no title.

        Return True if it was titled, which lists it. A prompt that was refused, since the session
        is closed, titles nothing.
        """
        if self._known or self._core.closing:
            return False
        if title := summary(params["prompt"], _LENGTH):
            self._set(_sound(title))
        return bool(title)

    def note_state(self, link: Link, update: Json, *, announced: bool) -> Json:
        """Note a title that the agent gives or takes away. Return the update with the user's."""
        if "title" not in update:
            return update
        if self._own is not None:
            return {**update, "title": self._own}
        title = update["title"]
        self._set(_sound(title) if isinstance(title, str) else None)
        return update

    def take_command(self, command: Command) -> bool:
        """Carry out `/queue title WORDS`."""
        match command.words:
            case ["title", *given]:
                command.show()
                command.end(titled(self._set_own(" ".join(given))))
                return True
        return False

    def _take(self, request: ClientRequest, params: Json) -> None:
        """Give the session the title of a client's request and answer it; raises RpcError."""
        self._transcript.end_quiet(request.client)
        title = self._set_own(_given(params))
        self._transcript.then(request.client, lambda: request.answer({"title": title}))

    def _set_own(self, given: str) -> str:
        """Give the session the user's title; returns it as it is kept, or "" if it has no words."""
        title = _as_kept(given)
        if title:
            self._own = title
            try:
                self._journal.set(_OWN, True)
            except JournalError as exc:
                event("journal.failed", session=self._session_id, what=exc)
            self._set(title)
            told = {"sessionUpdate": INFO_UPDATE, "title": title}
            self._transcript.show({"update": told})
        return title

    def _set(self, title: str | None) -> None:
        self._known = True
        self._wanted = title
        self._keep_soon()

    def _keep_soon(self) -> None:
        self._due = True
        if not self._keeping:
            self._keeping = True
            self._core.spawn(self._keep)

    async def _keep(self) -> None:
        """Keep the newest title: an agent may give more of them than the listing can take."""
        try:
            while self._due:
                title, self._wanted, self._due = self._wanted, UNSET, False
                try:
                    await self._listing.touch(self._session_id, title=title)
                except JournalError as exc:
                    event("journal.failed", session=self._session_id, what=exc)
        finally:
            self._keeping = False


def _sound(title: str) -> str:
    """Return a title as the journal takes it: halves of surrogate pairs become question marks."""
    return title.encode(errors="replace").decode()


def _as_kept(given: str) -> str:
    """Return a title that the user gives as it is kept; "" if it has no words."""
    return _sound(summary([{"text": given}], _OWN_LENGTH))


def _given(params: Json) -> str:
    """Return the title in the parameters of a request, as it is kept; raises RpcError."""
    given = params.get("title")
    if not isinstance(given, str) or not (title := _as_kept(given)):
        raise errors.invalid("must be a text", "title")
    return title


async def _retitle(journal: SessionJournal, listing: Journal, params: Json) -> Json:
    """Give a session that is not open the title of a `session/set_title`; return the answer.

    Raises RpcError, JournalError.
    """
    title = _given(params)
    journal.set(_OWN, True)
    await listing.touch(journal.info.session_id, title=title)
    return {"title": title}


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what keeps the title of a session."""
    return [Title(session)]


def titled(title: str) -> str:
    """Return the answer to `/queue title`; `title` is empty if the user gave no words."""
    return f"Titled: {words(title)}" if title else "Give the title behind it: `/queue title WORDS`."


def announce(agent: Json, told: Json) -> None:
    """Add to the answer to `initialize` that sessions can be titled."""
    add_own_methods(told, TITLE)
    told["agentCapabilities"]["sessionCapabilities"]["title"] = {}


PLUGIN: Final = Plugin(made_for, announce=announce, closed={SET_TITLE: _retitle})
