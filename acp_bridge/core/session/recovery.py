"""Settles what another bridge left of a session, before a client is shown it (invariants Q6, C16).

Turns that it ran are interrupted, their open cards closed and the subagents ended; prompts that
waited are left over. Of an interrupted turn only the turn itself is read, unless it went on with a
card of an older one.
"""

from __future__ import annotations

from acp_bridge.core.journal import PromptState, SessionJournal
from acp_bridge.core.protocol import Json, is_feedback
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.children import placed
from acp_bridge.core.updates.open_cards import OpenCards
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import encode


class Recovery:
    """Settles what another bridge left of one session."""

    def __init__(self, journal: SessionJournal, prompts: Prompts, updates: Updates) -> None:
        """Nothing is read before `run`."""
        self._journal = journal
        self._prompts = prompts
        self._updates = updates
        #: the updates that end what the other bridge left, for clients that had seen it until then.
        self.said: list[Json] = []

    async def run(self) -> None:
        """End the turns that another bridge ran, and leave over the prompts that waited there.

        Raises JournalError.
        """
        ends: dict[int, bytes] = {}
        for row in self._journal.prompts(PromptState.SENT):
            if not self._journal.began_turn(row.seq):
                continue  # it had joined the turn of another, which tells how that ended
            ended = await self._still_open(row.seq)
            self._updates.forget_notes(update["toolCallId"] for update in ended)
            said = [placed(update) for update in ended]
            lost = notices.MISSING if row.outcome else notices.INTERRUPTED
            said.append(notices.notice(lost))
            self.said += said
            ends[row.seq] = b"".join(encode(params) for params in said)
        waited = await self._journal.recover(ends)
        if left := self._updates.children.end():
            self.said += left
            self._journal.record(0, b"".join(encode(params) for params in left))
        # A hook's feedback was to run before all that waited, however long they had.
        for row in sorted(waited, key=lambda row: not is_feedback(row.params)):
            self._prompts.add_left_over(row)

    async def _still_open(self, turn: int) -> list[Json]:
        """Return the updates that end the cards which were shown in a turn and have no end."""
        cards = await self._cards(turn)
        if not cards.older:
            return cards.closing()
        still_open = (await self._cards(None)).closing()
        return [update for update in cards.closing() if update in still_open]

    async def _cards(self, turn: int | None) -> OpenCards:
        cards = OpenCards()
        async for page in self._journal.replay(turn=turn):
            for params in page:
                cards.note(params.get("update"))
        return cards
