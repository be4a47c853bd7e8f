"""What the turns of kept sessions have used, from what their agents told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acp_bridge.agents.spending import Spent, Told, spent, told
from acp_bridge.journal import SessionInfo
from acp_bridge.journal.reading import turns_and_usage
from acp_bridge.journal.turns import ELSEWHERE, TurnRow
from acp_bridge.protocol import Json, as_object


@dataclass(frozen=True, slots=True)
class TurnSpent:
    """What a turn has used, with who ran it."""

    told: Told
    #: when it began, in UTC as ISO 8601; "" if that is not kept.
    at: str
    spent: Spent
    #: it ran before the session was imported.
    elsewhere: bool = False


def usage(row: TurnRow) -> Json:
    """Return the `usage` in the agent's answer to the prompt of a turn; {} if it has none."""
    return as_object(as_object(row.prompt.agent_outcome).get("usage"))


def turns_spent(home: Path, info: SessionInfo) -> list[TurnSpent]:
    """Return what each turn of a session has used, in order. Raises JournalError.

    What was told outside of any turn has the number 0.
    """
    ran, kept = turns_and_usage(home, info.session_id)
    rows = {row.prompt.seq: row for row in ran}
    accounted = {number for number, _ in kept}
    earlier = [(number, dict[str, object]()) for number in rows if number not in accounted]
    all_ = [*earlier, *kept]
    found = [
        told(number, about, usage(rows[number]) if number in rows else {}, info.agent_info)
        for number, about in all_
    ]
    times = {number: str(about.get("at", "")) for number, about in kept}
    times |= {number: row.began for number, row in rows.items() if row.began}
    return [
        TurnSpent(each, times.get(each.turn, ""), count, elsewhere=about.get(ELSEWHERE) is True)
        for (_, about), each, count in zip(all_, found, spent(found), strict=True)
    ]


def cost_words(costs: dict[str, float]) -> str:
    """Return the costs in each currency as text, such as "0.1200 USD"."""
    return ", ".join(f"{amount:.4f} {currency}" for currency, amount in sorted(costs.items()))
