"""Counts what the turns of a session have used, from what its agent told. No I/O.

A figure counts for the turn in which it was told. Of a total only what it has grown by counts; one
that is less than before has begun anew. What is not known to be of a turn or a total is never
summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, field

from acp_bridge.core.protocol import TOKENS as KEPT
from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.features.spending.usage_figures import SUMMED, Span, is_amount, of_agent

#: the kinds of tokens, as the protocol names them.
TOKENS: Final = (
    "inputTokens",
    "outputTokens",
    "thoughtTokens",
    "cachedReadTokens",
    "cachedWriteTokens",
    "totalTokens",
)
#: the last totals that were told, by (agent, kind of tokens or currency).
Totals: TypeAlias = dict[object, float]


class Told(Struct, frozen=True):
    """What an agent told in one turn of its tokens and costs."""

    #: the turn's number; 0 for what was told outside of any.
    turn: int
    #: the agent's name for itself; None if it is not known.
    agent: str | None
    version: str | None
    model: str | None
    #: the costs, in the order in which they were told.
    costs: Sequence[Json]
    #: the tokens: `usage` in the answer to the prompt, or what the built-in agent tells there.
    usage: Json


class Spent(Struct):
    """What one turn, or several together, have used as far as it can be counted."""

    tokens: dict[str, int] = field(default_factory=dict)
    #: amounts by currency.
    costs: dict[str, float] = field(default_factory=dict)
    #: what was told and could not be counted: "tokens" or "cost", the agent, and why.
    uncounted: set[tuple[str, str, Span]] = field(default_factory=set)

    def add(self, other: Spent) -> None:
        """Add what `other` has used to this."""
        for kind, number in other.tokens.items():
            self.tokens[kind] = self.tokens.get(kind, 0) + number
        for currency, amount in other.costs.items():
            self.costs[currency] = self.costs.get(currency, 0) + amount
        self.uncounted |= other.uncounted


def spent(session: Iterable[Told]) -> list[Spent]:
    """Return what each turn of a session has used; the turns come in the order of their time."""
    last: Totals = {}
    return [of_turn(told, last) for told in session]


def of_turn(told: Told, last: Totals) -> Spent:
    """Return what a turn has used; `last`: the totals before it, which are brought up to date."""
    found, figures, agent = (
        Spent(),
        of_agent(told.agent, told.version),
        told.agent or "an unknown agent",
    )
    numbers = {kind: told.usage[kind] for kind in TOKENS if is_amount(told.usage.get(kind))}
    if numbers and figures.tokens not in SUMMED:
        found.uncounted.add(("tokens", agent, figures.tokens))
    elif numbers:
        for kind, number in numbers.items():
            of = (agent, kind)
            found.tokens[kind] = int(_grown(last, of, number, figures.tokens))
    for cost in objects(list(told.costs)):
        amount, currency = cost.get("amount"), cost.get("currency")
        if not is_amount(amount) or not isinstance(currency, str):
            continue
        if figures.cost not in SUMMED:
            found.uncounted.add(("cost", agent, figures.cost))
            continue
        grown = _grown(last, (agent, currency), amount, figures.cost)
        found.costs[currency] = found.costs.get(currency, 0) + grown
    return found


def _grown(last: Totals, of: object, now: float, span: Span) -> float:
    """Return what the figure `now` counts of this turn alone: of a total, its growth since `last`,
    which is brought up to date."""
    before = 0 if span is Span.TURN else last.get(of, 0)
    last[of] = now
    return now - before if now >= before else now


def told(turn: int, kept: Json, usage: object, agent: str | None) -> Told:
    """Return what the journal keeps of a turn; `agent`: the agent's name where none is kept.

    `usage`: that in the answer to the prompt.
    """
    name, version, model = (kept.get(key) for key in ("agent", "version", "model"))
    return Told(
        turn,
        name if isinstance(name, str) else agent,
        version if isinstance(version, str) else None,
        model if isinstance(model, str) else None,
        objects(kept.get("costs")),
        as_object(kept.get(KEPT)) or as_object(usage),
    )
