"""The exit codes of the terminal commands (docs/commands.md)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from acp_bridge.core.protocol import ErrorCode
from acp_bridge.core.wire.jsonrpc import RpcError


class Exit(IntEnum):
    """The exit code of a command."""

    DONE = 0
    #: the command failed: no such session, nobody answers, or an error of acp-bridge itself.
    FAILED = 1
    USAGE = 2
    #: the turn ended, but something that the agent asked for was denied.
    DENIED = 3
    #: the agent stopped at a limit of tokens or of requests, or the session's budget is spent.
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

#: what a person is told if a turn ended for another reason than `end_turn`.
SAID: Final = {
    Exit.LIMIT: "the agent stopped at a limit of tokens or of requests",
    Exit.REFUSAL: "the agent refused",
    Exit.CANCELLED: "the turn was cancelled by another client",
}


def of_stop_reason(reason: object, *, denied: bool) -> Exit:
    """Return the exit code for the stop reason of a turn; an unknown reason counts as DONE.

    `denied`: a permission was denied in the turn. The code is DENIED then in place of DONE, and of
    CANCELLED, since some agents cancel their turn when something is denied.
    """
    found = _STOP_REASONS.get(str(reason), Exit.DONE)
    return Exit.DENIED if denied and found in (Exit.DONE, Exit.CANCELLED) else found


def of_error(error: RpcError) -> Exit:
    """Return the exit code for an error that the bridge sent as its answer."""
    match error.code:
        case ErrorCode.AUTH_REQUIRED:
            return Exit.AUTHENTICATION
        case ErrorCode.REQUEST_CANCELLED:
            return Exit.CANCELLED
    return Exit.AGENT
