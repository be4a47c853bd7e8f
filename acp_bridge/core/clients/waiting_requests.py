"""Requests that can't be handled when they are read, and wait in order for a condition."""

from __future__ import annotations

from typing import Any, Final, Protocol

from acp_bridge.core import errors
from acp_bridge.core.protocol import SESSION_PROMPT, as_object, prompt_key
from acp_bridge.core.wire.jsonrpc import RpcError

#: the most requests that wait; far more than a client sends before it has an answer.
MOST: Final = 256


class Request(Protocol):
    """A client's request (`client.ClientRequest`)."""

    @property
    def client(self) -> object: ...
    @property
    def method(self) -> str: ...
    @property
    def params(self) -> Any: ...
    def is_of(self, client: Any, request_id: object) -> bool: ...
    def answer(self, result: Any) -> None: ...
    def fail(self, error: RpcError) -> None: ...
    def hand_over(self) -> None: ...


class WaitingRequests:
    """Holds requests until `go_on`; each of them is answered once."""

    def __init__(self) -> None:
        """Begin without requests."""
        self._waiting: list[Request] = []

    def add(self, request: Request) -> None:
        """Let a request wait behind the others; raises RpcError when there are too many."""
        if len(self._waiting) >= MOST:
            raise errors.refused(f"{MOST} requests wait already: read the answers first")
        self._waiting.append(request)

    def go_on(self, failure: RpcError | None = None) -> None:
        """Hand each request to its client's handler, in order, or answer all with `failure`."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            try:
                if failure:
                    raise failure
                request.hand_over()
            except RpcError as exc:
                request.fail(exc)
            except Exception as exc:
                request.fail(errors.internal(exc))

    def cancel_request(self, client: object, request_id: object) -> bool:
        """Answer a client's waiting request as cancelled; returns False if none has this id."""
        for request in self._waiting:
            if request.is_of(client, request_id):
                self._waiting.remove(request)
                request.fail(errors.cancelled())
                return True
        return False

    def cancel_oldest(self, client: object, session_id: object, bound: str | None = None) -> None:
        """Answer a client's oldest prompt of a session as a cancelled one (invariant C1).

        `session_id`: None means the only session that has prompts of the client here. `bound`: the
        key of the only prompt that is meant; None: any is.
        """
        asked = [r for r in self._waiting if r.method == SESSION_PROMPT and r.client is client]
        if session_id is None and all(_session(r) == _session(asked[0]) for r in asked):
            session_id = _session(asked[0]) if asked else None
        for request in asked:
            meant = bound is None or prompt_key(as_object(request.params)) == bound
            if meant and _session(request) == session_id:
                self._waiting.remove(request)
                request.answer({"stopReason": "cancelled"})
                return


def _session(request: Request) -> object:
    return request.params.get("sessionId") if isinstance(request.params, dict) else None
