"""The background work of one session, as a client of version 2 is told it. SANS-IO.

- Each state that the client is told has the whole list of the work, if the agent tells one.
- A tool call that can be cancelled by itself says so on its card, before it is listed.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core.protocol import ITEM_IDS, TOOL_CALL, TOOL_CALL_UPDATE, Json, objects, without

_CALL: Final = ITEM_IDS[TOOL_CALL]


class Background:
    """Turns the bridge's list of background work into the one that the client is told."""

    def __init__(self) -> None:
        """The client was told nothing."""
        self._listed: list[Json] | None = None
        #: the listed tool calls that the client may cancel.
        self._able: set[object] = set()
        #: the list has changed since the client was last told a state.
        self.is_new = False

    def take(self, stands: Json) -> list[Json]:
        """Take the list in a session's state; returns the updates to send before the next state.

        They tell the tool calls that can be cancelled by themselves now, or no longer.
        """
        told = stands.get("background")
        listed = objects(told) if isinstance(told, list) else None
        self.is_new |= listed != self._listed
        self._listed = listed
        calls = {each.get(_CALL): each for each in listed or () if each.get("type") == TOOL_CALL}
        able = {card for card, each in calls.items() if each.get("cancel")}
        changed = sorted(able ^ (self._able & calls.keys()), key=str)
        self._able = able
        return [_ability(card, able=card in able) for card in changed]

    def in_state(self, state: Json) -> Json:
        """Return a `state_update` with the current list, and note that the client has it."""
        self.is_new = False
        if self._listed is None:
            return state
        return {**state, "background": [_without_cancel(each) for each in self._listed]}


def _ability(card: object, *, able: bool) -> Json:
    """Return the update that says of a tool call whether it can be cancelled by itself."""
    capabilities: Json | None = {"cancel": {}} if able else None
    return {"sessionUpdate": TOOL_CALL_UPDATE, _CALL: card, "capabilities": capabilities}


def _without_cancel(item: Json) -> Json:
    return without(item, "cancel")
