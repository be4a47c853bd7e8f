"""Permissions that hooks decide about before the person is asked.

- A call is allowed only by a hook that says so, and only this once. Whatever else a hook does, the
  person is asked (invariants C18, K8). The person is asked, too, if the agent has meanwhile changed
  what it says of the call (V9).
- A cancel ends a question to the hooks at once, like a question to a client (invariant C15).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from acp_bridge import errors, protocol
from acp_bridge.agents.link import Link
from acp_bridge.protocol import CANCELLED_PERMISSION, REQUEST_PERMISSION, Json, as_object, objects
from acp_bridge.session.clients.open_request import OpenRequest
from acp_bridge.updates.tool_calls import disagrees, shows_alike, summary
from acp_bridge.updates.updates import Updates
from acp_bridge.wire.peer import Call

#: the methods with which an agent asks the user, and what hooks are told that it is.
_WAITS = {
    REQUEST_PERMISSION: "permission_prompt",
    protocol.CREATE_ELICITATION: "elicitation_dialog",
}
#: the kinds of options that stand for a decision; never one that holds longer than this call,
#: unless it is a refusal and there is no other.
_KINDS = {"allow": ("allow_once",), "deny": ("reject_once", "reject_always")}


class PermissionHooks(Protocol):
    """The hooks of a session, as its permissions need them (`session.prompts.hooks`)."""

    @property
    def decide_permissions(self) -> bool:
        """True if the session has hooks for permissions."""

    def decide(self, call: Json, then: Callable[[str | None], None]) -> Callable[[], None]:
        """Let hooks decide about a tool call; returns a function that stops them.

        When they have ended, `then` is told "allow", "deny" or "ask", or None if they were stopped.
        """

    def tell_allowed(self, about: str) -> None:
        """Say in the session that a call was allowed without asking the person."""

    def waits_for_user(self, kind: str, message: str) -> None:
        """Start the hooks that tell the user of a question, and don't wait for them."""


@dataclass(slots=True, eq=False)
class _Deciding(OpenRequest):
    """A permission about which hooks run; no client knows of it yet."""

    #: what the agent had said of the call when the hooks were asked.
    card: Json
    #: what the hooks were told of it.
    told: Json
    stop: Callable[[], None] = lambda: None

    def call_back(self) -> None:
        """Stop the hooks: nobody waits for them any more."""
        self.stop()


class Permissions:
    """Lets the hooks of a session decide about its agent's permissions."""

    def __init__(
        self, hooks: PermissionHooks, updates: Updates, show: Callable[[Json], None]
    ) -> None:
        """`show` records and shows the card of a call about which no client is asked."""
        self._hooks = hooks
        self._updates = updates
        self._show = show

    def takes(self, call: Call) -> bool:
        """Return True for a request that hooks are to decide about."""
        tool_call = call.params.get("toolCall") if isinstance(call.params, dict) else None
        asks = call.method == REQUEST_PERMISSION and isinstance(tool_call, dict)
        return asks and self._hooks.decide_permissions

    def decide(self, link: Link, call: Call, ask: Callable[[Link, Call], None]) -> None:
        """Run the hooks; `ask` asks the client if they leave it to the person."""
        request = call.params["toolCall"]
        asked = _Deciding(
            link, call, self._updates.card_told(request), self._updates.told_of(request)
        )
        link.at_clients.add(asked)
        asked.stop = self._hooks.decide(asked.told, partial(self._decided, asked, ask))

    def tell_that_it_waits(self, call: Call, about: Json | None) -> None:
        """Start the hooks about a question to the user; `about`: all that is known of the call."""
        if call.method in _WAITS:
            self._hooks.waits_for_user(_WAITS[call.method], asks(call, about))

    def _decided(
        self, asked: _Deciding, ask: Callable[[Link, Call], None], decision: str | None
    ) -> None:
        link, call = asked.link, asked.call
        if not asked.is_open:
            return  # it was answered when the hooks were stopped
        link.at_clients.remove(asked)
        if decision == "allow" and not self._still_says(asked):
            decision = "ask"
        option = option_for(decision, call.params.get("options"))
        if decision is None:
            link.peer.fail(call.id, errors.cancelled())
        elif decision == "deny" or option is not None:
            card, _, new = self._updates.asked_about(call.params["toolCall"])
            if new and isinstance(card.get("toolCallId"), str):
                self._show(new_card(card))
                self._updates.forget_notes([card["toolCallId"]])
            if decision == "deny":
                self._updates.deny(call.params["toolCall"])
            if decision == "allow":
                self._hooks.tell_allowed(summary(asked.told))
            chosen = {"outcome": {"outcome": "selected", "optionId": option}}
            link.peer.answer(call.id, CANCELLED_PERMISSION if option is None else chosen)
        else:
            ask(link, call)

    def _still_says(self, asked: _Deciding) -> bool:
        """Return True if card and request agree, and say what the hooks were told of the call."""
        request = asked.call.params["toolCall"]
        card = self._updates.card_told(request)
        return shows_alike(asked.card, card) and not disagrees(card, request)


def asks(call: Call, about: Json | None) -> str:
    """Return the subject of a question in one line; `about`: all that is known of a tool call."""
    if call.method == REQUEST_PERMISSION:
        return summary(about or {})
    said = call.params.get("message") if isinstance(call.params, dict) else None
    return said if isinstance(said, str) else ""


def new_card(call: Json) -> Json:
    """Return the update that opens a card for a call that only its permission has named."""
    card = {"title": call["toolCallId"], "status": "pending", **call}
    return {"update": {**card, "sessionUpdate": protocol.TOOL_CALL}}


def denied(call: Call, result: object) -> Json | None:
    """Return the tool call of a permission that this result denies, else None."""
    params = as_object(call.params) if call.method == REQUEST_PERMISSION else {}
    about = params.get("toolCall")
    if not isinstance(about, dict):
        return None
    match result:
        case {"outcome": {"outcome": "selected", "optionId": chosen}}:
            offered = objects(params.get("options"))
            option = next((each for each in offered if each.get("optionId") == chosen), {})
            return about if str(option.get("kind")).startswith("reject") else None
    return about


def option_for(decision: str | None, options: object) -> object:
    """Return the id of the option that stands for a decision; None if there is none."""
    for kind in _KINDS.get(decision or "", ()):
        for option in objects(options):
            if option.get("kind") == kind and option.get("optionId"):
                return option["optionId"]
    return None
