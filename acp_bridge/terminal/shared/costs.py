"""Sums up what kept sessions have used, by agent, folder, session, day or model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from acp_bridge.core.journal import JournalError, SessionInfo
from acp_bridge.core.journal.turns import Used
from acp_bridge.core.protocol import Json
from acp_bridge.features.spending.spent import Spent
from acp_bridge.features.spending.usage_figures import Span
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.spending import TurnSpent, cost_words, turns_spent
from acp_bridge.terminal.shared.table import table

#: by what turns are summed up.
WAYS: Final = ("agent", "folder", "session", "day", "model")
_NOT_TOLD: Final = "not told"
#: why figures are not summed, behind the agent's name and "its tokens" or "its costs".
_WHY: Final = {
    Span.LAST_CALL: "are of the last call of the model in a turn alone, so they are not summed",
    Span.UNKNOWN: "are not summed: it is not known if they are of a turn or totals",
}


@dataclass(slots=True)
class Sum:
    """What some turns have used together."""

    name: str
    #: the session's title, and when it was used last, where the sum is of a session.
    title: str = ""
    used_at: str = ""
    turns: int = 0
    #: how many of the turns the agents have told nothing of.
    untold: int = 0
    spent: Spent = field(default_factory=Spent)

    def add(self, each: TurnSpent) -> None:
        """Add a turn, or what an agent has told outside of any turn."""
        used = each.spent
        self.turns += bool(each.told.turn)
        told = used.tokens or used.costs or used.uncounted
        self.untold += bool(each.told.turn) and not told
        self.spent.add(used)


@dataclass(slots=True)
class Costs:
    """The sums of all sessions, and what is missing in them."""

    way: str
    sums: dict[str, Sum] = field(default_factory=dict)
    whole: Sum = field(default_factory=lambda: Sum("all"))
    #: sessions whose files can't be read, by their ids.
    unread: list[str] = field(default_factory=list)
    #: how many turns ran before their session was imported, and are not counted.
    elsewhere: int = 0

    def in_order(self) -> list[Sum]:
        """Return the sums by name; those of sessions with the dearest first, then the newest."""
        sums = sorted(self.sums.values(), key=lambda each: each.name)
        return sorted(sums, key=_weight, reverse=True) if self.way == "session" else sums


def _weight(each: Sum) -> tuple[float, int, str]:
    tokens = each.spent.tokens.get("totalTokens", 0)
    return max(each.spent.costs.values(), default=0.0), tokens, each.used_at


def costs(
    listed: Iterable[SessionInfo], way: str, since: str, used_in: Callable[[str], Used]
) -> Costs:
    """Return the sums of the turns of the `listed` sessions, by a `way` of `WAYS`.

    `since`: only turns that began then or later, in UTC as ISO 8601; "": all. `used_in`: returns
    what a session has of usage, by its id, or raises JournalError.
    """
    found = Costs(way)
    for info in listed:
        if info.updated_at < since:
            continue
        try:
            used = turns_spent(info, used_in(info.session_id))
        except JournalError:
            found.unread.append(info.session_id)
            continue
        for each in used:
            if each.elsewhere:
                found.elsewhere += bool(each.told.turn) and each.at >= since
            elif each.at >= since and (each.told.turn or each.spent.costs):
                name = _name(info, each, way)
                new = Sum(name, info.title or "", info.updated_at)
                found.sums.setdefault(name, new).add(each)
                found.whole.add(each)
    return found


def costs_table(found: Costs, columns: int | None) -> str:
    """Return a table with a line for each sum, and below it a sentence for what the sums lack."""
    if not found.sums:
        return "No turns.\n" + "".join(f"{note}\n" for note in _notes(found))
    sums = found.in_order()
    rows = [_row(each) for each in [*sums, *([found.whole] if len(sums) > 1 else [])]]
    head = [found.way.upper(), "TURNS", "INPUT", "OUTPUT", "TOKENS", "COST"]
    if found.way == "session":
        short = known.short_ids(found.sums)
        rows = [[short.get(name, name), *row] for name, *row in rows]
        rows = [[*row, each.title] for row, each in zip(rows, [*sums, found.whole], strict=False)]
        head.append("TITLE")
    notes = "".join(f"{note}\n" for note in _notes(found))
    return table(head, rows, columns) + (f"\n{notes}" if notes else "")


def costs_as_json(found: Costs) -> Iterator[Json]:
    """Give an object for each sum."""
    for each in found.in_order():
        yield {
            "by": found.way,
            "name": each.name,
            **({"title": each.title} if found.way == "session" else {}),
            "turns": each.turns,
            "untold": each.untold,
            "tokens": each.spent.tokens,
            "costs": each.spent.costs,
            "uncounted": [
                {"what": what, "agent": agent, "of": span.value}
                for what, agent, span in sorted(each.spent.uncounted, key=str)
            ],
        }


def _name(info: SessionInfo, each: TurnSpent, way: str) -> str:
    match way:
        case "agent":
            return info.agent
        case "folder":
            return known.with_tilde(info.cwd)
        case "session":
            return info.session_id
        case "day":
            return _day(each.at)
        case _:
            return each.told.model or _NOT_TOLD


def _day(at: str) -> str:
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d")
    except ValueError:
        return "not kept"


def _row(each: Sum) -> list[str]:
    tokens = [each.spent.tokens.get(f"{kind}Tokens") for kind in ("input", "output", "total")]
    told = ["" if number is None else str(number) for number in tokens]
    return [each.name, str(each.turns), *told, cost_words(each.spent.costs)]


def _notes(found: Costs) -> Iterator[str]:
    """Give a sentence for each thing that the sums lack."""
    for what, agent, span in sorted(found.whole.spent.uncounted, key=str):
        figures = "tokens" if what == "tokens" else "costs"
        yield f"{one_line(agent)}: its {figures} {_WHY[span]}."
    if number := found.whole.untold:
        whose = "1 turn: its agent" if number == 1 else f"{number} turns: their agents"
        yield f"{whose} told nothing of what was used."
    if number := found.elsewhere:
        turns = "1 turn" if number == 1 else f"{number} turns"
        yield f"{turns} of imported sessions ran elsewhere, and count there."
    for session_id in found.unread:
        yield f"Session {one_line(session_id)[:8]} can't be read, and is not counted."
