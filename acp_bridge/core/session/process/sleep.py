"""Ends the process of a session that has been at rest for long; the next request starts another.

- Only the process ends. The session stays live for its clients, who are told nothing (R16).
- It never ends while something is open: a prompt or a hook (the machine knows of them), a tool
  card, a subagent's work, a question or a terminal at a client, a request of either side, output
  not yet read, work that the agent lists as running in the background.
- It never ends if the session has MCP servers, or if its tree has a process that was not there when
  it was given the session: that may be work of the user's.
- It never ends unless the agent remembers the session and was seen to take one up again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import anyio

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.descendants import begun_before, descendants, first_descendants
from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import JournalError
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Passing, Snapshot
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.updates.updates import Updates


class Reloads(Protocol):
    """Says whether the agent can be trusted to come back (`session_context.SeenReloads`)."""

    @property
    def is_ours(self) -> bool:
        """True for the built-in agent: every child process of it is a tool at work."""

    async def seen(self, link: Link) -> bool:
        """Return True if a reload of the agent has worked."""

    async def note(self, link: Link) -> None:
        """Note that a reload has worked."""

    async def forget(self, link: Link) -> None:
        """Note that a reload was refused."""


class Sleep:
    """Watches how long one session is at rest, and has its process ended after long."""

    def __init__(
        self,
        core: Core,
        seconds: float,
        reloads: Reloads,
        updates: Updates,
        memory: Memory,
        unread: Callable[[], bool],
        asks: Callable[[], bool],
        notify: Callable[[Link, str, Json], None],
    ) -> None:
        """`seconds` of rest end the process; 0: nothing does.

        `unread`: the process is not read just now; `asks`: a question is asked beside the session;
        `notify` sends a process a client's notification.
        """
        self._core = core
        self._unread = unread
        self._asks = asks
        self._notify = notify
        self.seconds = seconds
        self._reloads = reloads
        self._updates = updates
        self._memory = memory
        self._since = 0.0
        self._resting: anyio.CancelScope | None = None
        #: the process that was looked at when it had the session, and what its tree had then.
        self._seen: tuple[Link, frozenset[int]] | None = None
        #: the process has ended because of the rest, and the next does not have the session yet.
        self._wakes = False
        #: notifications of clients for the process that is to come.
        self._kept: list[tuple[str, Json]] = []
        #: when the first prompt since the last look began was sent, by `guard.now`.
        self._prompted: int | None = None

    # --- the processes that are given the session ----------------------------------------------

    def begin(self, link: Link) -> None:
        """Look, in a task, at the tree of the process that has just opened the session."""
        if self.seconds:
            self._seen = link, frozenset()
            self._core.spawn(self.look, link)

    async def look(self, link: Link) -> None:
        """Record the processes in the agent's tree that are no work: those begun before prompts."""
        if self._core.workspace.mcp_servers:
            return
        if self._reloads.is_ours:  # the next prompt need not wait for a look
            self._seen = link, frozenset()
            return
        self._prompted = None
        with suppress(NoThread):  # then it stays awake
            found = await in_thread(first_descendants, link.pid)
            if self._prompted is not None:
                found = await in_thread(begun_before, self._prompted, found)
            self._seen = link, found

    def note_turn(self) -> None:
        """Note that the agent is sent a prompt: processes that it starts now may be work."""
        if self._prompted is None:
            self._prompted = guard.now()

    def keeps(self, method: str, params: Json) -> bool:
        """Keep a client's notification for the process that comes; False if the session is awake.

        While the next process starts, the session still counts as asleep.
        """
        if self._wakes:
            self._kept.append((method, params))
        return self._wakes

    def send_kept(self, link: Link) -> None:
        """Send the kept notifications to the new process."""
        kept, self._kept = self._kept, []
        for method, params in kept:
            self._notify(link, method, params)

    # --- the rest ------------------------------------------------------------------------------

    def disturb(self) -> None:
        """Note that the agent or a client has said something."""
        if self.seconds:
            self._since = anyio.current_time()

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Begin or end the wait for a long rest, after a change of the session's state."""
        self._follow_waking(after.turns)
        self.disturb()
        if after.turns.at_rest and self._resting is None:
            self._resting = anyio.CancelScope()
            self._core.spawn(self._watch, self._resting)
        elif self._resting and not after.turns.at_rest:
            self._resting.cancel()
            self._resting = None

    def _follow_waking(self, turns: Snapshot) -> None:
        if turns.asleep:
            self._wakes = True
        elif turns.permits.requests in (Passing.REFUSED, Passing.GONE):
            self._wakes = False
            self._kept.clear()
        elif link := self._core.link:
            self._wakes = False
            self.send_kept(link)

    async def _watch(self, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                since = self._last()
                await anyio.sleep(max(0, since + self.seconds - anyio.current_time()))
                if self._last() > since:
                    continue
                link = await self._may_end()
                if link is None or self._last() > since:
                    self.disturb()  # and look again after as long
                    continue
                event("session.asleep", session=self._core.id, agent=link.name)
                self._core.feed(ev.Sleep(link.epoch))

    def _last(self) -> float:
        """Return when the agent or a client did something last."""
        link = self._core.link
        return (
            max(self._since, link.at_clients.touched, link.requests.touched)
            if link
            else self._since
        )

    async def _may_end(self) -> Link | None:
        """Return the session's process if it may be ended now, else None."""
        link = self._core.link
        if link is None or self._busy(link) or not self._remembers():
            return None
        if (activity := link.activity) and (activity.runs or activity.background):
            event("session.wakeful", session=self._core.id, what="work in the background")
            return None
        if self._seen is None or self._seen[0] is not link or not await self._reloads.seen(link):
            return None
        now = None
        with suppress(NoThread):
            now = await in_thread(descendants, link.pid)
        if now is None or not now <= self._seen[1]:
            event("session.wakeful", session=self._core.id, what="processes of the agent's")
            return None
        return None if self._busy(link) or self._core.link is not link else link

    def _busy(self, link: Link) -> bool:
        """Return True while anything is open that the end of the process would break."""
        at_clients = link.at_clients.waits or link.at_clients.terminals
        open_here = bool(self._updates.open_cards) or self._unread() or self._asks()
        behind = self._core.state.around.journal_behind  # then a reload would fail
        busy = at_clients or open_here or behind or link.busy or self._updates.children.at_work
        return bool(link.gone or busy or self._core.workspace.mcp_servers)

    def _remembers(self) -> bool:
        try:
            known = self._memory.known
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)
            return False
        return known.remembered and known.agent_session_id is not None
