"""What each client may do: one table, for those here and for those that come from elsewhere.

The client on stdin and those on the bridge's socket are the user's own processes. A remote client
has the rights of the token with which it came in.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from acp_bridge.core import errors
from acp_bridge.core.agents.standing import sets_something
from acp_bridge.core.protocol import (
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
    QUEUE_LIST,
    QUOTA_READ,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_FORK,
    SESSION_LIST,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_RESUME,
)
from acp_bridge.core.wire.jsonrpc import RpcError


class Role(StrEnum):
    """How a client is connected, and for a remote one what its token is for.

    A client that observes has the role `OBSERVER` besides, and may do only what both roles may.
    """

    FIRST = "first"
    JOINED = "joined"
    OBSERVER = "observer"
    LOOK = "look"
    APPROVE = "approve"
    ALL = "all"


class Right(StrEnum):
    """Something that a client may do, or not."""

    LOOK = "look"
    ANSWER = "answer"
    STOP = "stop"
    CANCEL = "cancel"
    END = "end"
    ACT = "act"
    OPEN = "open"
    SET = "set"


_TABLE: Final = """
first  joined  observer  look  approve  all
yes    yes     yes       yes   yes      yes  look    list, load, resume, attach, live, queue, quota
yes    yes     no        no    yes      yes  answer  is asked for permissions and forms
yes    yes     no        no    yes      yes  stop    session/cancel
yes    yes     yes       no    yes      yes  cancel  _acp_bridge/cancel
yes    yes     yes       no    no       yes  end     close, delete, _acp_bridge/close, and ask
yes    yes     no        no    no       yes  act     prompts, settings, and all that is not named
yes    no      yes       no    no       yes  open    new, fork, authenticate, logout
yes    no      no        no    no       yes  set     providers, and what sets something for all
"""

#: the right that a request needs, if it is another than to act.
_NEEDED: Final = {
    **dict.fromkeys((SESSION_LIST, SESSION_LOAD, SESSION_RESUME), Right.LOOK),
    **dict.fromkeys((ATTACH, LIVE, QUEUE_LIST, QUOTA_READ), Right.LOOK),
    CANCEL_TURN: Right.CANCEL,
    **dict.fromkeys((SESSION_CLOSE, SESSION_DELETE, CLOSE_FOR_ALL, ASK), Right.END),
    **dict.fromkeys((SESSION_NEW, SESSION_FORK, AUTHENTICATE, LOGOUT), Right.OPEN),
    **dict.fromkeys((PROVIDERS_SET, PROVIDERS_DISABLE), Right.SET),
}
#: the right that a message of a page needs, by its `do`; others are dropped.
_NEEDED_BY_PAGE: Final = {
    **dict.fromkeys(("here", "visible", "open", "list", "find", "more", "earlier"), Right.LOOK),
    **dict.fromkeys(("back", "leave"), Right.LOOK),
    "answer": Right.ANSWER,
    "stop": Right.CANCEL,
    **dict.fromkeys(("prompt", "run", "drop", "move", "set"), Right.ACT),
}
_REFUSALS: Final = {
    Role.JOINED: "only the client that started this acp-bridge may do that",
    Role.OBSERVER: "an observer sends no prompts, and sets nothing",
    Role.LOOK: "this login may only look",
    Role.APPROVE: "this login may look, answer questions and stop a turn, and no more",
}


def _read(table: str) -> dict[Role, frozenset[Right]]:
    head, *rows = [line.split() for line in table.strip().splitlines()]
    return {
        Role(role): frozenset(Right(row[len(head)]) for row in rows if row[at] == "yes")
        for at, role in enumerate(head)
    }


_RIGHTS: Final = _read(_TABLE)


class May(StrEnum):
    """What the token of a remote client is for."""

    LOOK = "look"
    APPROVE = "approve"
    ALL = "all"


class Rights(Struct, frozen=True):
    """The rights of a remote client."""

    may: May
    #: the name of the token; it stands beside what the client decides.
    name: str
    #: the folders in which sessions have to lie; without any folder no session is allowed.
    roots: tuple[str, ...]
    #: tells tokens apart: the same for all connections with one token.
    login: str


def have(roles: Iterable[Role], right: Right) -> bool:
    """Return True if a client with these roles has a right."""
    return all(right in _RIGHTS[role] for role in roles)


def check(roles: Iterable[Role], method: str, params: object) -> None:
    """Raise RpcError for a request that a client with these roles may not make."""
    if method.startswith(OWN_PREFIX) and method not in OWN_METHODS:
        raise errors.unknown_method(method)
    right = needed(method, params)
    for role in roles:
        if right not in _RIGHTS[role]:
            raise _refusal(role)


def check_page(may: str, do: object) -> bool:
    """Return True for a message `do` of a page whose login `may` send it; False for an unknown one.

    Raises RpcError if the login may not.
    """
    right = _NEEDED_BY_PAGE.get(do) if isinstance(do, str) else None
    if right is not None and right not in _RIGHTS[role := Role(may)]:
        raise _refusal(role)
    return right is not None


def _refusal(role: Role) -> RpcError:
    return errors.refused(_REFUSALS[role])


def needed(method: str, params: object) -> Right:
    """Return the right that a request needs."""
    if right := _NEEDED.get(method):
        return right
    named = isinstance(params, dict) and "sessionId" in params
    return Right.ACT if named or not sets_something(method) else Right.SET
