"""Subagents of the bridge's sessions, their children, as version 2 has them. SANS-IO.

Version 1 tells a child's state on the session above it, version 2 in the child's own session.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from acp_bridge.core import protocol
from acp_bridge.core.protocol import Json, as_object, meta_of, only_stands, without
from acp_bridge.versions import v2

_AT_WORK: Final = (v2.RUNNING, v2.REQUIRES_ACTION)


class Children:
    """The children that one client was told of."""

    def __init__(self) -> None:
        """No child is known yet."""
        #: by each child's id, the session above it.
        self._above: dict[object, object] = {}
        #: the last state of each child, as the bridge told it.
        self._stands: dict[object, Json] = {}

    def forget(self, session_id: object) -> list[object]:
        """Forget all subagents below a session; returns their ids."""
        forgotten = self._below(session_id)
        for each in forgotten:
            del self._above[each]
            self._stands.pop(each, None)
        return forgotten

    def told(self, params: Json, anew: Container[object]) -> list[Json]:
        """Return the parameters of the updates for a `subagent_update`: one on the session above,
        and one in the child's own session that tells its state, if they are news.

        `anew`: sessions whose whole state the client is about to be told. It is told the states of
        their children with that (`told_anew`), not here.
        """
        update = params["update"]
        child_id, state = update.get("sessionId"), as_object(update.get("state"))
        told: list[Json] = []
        if child_id not in self._above or not only_stands(update):
            told.append({**params, "update": without(update, "state")})
        self._above.setdefault(child_id, params.get("sessionId"))
        if not isinstance(state.get("state"), str) or state == self._stands.get(child_id):
            return told
        ends = self._stood(child_id) != v2.IDLE
        self._stands[child_id] = state
        if self.session_of(child_id) not in anew:
            told.append({"sessionId": child_id, "update": _state(state, ends=ends)})
        return told

    def told_anew(self, session_id: object, *, whole: bool) -> Iterator[tuple[object, Json]]:
        """Yield the updates for the children of a session, each with its child's id: the child's
        state, and before that the end of its replay if the session was replayed `whole`.
        """
        for child_id in self._below(session_id):
            if whole:
                yield child_id, {"sessionUpdate": v2.REPLAY_COMPLETE}
            yield child_id, {"sessionUpdate": v2.STATE_UPDATE, "state": self._stood(child_id)}

    def _stood(self, child_id: object) -> object:
        """Return the last state of a child; `idle` if none was told."""
        return self._stands.get(child_id, {}).get("state", v2.IDLE)

    def work(self, session_id: object) -> bool:
        """Return True while a child of a session works."""
        return any(self._stood(each) in _AT_WORK for each in self._below(session_id))

    def session_of(self, child_id: object) -> object:
        """Return the topmost session above a child; the session itself if it is no child."""
        while child_id in self._above:
            child_id = self._above[child_id]
        return child_id

    def _below(self, session_id: object) -> list[object]:
        """Return all subagents below a session, in the order of their announcements."""
        return [each for each in self._above if self.session_of(each) == session_id]


def _state(said: Json, *, ends: bool) -> Json:
    """Return the `state_update` for a child's state; with its stop reason if its work `ends`."""
    told: Json = {"sessionUpdate": v2.STATE_UPDATE, "state": said["state"], **meta_of(said)}
    reason = said.get("stopReason") if said["state"] == v2.IDLE and ends else None
    if isinstance(reason, str):
        told["stopReason"] = reason
        if reason == v2.ERROR and isinstance(error := said.get("error"), dict):
            told["error"] = error
    return told


def is_told_anew(method: str) -> bool:
    """Return True for a request whose answer tells a client the state of a session anew."""
    return method in (protocol.SESSION_RESUME, protocol.ATTACH)
