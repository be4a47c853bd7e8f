"""Takes what a session's agent says of, and in, the sessions of its subagents (`updates.children`).

A child is such a session.

- A child is announced before anything else of it is recorded or shown.
- What comes between a cancelled turn and the next is a leak, but for a child that was at work and
  can't be cancelled: the user was told that it goes on (invariant C6).
- What a process replays of children is known, or was of no session here: nothing of it is shown.
"""

from __future__ import annotations

from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine.states import Phase
from acp_bridge.core.protocol import (
    OF_SUBAGENTS,
    QUOTA_UPDATE,
    SUBAGENT_UPDATE,
    TRANSCRIPT,
    Json,
    as_object,
    without,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates.children import WORKING, Child, names_session, scoped
from acp_bridge.core.updates.updates import Leak, Updates
from acp_bridge.core.wire.peer import Call


class Subagents:
    """Makes the updates and requests of one session's children fit to be recorded and asked."""

    def __init__(self, updates: Updates, transcript: TranscriptOut) -> None:
        """`updates` knows the children."""
        self._updates = updates
        self._children = updates.children
        self._transcript = transcript

    def take(self, link: Link, params: Json, phase: Phase, *, excused: bool) -> list[Json]:
        """Return the params to be recorded and shown for an update of a child, or about one.

        `excused`: the agent speaks after a cancelled turn because the client asked it something.
        Raises `Leak`.
        """
        update: Json = params["update"]
        child = self._children.of(link.children, params)
        if phase is Phase.LEAK and (excused or (child and child.at_work)):
            phase = Phase.LIVE
        key = child.key if child else ""
        if update["sessionUpdate"] == SUBAGENT_UPDATE:
            return self._told(link, update, key, phase)
        if phase is Phase.REPLAY or not self._children or update["sessionUpdate"] == QUOTA_UPDATE:
            return []  # the limits are the account's: the session tells them
        if update["sessionUpdate"] in OF_SUBAGENTS or names_session(params):
            update = self.inward(link, update)
        if child and update["sessionUpdate"] in TRANSCRIPT:
            ended = child.stopped or phase is Phase.LEAK
            taken = self._updates.of_child(scoped(update, key), ended=ended)
            if taken is None:
                return []
            update = taken
        elif phase is Phase.LEAK:
            return []
        told = without(params, "sessionId")
        told |= {"sessionId": key, "update": update} if child else {"update": update}
        return [*self._unannounced(child), told]

    def _told(self, link: Link, update: Json, parent: str, phase: Phase) -> list[Json]:
        """Take a `subagent_update` in the child with the key `parent`, or in the session ("").

        Returns the params to be recorded and shown. Raises Leak.
        """
        agent_id = update.get("sessionId")
        if not isinstance(agent_id, str) or agent_id in ("", link.agent_session_id):
            event("agent.noise", agent=link.name, what="a subagent without an id of its own")
            return []
        known = self._children.of_agent(agent_id)
        works = as_object(update.get("state")).get("state") in WORKING
        if phase is Phase.LEAK and works and not (known and (known.at_work or known.stopped)):
            raise Leak(SUBAGENT_UPDATE)
        child = known or self._children.new(agent_id, parent)
        link.children.add(agent_id)
        if phase is Phase.REPLAY:  # the state is of then
            replayed = without(update, "state")
            self._children.note(child, replayed)
            return []
        if child.stopped and works and phase is Phase.LEAK:
            return []  # it has not heeded the cancel yet
        told = self._children.note(child, update)
        return self._unannounced(child) or [told]

    def _unannounced(self, child: Child | None) -> list[Json]:
        """Return the announcements of a child, and of those above it, that clients don't know yet.

        They count as announced from now on.
        """
        if child is None or child.announced:
            return []
        child.announced = True
        above = self._unannounced(self._children.get(child.parent))
        return [*above, child.announcement()]

    def request(self, link: Link, call: Call) -> tuple[Call, Child | None]:
        """Return an agent's request with ids unique in the session, and the child that makes it.

        The child is None if the session itself does. One that clients don't know is announced.
        """
        child = self._children.of(link.children, call.params)
        if link.children and isinstance(call.params, dict):
            call = Call(call.id, call.method, self._asked(link, call.params))
        if child is None:
            return call, None
        for announcement in self._unannounced(child):
            self._transcript.show(announcement)
        params = scoped(call.params, child.key)
        if isinstance(tool_call := params.get("toolCall"), dict):
            params = {**params, "toolCall": scoped(tool_call, child.key)}
        return Call(call.id, call.method, params), child

    def inward(self, link: Link, update: Json) -> Json:
        """Return an agent's update, or tool call, that names sessions by our keys of them."""
        return self._children.inward(update, link.agent_session_id)

    def _asked(self, link: Link, params: Json) -> Json:
        """Return a request's parameters, in whose tool call sessions are named by our keys."""
        call = params.get("toolCall")
        return {**params, "toolCall": self.inward(link, call)} if isinstance(call, dict) else params
