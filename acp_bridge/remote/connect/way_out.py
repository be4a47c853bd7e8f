"""The actions that one step of the machine makes: messages to send, and more. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from acp_bridge.core.protocol import SESSION_UPDATE, Json
from acp_bridge.core.updates import notices
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Message, RequestId, RpcError


@dataclass(frozen=True, slots=True)
class ToEditor:
    """A message for the editor."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToServer:
    """A message for the server, on the present connection."""

    message: Message


@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection is to be closed, as it is of no use; another one is to be tried."""

    reason: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A session can't be opened again here: by the server's `answer`, another bridge has it.

    It waits until `Machine.give_away` or `Machine.goes_nowhere` is called.
    """

    session_id: str
    answer: Message


Action: TypeAlias = ToEditor | ToServer | HangUp | Elsewhere


class WayOut:
    """Collects the actions of one step."""

    def __init__(self) -> None:
        """No connection was made yet."""
        #: the number of the last connection, and whether it is up.
        self.line = 0
        self.up = False
        self._actions: list[Action] = []

    def taken(self) -> list[Action]:
        """Return the collected actions, and begin another step."""
        actions, self._actions = self._actions, []
        return actions

    def to_server(self, message: Message) -> None:
        """Send the server a message."""
        self._actions.append(ToServer(message))

    def hang_up(self, reason: str) -> None:
        """Close the connection."""
        self._actions.append(HangUp(reason))

    def elsewhere(self, session_id: str, answer: Message) -> None:
        """Report that another bridge has a session, as the server's `answer` says."""
        self._actions.append(Elsewhere(session_id, answer))

    def to_editor(self, message: Message) -> None:
        """Send the editor a message."""
        self._actions.append(ToEditor(message))

    def fail(self, id: RequestId, error: RpcError) -> None:
        """Answer a request of the editor's with an error."""
        self.to_editor(jsonrpc.error(id, error))

    def show(self, session_id: str, params: Json) -> None:
        """Send the editor a `session/update` with `params`."""
        self.to_editor(jsonrpc.notification(SESSION_UPDATE, {"sessionId": session_id, **params}))

    def say(self, session_id: str, text: str) -> None:
        """Show the person at the editor a notice in a session."""
        self.show(session_id, notices.notice(text))
