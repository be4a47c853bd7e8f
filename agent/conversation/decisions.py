"""What the user decided for a whole session, folded from the records of its transcript. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.conversation.entries import Record

#: names what an "always" answer holds for (see `agent.turn.permissions`)
Key = tuple[str | bool, ...]

#: the kinds of these records
DECISIONS = ("chosen", "always")


@dataclass(slots=True)
class Decisions:
    """The last decision on each thing holds."""

    #: the values of the options that were chosen or announced, by the options' ids
    chosen: dict[str, str] = field(default_factory=dict)
    #: what was answered with "always": True if it was allowed
    always: dict[Key, bool] = field(default_factory=dict)

    def fold(self, record: Record) -> None:
        """Takes one record in; one that is not well formed changes nothing."""
        match record:
            case {"t": "chosen", "option": str(option), "value": str(value)}:
                self.chosen[option] = value
            case {"t": "always", "key": [*key], "allow": bool(allow)}:
                if all(isinstance(part, str | bool) for part in key):
                    self.always[tuple(key)] = allow


def is_inherited(record: Record) -> bool:
    """Tells if a fork of the session has the record too: it gets no rights by it."""
    return record.get("t") != "always" or record.get("allow") is False
