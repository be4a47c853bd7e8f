"""Passes questions of another bridge on to a client of this one, with ids mapped."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from acp_bridge.core.clients.client import Client
from acp_bridge.core.protocol import CANCEL_REQUEST
from acp_bridge.core.wire.jsonrpc import Answer, RequestId, is_id
from acp_bridge.sharing.bridge_client.listener import BridgeRequest

#: answers that may come too late and are known.
_MOST_ANSWERED: Final = 32


class PassedQuestions:
    """Holds the requests of the other bridge that the client has not answered yet.

    A question to a client that has left gets no answer: the other bridge sees that the client has
    left, and keeps the question open for the next client (invariant V8).
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: the open requests, each with the id by which the client knows it.
        self._asked: dict[BridgeRequest, int] = {}
        #: the ids at the client of the last requests that it has answered, by those at the bridge.
        self._answered: dict[RequestId, int] = {}

    def ask(self, request: BridgeRequest, params: Any) -> None:
        """Send the client the request with `params`; the answer goes back to the other bridge."""
        self._asked[request] = 0
        client_id = self._client.peer.request(request.method, params, partial(self._reply, request))
        if request in self._asked:
            self._asked[request] = client_id

    def take_back(self, request: BridgeRequest) -> None:
        """Tell the client that the other bridge waits for its answer no more."""
        if client_id := self._asked.get(request):
            self._client.peer.cancel(client_id)

    def called_back(self, request_id: object) -> None:
        """Tell the client that its answer to a request came too late at the other bridge."""
        if is_id(request_id) and (client_id := self._answered.pop(request_id, None)):
            self._client.peer.notify(CANCEL_REQUEST, {"requestId": client_id})

    def end(self) -> None:
        """Take back all questions, since the connection has ended."""
        for client_id in self._asked.values():
            self._client.peer.cancel(client_id)
        self._asked.clear()

    def _reply(self, request: BridgeRequest, answer: Answer) -> None:
        client_id = self._asked.pop(request, None)
        if client_id is not None and not self._client.gone:
            self._answered[request.call.id] = client_id
            while len(self._answered) > _MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
            request.respond(answer)
