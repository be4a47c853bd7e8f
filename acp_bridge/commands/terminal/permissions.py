"""Answers permissions without a person. Sans-IO.

Invariants
- Nothing is allowed for longer than once.
- What is not known to only read is denied, unless everything is allowed: the kind of a tool call is
  what the agent says of it, in the request and in the updates before. One that was ever said to be
  another kind counts as that; one that names a command or shows a change is no reading, whatever
  its kind is (invariant V9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from acp_bridge.protocol import CANCELLED_PERMISSION, TOOL_CALL, TOOL_CALL_UPDATE, Json
from acp_bridge.updates import tool_calls
from acp_bridge.wire.json_values import as_object

#: kinds of tool calls that change nothing and send nothing anywhere. `fetch` is none: an address
#: may carry what was read; nor is `switch_mode`, which may lead out of a mode that only reads.
READING: Final = frozenset({"read", "search", "think"})


class Policy(StrEnum):
    """What is answered when nobody is asked."""

    DENY = "deny"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one `session/request_permission`."""

    result: Json
    allowed: bool
    #: the title of the tool call, as the agent wrote it.
    title: str
    #: what it is about, as one harmless line.
    summary: str


class Permissions:
    """Decides for one turn; is told its updates, for the kinds of tool calls."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._kinds: dict[str, set[str]] = {}
        self._titles: dict[str, str] = {}

    def note(self, update: Json) -> None:
        """Take the next update."""
        if update.get("sessionUpdate") not in (TOOL_CALL, TOOL_CALL_UPDATE):
            return
        call, kind, title = (update.get(key) for key in ("toolCallId", "kind", "title"))
        if kind is None and update["sessionUpdate"] == TOOL_CALL:
            kind = "other"  # what a call is of which its agent says nothing
        if isinstance(call, str) and kind is not None:
            self._kinds.setdefault(call, set()).add(str(kind))
        if isinstance(call, str) and isinstance(title, str):
            self._titles[call] = title

    def decide(self, params: Json) -> Decision:
        """Return the answer that the policy gives to a request; `cancelled` if it gives none."""
        card = as_object(params.get("toolCall"))
        self.note({**card, "sessionUpdate": TOOL_CALL_UPDATE})
        call = str(card.get("toolCallId"))
        kinds = self._kinds.get(call, set())
        reads = bool(kinds) and kinds <= READING and not tool_calls.runs_or_changes(card)
        title = self._titles.get(call, "a tool call without a title")
        told = title, tool_calls.summary({"title": self._titles.get(call), **card})
        allow = self._policy is Policy.ALLOW or reads
        if allow and (option := option_of(params, "allow_once")) is not None:
            return Decision(selected(option), True, *told)
        option = option_of(params, "reject_once")
        return Decision(CANCELLED_PERMISSION if option is None else selected(option), False, *told)


def options_of(params: Json) -> list[Json]:
    """Return the options of a permission that are well formed."""
    given = params.get("options")
    return [
        option
        for option in (given if isinstance(given, list) else [])
        if isinstance(option, dict) and isinstance(option.get("optionId"), str)
    ]


def option_of(params: Json, kind: str) -> str | None:
    """Return the id of the first option of this kind, if there is one."""
    for option in options_of(params):
        if option.get("kind") == kind:
            return str(option["optionId"])
    return None


def selected(option_id: str) -> dict[str, Any]:
    """Return the result that selects an option."""
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
