"""Tool cards that nothing has ended: found in a recorded conversation, and closed. SANS-IO."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from acp_bridge.core import protocol
from acp_bridge.core.protocol import (
    ASSUMED,
    ENDED,
    SAID,
    SAID_UPDATE,
    TERMINAL_UPDATE,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    Json,
    names_terminal,
    with_own_meta,
    without_terminals,
)
from acp_bridge.core.updates.children import placed

Note: TypeAlias = Literal["asked", "failed"]
"""What is noted of an open card, since its updates don't tell: `asked` if clients know it from a
question alone, `failed` if its work was denied or broken off."""


def opening_update(call: Json) -> Json:
    """Return the `tool_call` that opens the card of a call, with what is known of the call."""
    known = {name: value for name, value in call.items() if value is not None}
    title = known.get("name") if isinstance(known.get("name"), str) else call["toolCallId"]
    opened: Json = {"title": title, "status": "pending", **known, "sessionUpdate": TOOL_CALL}
    if call.get("sessionUpdate") == TOOL_CALL and "status" not in call:
        del opened["status"]
    return opened


def closing_update(client_id: str) -> Json:
    """Return the update that ends a card as failed, because its turn is over."""
    return {"sessionUpdate": TOOL_CALL_UPDATE, "toolCallId": client_id, "status": "failed"}


def assumed_end(client_id: str, note: Note | None) -> Json:
    """Return the params that end a card which the agent left open, `failed` if it is noted so."""
    status = "failed" if note == "failed" else "completed"
    ended = placed({**closing_update(client_id), "status": status})
    return with_own_meta(ended, {ASSUMED: True})


def for_replay(params: Json) -> Json:
    """Return a recorded update as a replay shows it: it names no live terminal (invariant R7)."""
    update = params.get("update")
    if not isinstance(update, dict) or not names_terminal(update):
        return params
    return {**params, "update": without_terminals(update)}


class OpenCards:
    """Finds the tool cards that a recorded conversation leaves open."""

    def __init__(self) -> None:
        self._open: dict[str, bool] = {}
        #: an update was about a card that none of those noted had opened: it may be over already.
        self.older = False

    def note(self, update: object) -> None:
        """Note the card that the next recorded update opens, goes on with or ends."""
        match update:
            case {"sessionUpdate": protocol.TOOL_CALL | protocol.TOOL_CALL_UPDATE as kind, **rest}:
                if isinstance(card := rest.get("toolCallId"), str):
                    self.older |= kind == TOOL_CALL_UPDATE and card not in self._open
                    ended = rest.get("status") in ENDED
                    self._open[card] = self._open.get(card, True) and not ended

    @property
    def open(self) -> list[str]:
        """The ids of the open cards, in the order in which they were opened."""
        return [card for card, is_open in self._open.items() if is_open]

    def closing(self) -> list[Json]:
        """Return the updates that end the open cards, in the order in which they were opened."""
        return [closing_update(card) for card in self.open]


class Terminals:
    """Tracks which terminals of an agent of ACP version 2 run (invariant C16)."""

    def __init__(self) -> None:
        self.running: set[str] = set()

    def note(self, update: Json) -> None:
        """Note the terminal that an update tells of, if it is of one."""
        if update.get("sessionUpdate") != SAID_UPDATE:
            return
        match update.get(SAID):
            case {"sessionUpdate": kind, "terminalId": str(terminal_id), **more}:
                if kind == TERMINAL_UPDATE and more.get("exitStatus") is None:
                    self.running.add(terminal_id)
                elif kind == TERMINAL_UPDATE:
                    self.running.discard(terminal_id)

    def end(self) -> list[Json]:
        """Return the params that end the running terminals: their agent is gone. Forget them."""
        running, self.running = sorted(self.running), set()
        return [self.ended(each) for each in running]

    @staticmethod
    def ended(terminal_id: str) -> Json:
        """Return the params of the update that ends a terminal."""
        end = {"sessionUpdate": TERMINAL_UPDATE, "terminalId": terminal_id, "exitStatus": {}}
        return {"update": {"sessionUpdate": SAID_UPDATE, SAID: end}}


class ReplayedCards:
    """Decides how a replay shows the cards that the agent has not ended (invariant C16)."""

    def __init__(self, notes: Mapping[str, Note], worked_on: Collection[str]) -> None:
        """`notes`: what is noted of cards; `worked_on`: the cards and terminals still at work."""
        self._notes = dict(notes)
        self._worked_on = frozenset(worked_on)
        self._cards, self._terminals = OpenCards(), Terminals()

    def shows(self, params: Json) -> bool:
        """Note the next recorded update; returns False if it is left out of the replay: only a
        question has named its card, and no work followed."""
        update = params.get("update")
        self._cards.note(update)
        if isinstance(update, dict):
            self._terminals.note(update)
        card = update.get("toolCallId") if isinstance(update, dict) else None
        if not isinstance(card, str) or card in self._worked_on:
            return True
        return self._notes.get(card) != "asked"

    def ends(self) -> list[tuple[str, Json]]:
        """Return the id of each card and terminal that is to end, with the params that end it."""
        left = [card for card in self._cards.open if card not in self._worked_on]
        noted = [(card, self._notes.get(card)) for card in left]
        ended = sorted(self._terminals.running - self._worked_on)
        return [
            *((card, assumed_end(card, note)) for card, note in noted if note != "asked"),
            *((terminal, Terminals.ended(terminal)) for terminal in ended),
        ]
