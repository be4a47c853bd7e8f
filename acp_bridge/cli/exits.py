"""The exit codes of the terminal commands (docs/commands.md)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from acp_bridge.protocol import ErrorCode
from acp_bridge.wire.jsonrpc import RpcError


class Exit(IntEnum):
    """How a command ended."""

    DONE = 0
    #: it failed: no such session, nobody answers, or an error of acp-bridge itself.
    FAILED = 1
    USAGE = 2
    #: the turn ended, but something that the agent asked for was denied.
    DENIED = 3
    #: the agent stopped at a limit of tokens or of requests.
    LIMIT = 4
    REFUSAL = 5
    #: the agent did not start, would not open the session, or failed in the turn.
    AGENT = 6
    TIMEOUT = 7
    #: somebody else cancelled the turn.
    CANCELLED = 8
    AUTHENTICATION = 9
    INTERRUPTED = 130


_STOP_REASONS: Final = {
    "end_turn": Exit.DONE,
    "max_tokens": Exit.LIMIT,
    "max_turn_requests": Exit.LIMIT,
    "refusal": Exit.REFUSAL,
    "cancelled": Exit.CANCELLED,
}

#: what a person is told of a turn that has not simply ended.
SAID: Final = {
    Exit.LIMIT: "the agent stopped at a limit of tokens or of requests",
    Exit.REFUSAL: "the agent refused",
    Exit.CANCELLED: "the turn was cancelled by another client",
}


def of_stop_reason(reason: object, *, denied: bool) -> Exit:
    """Return the exit code of a turn that has ended; a reason that is not known counts as its end.

    `denied`: something was denied in it. Some agents cancel their turn at that.
    """
    found = _STOP_REASONS.get(str(reason), Exit.DONE)
    return Exit.DENIED if denied and found in (Exit.DONE, Exit.CANCELLED) else found


def of_error(error: RpcError) -> Exit:
    """Return the exit code for an error that the bridge answered with."""
    match error.code:
        case ErrorCode.AUTH_REQUIRED:
            return Exit.AUTHENTICATION
        case ErrorCode.REQUEST_CANCELLED:
            return Exit.CANCELLED
    return Exit.AGENT
