"""Passes requests of a client of this bridge on to another bridge, with ids mapped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from acp_bridge.bridge_client.connection import Connection
from acp_bridge.bridge_client.sent import Sent
from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.protocol import SESSION_PROMPT
from acp_bridge.session.prompts import queue_command
from acp_bridge.wire.jsonrpc import Answer


class PassedRequests:
    """Holds the requests that the other bridge has not answered yet."""

    def __init__(self, there: Connection) -> None:
        """`there`: the way to the other bridge."""
        self._there = there
        #: the open requests, by the id that each has there.
        self._open: dict[int, tuple[Sent, ClientRequest]] = {}

    def send(
        self,
        request: ClientRequest,
        params: Any,
        on_answer: Callable[[Answer], None],
        method: str | None = None,
    ) -> None:
        """Pass a request on with these parameters; `on_answer` is called exactly once.

        `method`: another one than the client's. A connection that has ended answers before this
        returns.
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
        """Cancel every prompt that may not have been read; `read`: the last id that surely was."""
        for sent, request in self._open.values():
            if sent.id > read and _begins_a_turn(request):
                sent.cancel()

    def with_client_id(self, params: Any) -> Any:
        """Return parameters whose `requestId` is the one that the client gave the request."""
        there = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(there, int) and (found := self._open.get(there)):
            _, request = found
            return {**params, "requestId": request.call.id}
        return params


def _begins_a_turn(request: ClientRequest) -> bool:
    """Return True for a prompt that is for the agent."""
    prompt = request.params.get("prompt") if request.method == SESSION_PROMPT else None
    return isinstance(prompt, list) and queue_command.parse(prompt) is None
