"""The requests and notifications of a bridge to its client."""

from __future__ import annotations

from typing import Any, Final, Protocol

from msgspec import Struct

from acp_bridge.core.protocol import ErrorCode, Json, as_object
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, RpcError
from acp_bridge.core.wire.peer import Call

_CANCELLED: Final = RpcError(ErrorCode.REQUEST_CANCELLED, "request cancelled")


class Asker(Protocol):
    """The connection over which a request came."""

    def is_open(self, request: BridgeRequest) -> bool:
        """Return True until the request is answered."""

    def respond(self, request: BridgeRequest, answer: Answer) -> None:
        """Answer the request, if it is open."""


class BridgeRequest(Struct, frozen=True, eq=False):
    """A request of the other end, such as `session/request_permission`."""

    call: Call
    _asker: Asker

    @property
    def method(self) -> str:
        """The method that is asked for."""
        return self.call.method

    @property
    def params(self) -> Json:
        """The parameters; an empty object if they are no object."""
        return as_object(self.call.params)

    @property
    def open(self) -> bool:
        """True until the request is answered."""
        return self._asker.is_open(self)

    def answer(self, result: Any) -> None:
        """Answer the request with a result; nothing happens if it is not open."""
        self.respond(Ok(result))

    def fail(self, error: RpcError) -> None:
        """Answer the request with an error; nothing happens if it is not open."""
        self.respond(Err(error))

    def give_up(self) -> None:
        """Answer that the request was cancelled: one that was withdrawn still needs an answer."""
        self.fail(_CANCELLED)

    def respond(self, answer: Answer) -> None:
        """Answer the request with a result or an error; nothing happens if it is not open."""
        self._asker.respond(self, answer)


class Listener(Protocol):
    """Gets the messages of the other end. It is called synchronously and must not take long."""

    def on_notification(self, method: str, params: Any) -> None:
        """Handle a notification, such as `session/update`; `params`: any JSON value, or UNSET."""

    def on_request(self, request: BridgeRequest) -> None:
        """Answer the request now or later; raising RpcError is an answer."""

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Note that nobody waits for the answer to an open request; it must still be answered."""

    async def room(self) -> None:
        """Wait until more of the other end's messages may be read."""


class NullListener:
    """Drops the other end's notifications, and refuses its requests."""

    def on_notification(self, method: str, params: Any) -> None:
        """Drop the notification."""

    def on_request(self, request: BridgeRequest) -> None:
        """Refuse the request by raising RpcError."""
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, "nothing is done here")

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Do nothing: no request is open."""

    async def room(self) -> None:
        """Return at once."""
