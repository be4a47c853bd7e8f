"""Clients that fall behind read from the journal, each at its own pace (invariant V4).

- Nothing is kept in memory for such a client but what is in no journal: answers, say, which stay
  in their order. It is let go only if it takes no byte for long.
- It has every recorded update once. States are shown at the end, as they are then.
- The journal's rows are not joined meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from acp_bridge.core.journal import JournalError, SessionJournal
from acp_bridge.core.journal.history import Extent
from acp_bridge.core.protocol import CONTEXT, Json, own_meta
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.audience import Audience
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.transcript.client_view import ClientView, Lag
from acp_bridge.core.session.transcript.places import Mark
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut


class CatchingUp:
    """Lets clients of one session that have fallen behind read on from its journal."""

    def __init__(
        self,
        core: Core,
        journal: SessionJournal,
        transcript: TranscriptOut,
        audience: Audience,
        show_states: Callable[[ClientView], None],
    ) -> None:
        """`show_states` shows a client the session's present states."""
        self._core = core
        self._journal = journal
        self._transcript = transcript
        self._audience = audience
        self._show_states = show_states
        #: bytes that may wait for a client, and seconds for it to take one.
        self._limit = audience.pacing.lags_from
        self._patience = audience.pacing.patience * 4

    def look(self) -> None:
        """Let each client for which too much waits, and which may lag, read on from the journal."""
        for view in self._transcript.views:
            if view.may_lag and view.client.outgoing.pending >= self._limit:
                self._transcript.flush()
                if not self._journal.behind:
                    event("client.lags", session=self._core.id)
                    extent, lag = self._journal.extent(), self.begin(view)
                    lag.place = self._transcript.places.now
                    self._core.spawn(self._run, view, lag, extent)

    def begin(self, view: ClientView) -> Lag:
        """Show a client nothing that is recorded from now on, before `go_on`; returns its lag."""
        return view.begin_lag(Lag(lambda: self._journal.last_row))

    def go_on(self, view: ClientView, lag: Lag, extent: Extent) -> None:
        """Let a client that has all up to `extent`, and the present states, read on from there.

        If it lacks nothing its lag ends at once. `extent` is closed in the end.
        """
        self._transcript.flush()
        if lag.over.is_set():
            extent.close()
        elif not self._journal.behind and self._has_all(lag):
            extent.close()
            view.end_lag(lag)
        else:
            self._core.spawn(self._run, view, lag, extent)

    def _has_all(self, lag: Lag) -> bool:
        """Run the actions that wait for rows which the client has; True if it lacks nothing."""
        try:
            while lag.go_on():
                pass
            return lag.until <= lag.row
        except JournalError:
            return False

    async def _run(self, view: ClientView, lag: Lag, extent: Extent) -> None:
        """Read on until the client has caught up, has gone, or is shown the session anew."""
        try:
            while not lag.over.is_set():
                if self._core.closing:  # it ends for all, and what is recorded stays
                    view.end_lag(lag)
                elif not await self._takes(view, lag):
                    self._audience.go_on_without(view)
                elif await self._caught_up(view, lag):
                    self._end(view, lag)
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)
            self._audience.go_on_without(view)
        finally:
            extent.close()

    async def _takes(self, view: ClientView, lag: Lag) -> bool:
        """Wait until the client has taken most of what waits; False if it long takes nothing."""
        out, enough = view.client.outgoing, max(1, self._limit // 4)
        while out.pending >= enough and not (lag.over.is_set() or self._core.closing):
            taken = out.taken
            with anyio.move_on_after(self._patience):
                await view.pace(enough)
                continue
            if out.taken == taken:
                return False
        return True

    async def _caught_up(self, view: ClientView, lag: Lag) -> bool:
        """Show the client more from the journal; True if it lacks nothing any more."""
        self._transcript.flush()
        if self._journal.behind:  # what is not in the file can't be read from there
            self._audience.go_on_without(view)
        elif lag.row < (until := lag.until):
            await self._read(view, lag, until)
        else:
            return not lag.go_on() and lag.until == lag.row
        return False

    async def _read(self, view: ClientView, lag: Lag, until: int) -> None:
        async for page in self._journal.stretch(lag.row, until):
            for params in page:
                if lag.over.is_set():
                    return
                self._show(view, lag, params)
            if view.client.outgoing.pending >= self._limit and not await self._takes(view, lag):
                self._audience.go_on_without(view)
        lag.row = until

    def _show(self, view: ClientView, lag: Lag, params: Json) -> None:
        if lag.place:
            lag.place.add(params)
        if not (lag.hides or own_meta(params).get(CONTEXT)):
            for each in self._transcript.as_recorded(view, params):
                view.catch_up(each, Mark.of(lag.place) if lag.place else None)

    def _end(self, view: ClientView, lag: Lag) -> None:
        """Show the client the present states and what happens live; send it the open questions."""
        self._show_states(view)
        view.end_lag(lag)
        self._audience.go_on(view.client)
