"""Follows what a session's agent lists as running in the background, and cancels a piece of it.

Only an agent of version 2 lists anything.

- Clients are told the whole list whenever it changes, with the ids that they know. A tool call is
  in it only while its card is open: it was shown before, and what has ended is not listed.
- The list ends with the process, behind the ends of its cards, and the session says what was in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_bridge import errors
from acp_bridge.clients.client import ClientRequest
from acp_bridge.protocol import (
    CANCEL_ITEM,
    ITEM_IDS,
    SESSION_CANCEL,
    TERMINAL,
    TOOL_CALL,
    Json,
    as_object,
    without_own_meta,
)
from acp_bridge.session.core import Core
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates import notices
from acp_bridge.updates.updates import Updates

if TYPE_CHECKING:
    from acp_bridge.versions.activity import Activity


class Background:
    """Knows what runs in the background of one session."""

    def __init__(
        self, core: Core, updates: Updates, transcript: TranscriptOut, patience: float
    ) -> None:
        """No process has listed anything; `patience`: seconds for an agent to take a cancel."""
        self._core = core
        self._updates = updates
        self._transcript = transcript
        self._patience = patience
        #: the list as clients are told it; None if no process has ever told one.
        self.listed: tuple[Json, ...] | None = None
        #: what a person knows each listed piece by, also those that no client can be shown.
        self.titles: list[str] = []
        #: the process whose list it is.
        self._epoch = 0
        #: a notice has said what ends with that process.
        self._said = False
        #: the last Stop leaves what runs to go on, as one of a client of version 2 does.
        self.spares = False
        #: the client-side ids of the tool calls that run there.
        self.cards: frozenset[str] = frozenset()

    def is_listed(self, card_id: str) -> bool:
        """Return True for the client-side id of a tool call that runs in the background."""
        return any(each.get(ITEM_IDS[TOOL_CALL]) == card_id for each in self.listed or ())

    def note(self, activity: Activity, epoch: int) -> None:
        """Note what the process of this epoch, which has the session, lists now."""
        if activity.background is None:
            return
        told = [
            self._told(each.kind, each.id, can_cancel=each.can_cancel)
            for each in activity.background
        ]
        before = self.listed, self.titles, self._epoch
        self.titles = [each.title for each in activity.background]
        self.listed, self._epoch = tuple([each for each in told if each]), epoch
        calls = [call for each in activity.background for call in each.calls]
        self._updates.note_begun(calls)
        self.cards = frozenset(map(self._updates.client_card_id, calls))
        if (self.listed, self.titles, self._epoch) != before:
            self._said = False
            self._core.settle()

    def _told(self, kind: str, agent_id: str, *, can_cancel: bool) -> Json:
        """Return a piece as clients are told it; empty for a tool call without an open card.

        Of a kind that is not known the kind alone is told: its ids are the agent's.
        """
        if kind == TOOL_CALL:
            card = self._updates.open_card_id(agent_id)
            told: Json = {"type": kind, ITEM_IDS[kind]: card} if card else {}
        elif kind == TERMINAL:
            told = {"type": kind, ITEM_IDS[kind]: agent_id}
        else:
            return {"type": kind if kind.startswith("_") else f"_{kind}"}
        return {**told, "cancel": True} if told and can_cancel else told

    @property
    def spared(self) -> frozenset[str]:
        """The client-side ids of the tool calls that go on after the last Stop."""
        return self.cards if self.spares else frozenset()

    def stop(self) -> None:
        """Tell an agent that does nothing else to end what it has in the background."""
        link = self._core.link
        if link and self.titles:
            link.peer.notify(SESSION_CANCEL, {"sessionId": link.agent_session_id})

    # --- its end -------------------------------------------------------------------------------

    def take_titles(self) -> list[str]:
        """Return what is listed, for a notice that says that it ends with the process."""
        self._said = True
        return self.titles

    def end(self, epoch: int) -> None:
        """Forget the list of a process that is dead, and say what ended with it."""
        if epoch != self._epoch or self.listed is None:
            return
        if self.titles and not self._said and not self._core.now.ending:
            self._transcript.notice(notices.ended_in_background(self.titles))
        self.listed, self.titles, self.cards = (), [], frozenset()

    # --- a client's word -----------------------------------------------------------------------

    async def cancel(self, request: ClientRequest, params: Json) -> Json:
        """Answer `_acp_bridge/cancel_item` with the agent's word; raises RpcError."""
        member, agent_id = self._item(params)
        link = self._core.link
        if link is None or link.activity is None or agent_id is None:
            raise errors.invalid("nothing that runs under this id can be cancelled", member)
        asked = {"sessionId": link.agent_session_id, member: agent_id}
        with anyio.move_on_after(self._patience):
            answer = as_object(await link.ask_for(request, CANCEL_ITEM, asked))
            return without_own_meta(answer)
        raise errors.silent(CANCEL_ITEM, self._patience)

    def _item(self, params: Json) -> tuple[str, str | None]:
        """Return the member that names what is to end, and the id that the agent's link knows."""
        named = [member for member in ITEM_IDS.values() if member in params]
        if len(named) != 1 or not isinstance(given := params[named[0]], str):
            raise errors.invalid(f"one text is needed: {' or '.join(ITEM_IDS.values())}")
        of_call = named[0] == ITEM_IDS[TOOL_CALL]
        return named[0], self._updates.agent_card_id(given) if of_call else given
