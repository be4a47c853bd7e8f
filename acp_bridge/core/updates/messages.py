"""Knows the messages of an agent by their ids, and their ids at clients. SANS-IO."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from acp_bridge.core.protocol import Json


class Ended(Exception):
    """A message of a turn that was cancelled goes on."""


class _Message(Struct):
    client_id: str
    turn: int | str
    dead: bool = False


class Messages:
    """The messages of one process (invariant P13)."""

    def __init__(self, unique: Callable[[str], str]) -> None:
        """`unique` makes an id of the agent one that no other message or card has at clients."""
        self._unique = unique
        self._messages: dict[str, _Message] = {}
        self._reuses = False

    def forget(self) -> None:
        """Forget all, as another process has ids of its own."""
        self._messages.clear()
        self._reuses = False

    def client_id(self, agent_id: str) -> str | None:
        """Return the id under which clients know a message; None if nothing has begun it."""
        message = self._messages.get(agent_id)
        return message.client_id if message else None

    def is_dead(self, agent_id: str) -> bool:
        """Return True for a message of a turn that was cancelled."""
        message = self._messages.get(agent_id)
        return message is not None and message.dead

    def named(self, update: Json, turn: int | str) -> Json:
        """Return a chunk with the id that clients know; `turn`: the turn or child that says it now.

        Raises `Ended` for a message of a cancelled turn, unless ids are used again in every turn.
        """
        agent_id = update["messageId"]
        message = self._messages.get(agent_id)
        if message and (message.turn != turn or message.dead):
            if message.dead and not self._reuses:
                raise Ended
            # An id used again by a later turn names another message.
            self._reuses = True
            message = None
        if message is None:
            message = _Message(self._unique(agent_id), turn)
            self._messages[agent_id] = message
        if message.client_id == agent_id:
            return update
        return {**update, "messageId": message.client_id}

    def end(self, turn: int | str) -> None:
        """Note that a turn, or a child, was cancelled."""
        for message in self._messages.values():
            message.dead |= message.turn == turn
