"""The requests that a client may make: on a socket fewer than at the bridge's own start."""

from __future__ import annotations

from typing import Final

from acp_bridge import errors
from acp_bridge.agents.standing import sets_something
from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.protocol import (
    ASK,
    ATTACH,
    AUTHENTICATE,
    CANCEL_TURN,
    CLOSE_FOR_ALL,
    LIVE,
    LOGOUT,
    OWN_METHODS,
    OWN_PREFIX,
    PROVIDERS_DISABLE,
    PROVIDERS_SET,
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_FORK,
    SESSION_LIST,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_RESUME,
)

#: methods that make a session, or change the agent as a whole: for the first client only.
_OF_THE_FIRST: Final = (SESSION_NEW, SESSION_FORK, AUTHENTICATE, LOGOUT)
#: methods that neither prompt nor set anything, and those of commands that otherwise only look. One
#: that isn't known may do either at the agent.
_OF_OBSERVERS: Final = (
    *_OF_THE_FIRST,
    *(SESSION_LIST, SESSION_LOAD, SESSION_RESUME, ATTACH, LIVE, ASK),
    *(CANCEL_TURN, SESSION_CLOSE, CLOSE_FOR_ALL, SESSION_DELETE),
)


def check(request: ClientRequest) -> None:
    """Raise RpcError for a request that this client may not make, whatever its parameters are."""
    client, method = request.client, request.method
    if method.startswith(OWN_PREFIX) and method not in OWN_METHODS:
        raise errors.unknown_method(method)
    if client.on_socket and (method in _OF_THE_FIRST or _sets_for_all(request)):
        raise errors.refused("only the client that started this acp-bridge may do that")
    if client.observes and method not in _OF_OBSERVERS:
        raise errors.refused("an observer sends no prompts, and sets nothing")


def may_notify(client: Client, method: str) -> bool:
    """Return False for a notification that counts for nothing from this client."""
    return method == SESSION_CANCEL or not (client.observes or method.startswith(OWN_PREFIX))


def _sets_for_all(request: ClientRequest) -> bool:
    if request.method in (PROVIDERS_SET, PROVIDERS_DISABLE):
        return True
    named = isinstance(request.params, dict) and "sessionId" in request.params
    return not named and sets_something(request.method)
