"""What a client may ask for: one on a socket less than the one that started the bridge."""

from __future__ import annotations

from typing import Final

from acp_bridge import errors
from acp_bridge.agents.standing import sets_something
from acp_bridge.clients.client import ClientRequest
from acp_bridge.protocol import (
    AUTHENTICATE,
    LOGOUT,
    PROVIDERS_DISABLE,
    PROVIDERS_SET,
    SESSION_FORK,
    SESSION_NEW,
    SESSION_PROMPT,
)

#: what makes a session, or changes the agent as a whole.
_OF_THE_FIRST: Final = (SESSION_NEW, SESSION_FORK, AUTHENTICATE, LOGOUT)


def check(request: ClientRequest) -> None:
    """Raise RpcError for a request that this client may not make, whatever its parameters are."""
    client, method = request.client, request.method
    if client.on_socket and (method in _OF_THE_FIRST or _sets_for_all(request)):
        raise errors.refused("only the client that started this acp-bridge may do that")
    if client.observes and (method == SESSION_PROMPT or sets_something(method)):
        raise errors.refused("an observer sends no prompts, and sets nothing")


def _sets_for_all(request: ClientRequest) -> bool:
    if request.method in (PROVIDERS_SET, PROVIDERS_DISABLE):
        return True
    named = isinstance(request.params, dict) and "sessionId" in request.params
    return not named and sets_something(request.method)
