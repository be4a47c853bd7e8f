"""The turns of a kept session: when each ran, how it ended, what was decided, what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, SessionInfo
from acp_bridge.core.journal.reading import turns_of, used
from acp_bridge.core.journal.turns import TurnRow, answered
from acp_bridge.core.protocol import Json, as_object, own_meta
from acp_bridge.core.updates.wording import duration
from acp_bridge.features.spending.usage_figures import Span, is_amount, of_agent
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.shared.kept import local_time, updates_in_turns, who
from acp_bridge.terminal.shared.spending import TurnSpent, cost_words, turns_spent
from acp_bridge.terminal.shared.table import table


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a session, with what was decided about its permissions."""

    row: TurnRow
    #: it runs now.
    runs: bool
    #: what it has used.
    used: TurnSpent | None = None
    decided: list[Json] = field(default_factory=list)

    @property
    def costs(self) -> dict[str, float]:
        """What the turn has cost, by currency, as far as that is known."""
        return self.used.spent.costs if self.used else {}

    @property
    def tokens(self) -> Json:
        """The tokens that the agent has told of the turn, as it tells them."""
        return self.used.told.usage if self.used else answered(self.row)

    @property
    def seconds(self) -> float | None:
        """How many seconds the turn took; None if one of its times is not kept."""
        began, ended = _time(self.row.began), _time(self.row.ended)
        return None if began is None or ended is None else (ended - began).total_seconds()

    @property
    def end(self) -> str:
        """How the turn ended, in a word or with what the error says."""
        if self.runs:
            return "runs"
        match self.row.prompt.outcome:
            case {"stopReason": "end_turn"}:
                return "done"
            case {"stopReason": str(reason)}:
                return reason
            case {"error": {"message": str(message)}}:
                return f"error: {message}"
            case {"unrecorded": True}:
                return "not recorded"
        return "interrupted"


def turns(home: Path, info: SessionInfo) -> list[Turn]:
    """Return the turns of a session in order. Raises JournalError."""
    live = lease.is_held(Journal(home).lock_path(info.session_id))
    rows = turns_of(home, info.session_id)
    spent = {each.told.turn: each for each in turns_spent(info, used(home, info.session_id))}
    found = {
        row.prompt.seq: Turn(row, live and row.prompt.outcome is None, spent.get(row.prompt.seq))
        for row in rows
    }
    for turn, params in updates_in_turns(home, info):
        decided = as_object(own_meta(params).get("decided"))
        if decided and turn in found:
            found[turn].decided.append(decided)
    return list(found.values())


def turns_table(found: Sequence[Turn], columns: int | None) -> str:
    """Return a table with a line for each turn."""
    if not found:
        return "No turns.\n"
    rows = [
        [
            str(turn.row.prompt.seq),
            local_time(turn.row.began) if turn.row.began else "",
            "" if turn.seconds is None else duration(turn.seconds),
            turn.end,
            _tokens(turn),
            cost_words(turn.costs),
            ", ".join(_decisions(turn.decided)),
        ]
        for turn in found
    ]
    return table(["TURN", "BEGAN", "TOOK", "ENDED", "TOKENS", "COST", "DECIDED"], rows, columns)


def turns_as_json(found: Sequence[Turn], session_id: str) -> Iterator[Json]:
    """Give an object for each turn."""
    for turn in found:
        yield {
            "sessionId": session_id,
            "turn": turn.row.prompt.seq,
            "promptId": turn.row.prompt.prompt_id,
            "began": turn.row.began,
            "ended": turn.row.ended,
            "seconds": turn.seconds,
            "end": turn.end,
            "usage": turn.tokens or None,
            "costs": turn.costs,
            "decided": turn.decided,
        }


def _tokens(turn: Turn) -> str:
    """Return a turn's tokens as its agent tells them, with what they count if not the turn."""
    counts = {name: turn.tokens.get(f"{name}Tokens") for name in ("input", "output", "total")}
    known = {name: number for name, number in counts.items() if is_amount(number)}
    both = [f"{known[name]} {name}" for name in ("input", "output") if name in known]
    words = ", ".join(both or [f"{number} in all" for number in known.values()])
    by = turn.used.told if turn.used else None
    span = of_agent(by and by.agent, by and by.version).tokens
    return words if not words or span is Span.TURN else f"{words} ({span.value})"


def _decisions(decided: Sequence[Json]) -> list[str]:
    """Return a text for each kind of decision: what, by whom, and how often if more than once."""
    made = Counter(f"{one_line(str(each.get('decision')))} by {who(each)}" for each in decided)
    return [each if often == 1 else f"{often} {each}" for each, often in made.items()]


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
