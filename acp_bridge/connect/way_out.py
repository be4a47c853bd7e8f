"""What a step of the machine sends, and over which connection. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from acp_bridge.protocol import SESSION_UPDATE, Json
from acp_bridge.updates import notices
from acp_bridge.wire import jsonrpc
from acp_bridge.wire.jsonrpc import Message, RequestId, RpcError


@dataclass(frozen=True, slots=True)
class ToEditor:
    """A message for the editor."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToServer:
    """A message for the other end, on the connection that is there."""

    message: Message


@dataclass(frozen=True, slots=True)
class HangUp:
    """This connection is of no use: the next one may be."""

    reason: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A session is not opened again here: a bridge of another machine has it, says the answer.

    It waits until it is given away, or is to do without (`Machine.give_away`, `goes_nowhere`).
    """

    session_id: str
    answer: Message


Action: TypeAlias = ToEditor | ToServer | HangUp | Elsewhere


class WayOut:
    """Collects the actions of one step."""

    def __init__(self) -> None:
        """There is no connection yet."""
        #: the number of the connection, and whether it is there.
        self.line = 0
        self.up = False
        self._actions: list[Action] = []

    def taken(self) -> list[Action]:
        """Return the actions of the step, which has ended."""
        actions, self._actions = self._actions, []
        return actions

    def to_server(self, message: Message) -> None:
        """Send the other end a message."""
        self._actions.append(ToServer(message))

    def hang_up(self, reason: str) -> None:
        """End the connection."""
        self._actions.append(HangUp(reason))

    def elsewhere(self, session_id: str, answer: Message) -> None:
        """Tell that a session is on another machine."""
        self._actions.append(Elsewhere(session_id, answer))

    def to_editor(self, message: Message) -> None:
        """Send the editor a message."""
        self._actions.append(ToEditor(message))

    def fail(self, id: RequestId, error: RpcError) -> None:
        """Answer a request of the editor's with an error."""
        self.to_editor(jsonrpc.error(id, error))

    def show(self, session_id: str, params: Json) -> None:
        """Show the editor an update of a session."""
        self.to_editor(jsonrpc.notification(SESSION_UPDATE, {"sessionId": session_id, **params}))

    def say(self, session_id: str, text: str) -> None:
        """Tell the person at the editor something in a session."""
        self.show(session_id, notices.notice(text))
