"""Tool cards that nothing has ended: found in a recorded conversation, and closed. SANS-IO."""

from __future__ import annotations

from acp_bridge import protocol
from acp_bridge.protocol import ENDED, TOOL_CALL_UPDATE, Json


def closing_update(client_id: str) -> Json:
    """Return the update that ends a card whose turn is over."""
    return {"sessionUpdate": TOOL_CALL_UPDATE, "toolCallId": client_id, "status": "failed"}


class OpenCards:
    """Finds the tool cards that a recorded conversation leaves open."""

    def __init__(self) -> None:
        self._open: dict[str, bool] = {}
        #: a card was gone on with that was not opened here: it may have ended before.
        self.older = False

    def note(self, update: object) -> None:
        """Take the next recorded update."""
        match update:
            case {"sessionUpdate": protocol.TOOL_CALL | protocol.TOOL_CALL_UPDATE as kind, **rest}:
                if isinstance(card := rest.get("toolCallId"), str):
                    self.older |= kind == TOOL_CALL_UPDATE and card not in self._open
                    ended = rest.get("status") in ENDED
                    self._open[card] = self._open.get(card, True) and not ended

    def closing(self) -> list[Json]:
        """Return the updates that end the open ones, in the order in which they were opened."""
        return [closing_update(card) for card, is_open in self._open.items() if is_open]
