"""Tells whether a prompt met a usage limit of its agent, and when that limit resets.

- It is recognised by the answer to the prompt and by the agent's `_meta`, never by words or by the
  error's number. Any agent may tell it as the protocol proposes (`features.quotas.proposal`).
- Otherwise no two agents tell it alike: each form here was recorded from the agent that has it
  (tests/features/usage_limits/usage_limits.json). Nothing is guessed of an agent that is not in the
  table.
- An agent's clock and units are its own: a time that can't be the reset of a limit is none.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from acp_bridge.core.protocol import BUILTIN_INFO, USAGE_UPDATE, Json, as_object
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok

#: the agent's name for itself -> the member of the error's `data` that says so, and its values.
_ERRORS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "@agentclientprotocol/claude-agent-acp": (
        "errorKind",
        frozenset({"rate_limit", "billing_error"}),
    ),
    "@agentclientprotocol/codex-acp": ("codexErrorInfo", frozenset({"usageLimitExceeded"})),
    "codex-acp": ("codex_error_info", frozenset({"usage_limit_exceeded"})),
    BUILTIN_INFO: ("errorKind", frozenset({"rate_limit"})),
}
#: the agents that tell some clients of a failure in `_meta` of an answer that says `end_turn`.
_TYPED: Final = ("@agentclientprotocol/claude-agent-acp", "@agentclientprotocol/codex-acp")
#: the `actions` of such a failure that mean a usage limit: for another limit, such as that of the
#: context, they want a new session.
_ACTIONS: Final[tuple[list[str], ...]] = ([], ["retry"])
#: the member of a `usage_update`'s `_meta` in which claude-agent-acp tells when a limit resets.
_CLAUDES: Final = "_claude/rateLimit"
#: seconds; no limit lasts longer than a month.
_LONGEST: Final = 32 * 86400
#: a time that is later in seconds is one in milliseconds.
_LAST_SECOND: Final = 10**11


class Limit(Struct, frozen=True):
    """A usage limit that a prompt met."""

    #: when it resets, in seconds since 1970; None if the agent has not told.
    resets_at: float | None = None


def met(agent: Json, answer: Answer, now: float) -> Limit | None:
    """Return the limit that the answer to a prompt tells of; None if it tells of none.

    `agent`: what the agent has said of itself in `initialize`; `now`: the time since 1970.
    """
    name = as_object(agent.get("agentInfo")).get("name")
    if isinstance(answer, Err) and isinstance(answer.error.data, dict):
        from acp_bridge.features.quotas import proposal  # few errors have data

        if proposal.tells_limit(answer.error.data):
            return Limit(_time(proposal.reset_of(answer.error.data, now), now))
    match answer:
        case Err(error) if isinstance(name, str) and name in _ERRORS:
            member, values = _ERRORS[name]
            data = as_object(error.data)
            kind = data.get(member)
            if isinstance(kind, str) and kind in values:
                return Limit(_time(data.get("resetsAt"), now) if name == BUILTIN_INFO else None)
        case Ok(result) if name in _TYPED and _says_limit(result):
            return Limit()
    return None


def _says_limit(result: Any) -> bool:
    meta = as_object(as_object(result).get("_meta"))
    failure = as_object(as_object(meta.get("jetbrains")).get("air")).get("sessionFailure")
    match failure:
        case {"category": "limit", "severity": "error", "actions": actions}:
            return actions in _ACTIONS
    return False


def reset_in(update: Json, now: float) -> float | None:
    """Return when the limit resets that an update says is reached (seconds since 1970), or None."""
    told = as_object(as_object(update.get("_meta")).get(_CLAUDES))
    if update.get("sessionUpdate") != USAGE_UPDATE or told.get("status") != "rejected":
        return None
    return _time(told.get("resetsAt"), now)


def _time(told: Any, now: float) -> float | None:
    """Return a time since 1970 that may be a limit's reset, in seconds; None for anything else."""
    if not isinstance(told, int | float) or isinstance(told, bool):
        return None
    if told > _LAST_SECOND:
        told = told / 1000 if told < 1000 * _LAST_SECOND else 0
    return float(told) if now < told <= now + _LONGEST else None
