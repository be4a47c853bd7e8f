"""A request that was sent: its answer can be awaited, or given to a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import anyio

from acp_bridge.core.wire.jsonrpc import Answer, Err, RpcError


class ConnectionLost(Exception):
    """The bridge is gone, or has closed the connection."""

    def __init__(self) -> None:
        super().__init__("the bridge has ended the connection")


class NoAnswer(Exception):
    """A request was not answered within its time limit."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"the bridge did not answer {method} within {seconds:g} s")


class Sender(Protocol):
    """The connection over which a request was sent."""

    #: the error that open requests got when the connection ended.
    lost: RpcError | None

    def cancel(self, sent: Sent) -> None:
        """Send `$/cancel_request` for a request that is not answered yet."""


class Sent:
    """A request that was sent, with its answer once that has come."""

    def __init__(self, sender: Sender, method: str) -> None:
        self.id = 0
        self.method = method
        self.answered = anyio.Event()
        self._sender = sender
        self.answer: Answer | None = None
        self._told: Callable[[], None] | None = None

    def take(self, answer: Answer) -> None:
        """Store the answer, and call the function that `when_answered` was given."""
        self.answer = answer
        self.answered.set()
        if self._told is not None:
            self._told()

    @property
    def lost(self) -> bool:
        """True if the connection ended before an answer came."""
        return isinstance(self.answer, Err) and self.answer.error is self._sender.lost

    def when_answered(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the answer comes, before anything that is read later is handed over."""
        self._told = tell
        if self.answered.is_set():
            tell()

    async def result(self, *, within: float | None = None) -> Any:
        """Return the result, waiting at most `within` seconds (None: as long as it takes).

        Raises:
            RpcError: the bridge's error.
            ConnectionLost: the connection ended before an answer came.
            NoAnswer: the time is over; the request stays sent.
        """
        with anyio.move_on_after(within):
            await self.answered.wait()
        if self.answer is None:
            raise NoAnswer(self.method, within or 0)
        return self.outcome()

    def outcome(self) -> Any:
        """Return the result of a request that was answered; raises RpcError, ConnectionLost."""
        if self.lost:
            raise ConnectionLost
        match self.answer:
            case None:
                raise RuntimeError("the request is not answered yet")
            case Err(error):
                raise error
            case answer:
                return answer.result

    def cancel(self) -> None:
        """Send `$/cancel_request` for this request, if it is not answered yet."""
        self._sender.cancel(self)
