"""The outputs that grow in the turn that runs: what of them the journal and clients still lack.

- An update that a later one supersedes is dropped only from what the journal has, and from what
  waits for a client that is behind. The later one stands in its own place.
- All that is held here is written and sent before anything else that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct

from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.session import SessionJournal
from acp_bridge.core.protocol import ENDED, Json
from acp_bridge.core.session.transcript.client_view import ClientView
from acp_bridge.core.session.transcript.places import Noted, Places
from acp_bridge.core.updates.growing import grows, supersedes

Row: TypeAlias = tuple[int, bytes]
"""The number of a row of the journal, and its lines."""


class _Output(Struct, eq=False):
    """The output of one tool call, as its last update told it."""

    params: Json
    line: bytes
    #: the rows that the journal has of it: the write of `line` clears them.
    rows: list[Row]


class _Shown(Struct, eq=False):
    """An update of an output on its way to the clients."""

    params: Json
    #: the update as a line, for clients without cursors.
    line: bytes
    noted: Noted | None = None


class Growing:
    """Tracks the outputs of one session's tool calls that may grow, by the tool call's id."""

    def __init__(self, journal: SessionJournal, places: Places, lags_from: int) -> None:
        """`lags_from`: bytes that wait for a client which does not keep up."""
        self._journal, self._places = journal, places
        self._lags_from = lags_from
        self._outputs: dict[str, _Output] = {}
        #: the outputs that the journal lacks as they are now, in the order of their last updates.
        self._held: dict[str, _Output] = {}
        #: rows that the next write is to clear.
        self._superseded: list[Row] = []
        #: updates that no client has been sent, and by view the last ones that wait for its client.
        self._told: list[_Shown] = []
        self._unsent: dict[ClientView, dict[str, _Shown]] = {}
        #: something of an output is not recorded, or not sent.
        self.waits = False
        #: bytes that were recorded since the caller has last set this to 0.
        self.recorded = 0

    def concerns(self, update: Json) -> bool:
        """Return False for an update of a tool call that neither tells an output nor ends one."""
        if "content" in update or "rawOutput" in update:
            return True
        call = update.get("toolCallId")
        return isinstance(call, str) and call in self._outputs

    def take(self, params: Json, line: bytes, head: bytes) -> bool:
        """Hold an update that begins an output, or goes on with one; False if it is none to hold.

        `head`: as for `ClientView`. If the update ends the output, what was held of it is dropped.
        """
        if (known := self._known(params)) is None:
            return self._begin(params, line, head)
        if not supersedes(known.params, params):
            return False
        call = params["update"]["toolCallId"]
        self._held.pop(call, None)
        if params["update"].get("status") in ENDED:
            return False
        known.params, known.line = params, line
        self._hold(call, known, head)
        return True

    def note(self, params: Json, line: bytes, head: bytes) -> bool:
        """Take an update that `take` has not held, now that all is recorded which was held.

        Return True if it is held: it is another output of a known tool call. The caller records any
        other; if that ends an output, its write is to clear the rows before it.
        """
        if (known := self._known(params)) and params["update"].get("status") in ENDED:
            del self._outputs[params["update"]["toolCallId"]]
            if supersedes(known.params, params):
                self._superseded += self._unread(known.rows)
        return known is not None and self._begin(params, line, head)

    def _begin(self, params: Json, line: bytes, head: bytes) -> bool:
        if not (call := grows(params)):
            return False
        self._outputs[call] = output = _Output(params, line, [])
        self._hold(call, output, head)
        return True

    def _known(self, params: Json) -> _Output | None:
        call = params["update"].get("toolCallId")
        return self._outputs.get(call) if isinstance(call, str) else None

    def _hold(self, call: str, output: _Output, head: bytes) -> None:
        self._held[call] = output
        self._told.append(_Shown(output.params, head + output.line[1:-1] + b"}\n"))
        self.waits = True

    def take_superseded(self) -> list[Row]:
        """Return the rows that the caller's next write is to clear."""
        rows, self._superseded = self._superseded, []
        return rows

    def forget(self) -> None:
        """Forget all outputs: what follows is of another turn."""
        self._outputs.clear()

    def record(self, write: Callable[[bytes, list[Row]], None]) -> bool:
        """Record the outputs as they are now; False if the journal has them.

        `write` records a line, and clears rows.
        """
        held, self._held = [*self._held.values()], {}
        for output in held:
            write(output.line, self._unread(output.rows))
            self._places.take()  # it moves no place
            self.recorded += len(output.line)
            output.rows = [row for row in output.rows if self._journal.is_read(row[0])]
            with suppress(JournalError):
                if not self._journal.behind:
                    output.rows.append((self._journal.last_row, output.line))
        return bool(held)

    def _unread(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if not self._journal.is_read(row[0])]

    def send(self, views: Iterable[ClientView], *, placed: bool, whole: bool) -> None:
        """Send clients the updates of outputs; to one that is behind, the last ones if `whole`.

        `placed`: some client takes cursors.
        """
        told, self._told = self._told, []
        for shown in told if placed else ():
            shown.noted = self._places.aside(shown.params)
        for view in views:
            all_told = [*self._unsent.pop(view, {}).values(), *told]
            if view.full(self._lags_from):
                last = _last_of_each(all_told)
                if not whole:
                    self._unsent[view] = last
                    continue
                all_told = [*last.values()]
            if view.takes_cursors:
                view.send_noted([(each.params, each.noted) for each in all_told])
            else:
                view.send(b"".join([each.line for each in all_told]), recorded=True)
        self.waits = bool(self._held or self._unsent)


def _last_of_each(told: list[_Shown]) -> dict[str, _Shown]:
    """Return the last update of each tool call, by its id, in the order of these."""
    last: dict[str, _Shown] = {}
    for each in told:
        call = each.params["update"]["toolCallId"]
        last.pop(call, None)
        last[call] = each
    return last
