"""Tells what an agent's figures of its tokens and costs count: a turn, a session, or one call.

The protocol has the tokens in the answer to a prompt and the costs in a `usage_update`, and agents
take either for a turn, for all that the session has used, or for the last of a turn's calls of
the model. Of an agent that is not in the table nothing is guessed.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, TypeGuard

from msgspec import Struct

from acp_bridge.core.protocol import BUILTIN_INFO, Json, as_object


class Span(Enum):
    """What a figure of tokens or of costs counts."""

    #: the turn in which it is told.
    TURN = "turn"
    #: all of the session until then.
    SESSION = "session"
    #: the last call of the model in the turn: less than the turn has used.
    LAST_CALL = "last call"
    #: nobody knows.
    UNKNOWN = "unknown"


#: tokens, or a currency's units, above which a figure is no amount: no session uses as much, and
#: sums of less are finite and exact enough.
_MOST: Final = 10**15
#: spans whose figures can be summed up to what a session has used.
SUMMED: Final = (Span.TURN, Span.SESSION)


class Figures(Struct, frozen=True):
    """What the figures of one agent count: its tokens, and its costs."""

    tokens: Span = Span.UNKNOWN
    cost: Span = Span.UNKNOWN
    #: the first version of the agent for which that is known.
    since: tuple[int, ...] = ()


#: the tokens in `_meta.quota.token_count` of an answer of gemini-cli, by their names there.
_IN_META: Final = {"input_tokens": "inputTokens", "output_tokens": "outputTokens"}
#: by the agent's name for itself; what was recorded of them is in
#: tests/features/spending/usage_figures.json.
_AGENTS: Final = {
    "@agentclientprotocol/claude-agent-acp": Figures(Span.TURN, Span.SESSION),
    "@agentclientprotocol/codex-acp": Figures(tokens=Span.TURN, since=(2, 6)),
    "OpenCode": Figures(Span.LAST_CALL, Span.SESSION),
    BUILTIN_INFO: Figures(Span.TURN, Span.SESSION),
    "acp-bridge-openhands": Figures(cost=Span.SESSION),
    "gemini-cli": Figures(tokens=Span.TURN),
}


def of_agent(name: object, version: object = None) -> Figures:
    """Return what the figures of the agent of this `agentInfo` count; UNKNOWN if nobody knows."""
    known = _AGENTS.get(name, Figures()) if isinstance(name, str) else Figures()
    return known if _numbers(version) >= known.since else Figures()


def tokens_in_meta(result: Json) -> Json:
    """Return the tokens that gemini-cli tells in `_meta.quota` of an answer, by ACP's names.

    An answer with a `usage` has them there, and so has nothing here.
    """
    quota = as_object(as_object(result.get("_meta")).get("quota"))
    counted = {} if result.get("usage") else as_object(quota.get("token_count"))
    return {ours: counted[theirs] for theirs, ours in _IN_META.items() if theirs in counted}


def tells_no_cost(name: object, version: object) -> bool:
    """Return True for an agent in the table that tells no cost, or none that can be summed."""
    figures = of_agent(name, version)
    return figures != Figures() and figures.cost not in SUMMED


def _numbers(version: object) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", version) if isinstance(version, str) else None
    return tuple(map(int, found[0].split("."))) if found else ()


def is_amount(value: object) -> TypeGuard[float]:
    """Return True for a number that can be an amount of tokens or money."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value <= _MOST
