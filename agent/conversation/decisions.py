"""The user's choices and "always" answers in a session, from its transcript. No I/O."""

from __future__ import annotations

from msgspec import Struct, field

from agent.conversation.entries import Record

#: what an "always" answer holds for (see `agent.turn.permissions`)
Key = tuple[str | bool, ...]

#: the kinds of records that hold choices and "always" answers
DECISIONS = ("chosen", "always")


class Decisions(Struct):
    """The last choice of each option, and the last "always" answer for each thing."""

    #: the chosen or announced value of each option, by the option's id
    chosen: dict[str, str] = field(default_factory=dict)
    #: the "always" answers: True if it was allowed
    always: dict[Key, bool] = field(default_factory=dict)

    def fold(self, record: Record) -> None:
        """Applies a record; a malformed one changes nothing."""
        match record:
            case {"t": "chosen", "option": str(option), "value": str(value)}:
                self.chosen[option] = value
            case {"t": "always", "key": [*key], "allow": bool(allow)}:
                if all(isinstance(part, str | bool) for part in key):
                    self.always[tuple(key)] = allow


def is_inherited(record: Record) -> bool:
    """Returns True if a fork of the session copies the record: all but "always allow"."""
    return record.get("t") != "always" or record.get("allow") is False
