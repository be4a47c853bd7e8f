"""Clients that don't read: how long the agent waits, and when the session goes on without them.

- The client on stdin makes the agent wait, for as long as it likes if it has the session alone
  (invariant P15). With others present the session goes on without it when it has taken no byte
  for a while.
- One on a socket makes nobody wait: it is let go when too much waits for it, unless it takes
  some of it and has soon caught up (invariant V4).
- What waits is bounded also where nobody waits, in a drain: several times the limit is too much
  at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.transcript.client_view import ClientView
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut

#: so many times the limit is too much for a client, whatever it takes meanwhile.
_FLOOD: Final = 4


class Pacing:
    """Watches how the clients of one session read."""

    def __init__(
        self,
        core: Core,
        transcript: TranscriptOut,
        limit: int,
        go_on_without: Callable[[ClientView], None],
        patience: float = waits.UNREAD,
    ) -> None:
        """`limit`: bytes that may wait for a client; `patience`: seconds without a byte taken."""
        self._core = core
        self._transcript = transcript
        self.limit = limit
        #: bytes from which on a client reads on from the journal, if it may.
        self.lags_from = transcript.lags_from
        self._go_on_without = go_on_without
        self.patience = patience
        self._watched: set[ClientView] = set()
        #: the agent is not read, because a client doesn't read.
        self.waits = False
        self._pause = anyio.CancelScope()
        #: lets clients that fall behind read on from the journal.
        self.look: Callable[[], None] = lambda: None

    @property
    def unread(self) -> bool:
        """True if the only client, the one on stdin, has `limit` bytes that it doesn't read."""
        views = self._transcript.views
        return len(views) == 1 and not views[0].client.on_socket and views[0].full(self.limit)

    def slow(self) -> ClientView | None:
        """Return the view for which the agent has to wait, or None.

        Each client for which too much waits is watched from now on; if it is far too much, the
        session goes on without it.
        """
        slow: ClientView | None = None
        for view in self._transcript.views:
            if not view.full(self.limit):
                continue
            view.let_pass()
            if view not in self._watched:  # one huge update alone is nobody's fault
                self._watched.add(view)
                self._core.spawn(self._watch, view)
            elif self._floods(view):
                self._go_on_without(view)
                continue
            if not view.client.on_socket:
                slow = view
        return slow

    def _floods(self, view: ClientView) -> bool:
        alone = not view.client.on_socket and not self._transcript.has_others(view.client)
        return not alone and view.full(_FLOOD * self.limit)

    async def wait(self, slow: ClientView) -> None:
        """Wait until there may be room in a view, or `hurry` is called; the caller looks again."""
        event("client.slow", session=self._core.id)
        self.waits = True
        try:
            with anyio.CancelScope() as self._pause:
                await slow.room(self.limit)
        finally:
            self.waits = False

    def hurry(self) -> None:
        """Wake all that wait in `wait`, so that they look again."""
        if self.waits:
            self._pause.cancel()

    async def _watch(self, view: ClientView) -> None:
        """Watch a client that reads too little, until it has caught up, or the session goes on
        without it."""
        try:
            if await self._is_given_up(view) and not view.over:
                self._go_on_without(view)
        finally:
            self._watched.discard(view)
            self.hurry()

    async def _is_given_up(self, view: ClientView) -> bool:
        out, step = view.client.outgoing, self.patience / waits.UNREAD_STEPS
        taken, steps = out.taken, 0
        while not view.over and view.full(self.limit):
            with anyio.move_on_after(step):
                await view.room(self.limit)
                continue
            steps += 1
            if view.client.on_socket:
                if out.taken == taken:
                    return True
                taken = out.taken
            elif out.taken != taken or not self._transcript.has_others(view.client):
                taken, steps = out.taken, 0
            if steps >= waits.UNREAD_STEPS:
                return True
        return False
