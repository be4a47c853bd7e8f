"""What a client of this bridge asks another one: requests that are passed on, with ids mapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.protocol import CANCEL_REQUEST, SESSION_PROMPT
from acp_bridge.session.prompts import queue_command
from acp_bridge.wire.jsonrpc import Answer
from acp_bridge.wire.peer import Peer


class PassedRequests:
    """Holds the requests that the other bridge has not answered yet."""

    def __init__(self, there: Peer) -> None:
        """`there`: the way to the other bridge."""
        self._there = there
        #: the requests by the id that each has there.
        self._open: dict[int, ClientRequest] = {}

    def send(
        self, request: ClientRequest, params: Any, on_answer: Callable[[Answer], None]
    ) -> None:
        """Pass a request on with these parameters; `on_answer` is called exactly once.

        A connection that has ended answers before this returns.
        """
        is_answered = False
        there = 0

        def answered(answer: Answer) -> None:
            nonlocal is_answered
            is_answered = True
            self._open.pop(there, None)
            on_answer(answer)

        there = self._there.request(request.method, params, answered)
        if not is_answered:
            self._open[there] = request

    def give_up(self, client: Client, request_id: object) -> bool:
        """Pass on that a client gives a request up; False if none is open under this id."""
        for there, request in self._open.items():
            if request.is_of(client, request_id):
                self._there.notify(CANCEL_REQUEST, {"requestId": there})
                return True
        return False

    def take_back_turns(self, read: int) -> None:
        """Take back every prompt that may not have been read: `read` is the last id that was."""
        for there, request in self._open.items():
            if there > read and _begins_a_turn(request):
                self._there.cancel(there)

    def with_client_id(self, params: Any) -> Any:
        """Return parameters in which a request has the id that the client gave it."""
        there = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(there, int) and (request := self._open.get(there)):
            return {**params, "requestId": request.call.id}
        return params


def _begins_a_turn(request: ClientRequest) -> bool:
    """Return True for a prompt that is for the agent."""
    prompt = request.params.get("prompt") if request.method == SESSION_PROMPT else None
    return isinstance(prompt, list) and queue_command.parse(prompt) is None
