"""What the turns of kept sessions have used, from what their agents told."""

from __future__ import annotations

from dataclasses import dataclass

from acp_bridge.core.journal import SessionInfo
from acp_bridge.core.journal.turns import ELSEWHERE, Used
from acp_bridge.features.spending.spent import Spent, Told, spent, told


@dataclass(frozen=True, slots=True)
class TurnSpent:
    """What a turn has used, with who ran it."""

    told: Told
    #: when it began, in UTC as ISO 8601; "" if that is not kept.
    at: str
    spent: Spent
    #: it ran before the session was imported.
    elsewhere: bool = False


def turns_spent(info: SessionInfo, used: Used) -> list[TurnSpent]:
    """Count what each turn of a session has used, in order.

    `used`: what the session's file has. What was told outside of any turn has the number 0.
    """
    usages = {number: usage for number, _, usage in used.turns}
    accounted = {number for number, _ in used.told}
    earlier = [(number, dict[str, object]()) for number in usages if number not in accounted]
    all_ = [*earlier, *used.told]
    found = [told(number, about, usages.get(number, {}), info.agent_info) for number, about in all_]
    times = {number: str(about.get("at", "")) for number, about in used.told}
    times |= {number: began for number, began, _ in used.turns if began}
    return [
        TurnSpent(each, times.get(each.turn, ""), count, elsewhere=about.get(ELSEWHERE) is True)
        for (_, about), each, count in zip(all_, found, spent(found), strict=True)
    ]


def cost_words(costs: dict[str, float]) -> str:
    """Return the costs in each currency as text, such as "0.1200 USD"."""
    return ", ".join(f"{amount:.4f} {currency}" for currency, amount in sorted(costs.items()))
