"""Passes requests of a client of this bridge on to another bridge, with ids mapped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.protocol import SESSION_PROMPT, queue_words
from acp_bridge.core.wire.jsonrpc import Answer
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.sent import Sent


class PassedRequests:
    """Holds the clients' requests that the other bridge has not answered yet."""

    def __init__(self, there: Connection) -> None:
        """`there`: the connection to the other bridge."""
        self._there = there
        #: the open requests, by the id that each has on the connection to the other bridge.
        self._open: dict[int, tuple[Sent, ClientRequest]] = {}

    def send(
        self,
        request: ClientRequest,
        params: Any,
        on_answer: Callable[[Answer], None],
        method: str | None = None,
    ) -> None:
        """Pass a request on with `params`; `on_answer` is called once, with the answer to it.

        `method`: sent in place of the request's own. If the connection has ended, `on_answer` is
        called with an error before this returns.
        """
        sent = self._there.send(method or request.method, params)
        self._open[sent.id] = sent, request
        sent.when_answered(partial(self._answered, sent, on_answer))

    def _answered(self, sent: Sent, on_answer: Callable[[Answer], None]) -> None:
        del self._open[sent.id]
        assert sent.answer is not None
        on_answer(sent.answer)

    def give_up(self, client: Client, request_id: object) -> bool:
        """Pass on that a client gives a request up; False if none is open under this id."""
        for sent, request in self._open.values():
            if request.is_of(client, request_id):
                sent.cancel()
                return True
        return False

    def take_back_turns(self, read: int) -> None:
        """Cancel every prompt for the agent that the other bridge may not have read.

        `read`: the id of the last request that it surely has read.
        """
        for sent, request in self._open.values():
            if sent.id > read and _begins_a_turn(request):
                sent.cancel()

    def with_client_id(self, params: Any) -> Any:
        """Return `params` with their `requestId`, if any, mapped back to the client's own id."""
        there = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(there, int) and (found := self._open.get(there)):
            _, request = found
            return {**params, "requestId": request.call.id}
        return params


def _begins_a_turn(request: ClientRequest) -> bool:
    """Return True for a prompt that is for the agent, and is no `/queue` command."""
    prompt = request.params.get("prompt") if request.method == SESSION_PROMPT else None
    return isinstance(prompt, list) and queue_words(prompt) is None
