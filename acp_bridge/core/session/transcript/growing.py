"""The output that grows in the turn that runs: what of it the journal has, and what it lacks."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from acp_bridge.core.protocol import ENDED, Json
from acp_bridge.core.session.transcript.places import Noted
from acp_bridge.core.updates.growing import grows, supersedes

Row: TypeAlias = tuple[int, bytes]
"""The number of a row of the journal, and its lines."""


class Output(Struct, eq=False):
    """The output of one tool call, as its last update told it."""

    params: Json
    line: bytes
    #: the rows that the journal has of it: the write of `line` clears them.
    rows: list[Row] = []


class Shown(Struct, eq=False):
    """An update of an output on its way to the clients."""

    params: Json
    #: the update as a line, for clients without cursors.
    line: bytes
    noted: Noted | None = None


def last_of_each(told: list[Shown]) -> dict[str, Shown]:
    """Return the last update of each tool call, by its id, in the order of these."""
    last: dict[str, Shown] = {}
    for each in told:
        call = each.params["update"]["toolCallId"]
        last.pop(call, None)
        last[call] = each
    return last


class Growing:
    """Tracks the outputs of tool calls that may grow, by the tool call's id."""

    def __init__(self) -> None:
        self._outputs: dict[str, Output] = {}
        #: the outputs that the journal lacks as they are now, in the order of their last updates.
        self.held: dict[str, Output] = {}
        #: rows that the next write is to clear.
        self._superseded: list[Row] = []

    def take(self, params: Json, line: bytes) -> bool:
        """Note one more update of a known output, and hold it; False if it is none to be held.

        An update that ends the tool call is not held: the caller records it, and that write clears
        the rows before it.
        """
        call = params["update"].get("toolCallId")
        known = self._outputs.get(call) if isinstance(call, str) else None
        if known is None:
            return False
        goes_on, ends = supersedes(known.params, params), params["update"].get("status") in ENDED
        if goes_on:
            self.held.pop(call, None)
        if ends:
            del self._outputs[call]
            self._superseded += known.rows if goes_on else []
        elif goes_on:
            known.params, known.line = params, line
            self.held[call] = known
        return goes_on and not ends

    def begin(self, params: Json, line: bytes) -> bool:
        """Hold an update that begins an output which may grow; False if it is no such update."""
        if not (call := grows(params)):
            return False
        self._outputs[call] = self.held[call] = Output(params, line, [])
        return True

    def take_held(self) -> list[Output]:
        """Return the outputs that the journal lacks; the caller writes them now."""
        held, self.held = [*self.held.values()], {}
        return held

    def take_superseded(self) -> list[Row]:
        """Return the rows that the next write is to clear."""
        rows, self._superseded = self._superseded, []
        return rows

    def forget(self) -> None:
        """Forget all outputs: what follows is of another turn."""
        self._outputs.clear()
