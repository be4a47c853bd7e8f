"""What another bridge asks a client of this one: requests that are passed on, with ids mapped."""

from __future__ import annotations

from functools import partial
from typing import Any

from acp_bridge.wire.jsonrpc import Answer, Err, Ok, RequestId
from acp_bridge.wire.peer import Peer


class PassedQuestions:
    """Holds the requests that the client has not answered yet."""

    def __init__(self, there: Peer, client: Peer) -> None:
        """`there`: the way to the other bridge."""
        self._there = there
        self._client = client
        #: the ids of requests there, with those that the client knows.
        self._asked: dict[RequestId, int] = {}

    def ask(self, call_id: RequestId, method: str, params: Any) -> None:
        """Ask the client; its answer is the request's."""
        self._asked[call_id] = 0
        client_id = self._client.request(method, params, partial(self._reply, call_id))
        if call_id in self._asked:
            self._asked[call_id] = client_id

    def take_back(self, call_id: RequestId) -> None:
        """Tell the client that the other bridge waits for its answer no more."""
        if client_id := self._asked.get(call_id):
            self._client.cancel(client_id)

    def end(self) -> None:
        """Take back all: the connection has ended."""
        for client_id in self._asked.values():
            self._client.cancel(client_id)
        self._asked.clear()

    def _reply(self, call_id: RequestId, answer: Answer) -> None:
        if self._asked.pop(call_id, None) is None:
            return
        match answer:
            case Ok(result):
                self._there.answer(call_id, result)
            case Err(error):
                self._there.fail(call_id, error)
