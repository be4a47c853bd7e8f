"""Answers permissions without a person. No I/O.

Invariants
- Nothing is allowed for longer than once.
- Only calls that are known to read are allowed, unless the policy allows everything. The kind of a
  call is what the agent says, in the request and in the updates before; a call that was ever said
  to be of another kind counts as that, and a call that names a command or shows a change does not
  count as reading, whatever its kind (invariant V9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acp_bridge.core.protocol import (
    CANCELLED_PERMISSION,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    Json,
    as_object,
)
from acp_bridge.core.updates import tool_calls
from acp_bridge.sharing.bridge_client.permission_options import options_of, selected

#: kinds of tool calls that change nothing and send nothing. `fetch` is not one of them: an address
#: may carry what was read; nor is `switch_mode`, which may leave a mode that only reads.
READING: Final = frozenset({"read", "search", "think"})


class Policy(StrEnum):
    """How permissions are answered when there is no person to ask."""

    DENY = "deny"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a `session/request_permission`."""

    result: Json
    allowed: bool
    #: the title of the tool call, unchanged from the agent.
    title: str
    #: the tool call as one harmless line.
    summary: str


class Permissions:
    """Answers the permissions of one turn; its updates tell the kinds of tool calls."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._kinds: dict[str, set[str]] = {}
        self._titles: dict[str, str] = {}

    def note(self, update: Json) -> None:
        """Note the kind and the title in an update of a tool call."""
        if update.get("sessionUpdate") not in (TOOL_CALL, TOOL_CALL_UPDATE):
            return
        call, kind, title = (update.get(key) for key in ("toolCallId", "kind", "title"))
        if kind is None and update["sessionUpdate"] == TOOL_CALL:
            kind = "other"  # the default of a call whose agent names no kind
        if isinstance(call, str) and kind is not None:
            self._kinds.setdefault(call, set()).add(str(kind))
        if isinstance(call, str) and isinstance(title, str):
            self._titles[call] = title

    def title_of(self, card: Json) -> str:
        """Return the title of a tool call, unchanged from the agent."""
        return self._titles.get(str(card.get("toolCallId")), "a tool call without a title")

    def decide(self, params: Json) -> Decision:
        """Return the policy's answer to a request; `cancelled` if no fitting option is offered."""
        card = as_object(params.get("toolCall"))
        self.note({**card, "sessionUpdate": TOOL_CALL_UPDATE})
        call = str(card.get("toolCallId"))
        kinds = self._kinds.get(call, set())
        reads = bool(kinds) and kinds <= READING and not tool_calls.runs_or_changes(card)
        title = self.title_of(card)
        told = title, tool_calls.summary({"title": self._titles.get(call), **card})
        allow = self._policy is Policy.ALLOW or reads
        if allow and (option := option_of(params, "allow_once")) is not None:
            return Decision(selected(option), True, *told)
        option = option_of(params, "reject_once")
        return Decision(CANCELLED_PERMISSION if option is None else selected(option), False, *told)


def option_of(params: Json, kind: str) -> str | None:
    """Return the id of the first option of a kind in a permission request; None: there is none."""
    for option in options_of(params):
        if option.get("kind") == kind:
            return str(option["optionId"])
    return None
