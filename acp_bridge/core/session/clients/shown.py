"""Shows one client the entries of a transcript, from the place up to which it has them.

What stands before that place counts all the same: cards and subagents may have begun there.
"""

from __future__ import annotations

from collections.abc import Callable

from acp_bridge.core import errors
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal.place import Cursor, From, WrongCursor
from acp_bridge.core.protocol import (
    CONTEXT,
    SUBAGENT_UPDATE,
    Json,
    after_of,
    as_object,
    kind_of,
    own_meta,
)
from acp_bridge.core.session.transcript.client_view import ClientView
from acp_bridge.core.session.transcript.places import Mark
from acp_bridge.core.updates.open_cards import ReplayedCards, for_replay


def cursor_of(request: ClientRequest) -> Cursor | None:
    """Return the cursor behind which a request is to show a session; raises RpcError."""
    after = after_of(request.method, as_object(request.params))
    try:
        return None if after is None else Cursor.read(after)
    except WrongCursor as exc:
        raise errors.wrong_cursor(str(exc)) from None


class Shown:
    """Takes the entries of a transcript from its beginning, and shows a client those it lacks."""

    def __init__(
        self,
        view: ClientView,
        cards: ReplayedCards,
        outward: Callable[[Json], list[Json]],
        divided: From | None,
        *,
        marks: bool,
    ) -> None:
        """`outward` gives what the client is shown for an entry.

        `divided`: divides the entries at the place up to which the client has them; None if it has
        none and wants no cursors. `marks`: the client is told the cursors.
        """
        self._view = view
        self._cards = cards
        self._outward = outward
        self._divided = divided
        self._marks = marks
        #: what tells of the subagents that were announced before the place, by their ids.
        self._children: dict[object, Json] = {}

    def show(self, params: Json) -> None:
        """Take the next entry, and show what of it is behind the place. Raises WrongCursor."""
        before, after = self._divided.divide(params) if self._divided else (None, params)
        if not self._cards.shows(params) or own_meta(params).get(CONTEXT):
            return
        if before:
            self._skip(before)
        if not after:
            return
        self._tell_children()
        told = self._outward(after)
        mark = Mark.of(self._divided.place) if self._divided and self._marks else None
        for each in told:  # one at most
            self._view.replay(for_replay(each), mark)

    def end(self) -> None:
        """End the transcript. Raises WrongCursor if it ends before the place."""
        if self._divided:
            self._divided.end()
        self._tell_children()

    def _skip(self, params: Json) -> None:
        for each in self._outward(params):
            if kind_of(each) == SUBAGENT_UPDATE:
                update = each["update"]
                known = self._children.get(update.get("sessionId"), {"update": {}})
                told = {**as_object(known["update"]), **update}
                self._children[update.get("sessionId")] = {**each, "update": told}

    def _tell_children(self) -> None:
        """Show the subagents as they were at the place: this connection may know none of them."""
        children, self._children = self._children, {}
        for each in children.values():
            self._view.replay(each)
