"""Keeps a client's messages for a session whose holder has ended, until it is open again."""

from __future__ import annotations

from typing import Any

import anyio

from acp_bridge.clients.client import ClientRequest
from acp_bridge.clients.waiting_requests import WaitingRequests
from acp_bridge.wire.jsonrpc import RpcError


class Continued(ClientRequest):
    """Stands for the load of a session that a client had from a bridge that has ended."""

    def answer(self, result: Any) -> None:
        """Do nothing: nobody has asked."""

    def fail(self, error: RpcError) -> None:
        """Do nothing: nobody has asked."""


class Continuation:
    """Keeps the messages for one session, in order."""

    def __init__(self) -> None:
        """`scope` cancels the task that opens the session again."""
        self.waiting = WaitingRequests()
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
