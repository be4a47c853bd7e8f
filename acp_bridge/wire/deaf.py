"""The handler of a connection over which the other side is only asked."""

from __future__ import annotations

from typing import Any

from acp_bridge.protocol import ErrorCode
from acp_bridge.wire.jsonrpc import Malformed, RpcError
from acp_bridge.wire.peer import Call


class Deaf:
    """Drops what the other side says by itself, and does nothing that it asks for."""

    def on_request(self, call: Call) -> None:
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, "nothing is done here")

    def on_notification(self, method: str, params: Any) -> None:
        """Drop it."""

    def on_malformed(self, line: Malformed) -> None:
        """Drop it."""

    def on_batch_end(self) -> None:
        """Do nothing."""
