"""Requests that can't be taken where they are read: they wait, in order, for what comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acp_bridge import errors
from acp_bridge.protocol import SESSION_PROMPT
from acp_bridge.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from acp_bridge.clients.client import Client, ClientRequest

#: far more than a client sends without having heard anything.
MOST: Final = 256


class WaitingRequests:
    """Holds requests until `go_on`; each of them is answered once."""

    def __init__(self) -> None:
        """Nothing waits yet."""
        self._waiting: list[ClientRequest] = []

    def add(self, request: ClientRequest) -> None:
        """Let a request wait behind the others; raises RpcError when there are too many."""
        if len(self._waiting) >= MOST:
            raise errors.refused(f"{MOST} requests wait already: read the answers first")
        self._waiting.append(request)

    def go_on(self, failure: RpcError | None = None) -> None:
        """Hand each to its client's handler, in order, or answer them all with this failure."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            try:
                if failure:
                    raise failure
                request.client.handler.on_client_request(request)
            except RpcError as exc:
                request.fail(exc)
            except Exception as exc:
                request.fail(errors.internal(exc))

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Answer a request that its client gives up; False if it is not here."""
        for request in self._waiting:
            if request.is_of(client, request_id):
                self._waiting.remove(request)
                request.fail(errors.cancelled())
                return True
        return False

    def cancel_oldest(self, session_id: object) -> None:
        """Answer the oldest prompt of a session as a cancelled one (invariant C1)."""
        for request in self._waiting:
            if request.method == SESSION_PROMPT and _session(request) == session_id:
                self._waiting.remove(request)
                request.answer({"stopReason": "cancelled"})
                return


def _session(request: ClientRequest) -> object:
    return request.params.get("sessionId") if isinstance(request.params, dict) else None
