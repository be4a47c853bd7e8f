"""Knows the tool calls that wait for a permission, so that a record tells which never got one.

A bridge that ends, or an agent that dies, leaves its permissions unanswered, and nothing else in
the journal tells that they were asked. SANS-IO.
"""

from __future__ import annotations

from typing import Final

#: how many ids are kept, the newest.
_MOST: Final = 200


class Asking:
    """The calls of one session that are asked about, also those that an earlier bridge has left."""

    def __init__(self, kept: object = None) -> None:
        """`kept`: what the journal has of it."""
        known = kept if isinstance(kept, list) else []
        self._ids = dict.fromkeys(each for each in known if isinstance(each, str))
        #: the journal may have other ids than are known now.
        self.changed = False

    def ask(self, call_id: str) -> None:
        """Note that a permission is asked for a call; `call_id`: its client-side id."""
        self._ids[call_id] = None
        self.changed = True
        if len(self._ids) > _MOST:
            del self._ids[next(iter(self._ids))]

    def settle(self, call_id: object) -> None:
        """Note that a permission for a call has an end, which the call's card tells."""
        if isinstance(call_id, str) and call_id in self._ids:
            del self._ids[call_id]
            self.changed = True

    def take(self) -> list[str]:
        """Return the ids for the journal, the oldest first."""
        self.changed = False
        return list(self._ids)
