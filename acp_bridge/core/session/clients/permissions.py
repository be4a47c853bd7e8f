"""Permissions that rules and hooks decide about before the person is asked.

- A call is allowed only by a rule or a hook that says so, and only this once. Whatever else a hook
  does, the person is asked (invariants C18, K8). The person is asked, too, if the agent has
  meanwhile changed what it says of the call (V9).
- A cancel ends a question to the hooks at once, like a question to a client (invariant C15).
- What rules refuse, an agent can't do through a client's files and terminals either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from acp_bridge.core import errors, protocol
from acp_bridge.core.agents.link import Link
from acp_bridge.core.protocol import (
    CANCELLED_PERMISSION,
    REQUEST_PERMISSION,
    WAITS_FOR_PERSON,
    Json,
    as_object,
    objects,
)
from acp_bridge.core.session.clients.open_request import OpenRequest
from acp_bridge.core.session.feature import Decider, Decision
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.children import placed
from acp_bridge.core.updates.odd_answers import unclear_options
from acp_bridge.core.updates.open_cards import opening_update
from acp_bridge.core.updates.tool_calls import disagrees, shows_alike, summary
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.peer import Call

#: passes a request to a client; the flag says that only a person may allow the call.
Ask = Callable[[Link, Call, bool], None]
#: the methods with which an agent asks the user, and what hooks are told that it is.
_WAITS = {
    REQUEST_PERMISSION: "permission_prompt",
    protocol.CREATE_ELICITATION: "elicitation_dialog",
}
#: what an agent does through a client, without asking a person.
_OF_CLIENT = frozenset(
    {protocol.READ_TEXT_FILE, protocol.WRITE_TEXT_FILE, protocol.CREATE_TERMINAL}
)
#: the kinds of options that stand for a decision; never one that holds longer than this call,
#: unless it is a refusal and there is no other.
_KINDS = {"allow": ("allow_once",), "deny": ("reject_once", "reject_always")}


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
    """Lets the rules and hooks of a session decide about its agent's permissions."""

    def __init__(
        self, decider: Decider | None, updates: Updates, show: Callable[[Json], None]
    ) -> None:
        """`show` records and shows the card of a call about which no client is asked."""
        self._decider = decider
        self._updates = updates
        self._show = show

    def takes(self, call: Call) -> bool:
        """Return True for a request that rules or hooks are to decide about."""
        if self._decider is None:
            return False
        if call.method in _OF_CLIENT:
            return self._decider.refuses()
        return _asks_about_a_call(call) and self._decider.decides()

    def decide(self, link: Link, call: Call, ask: Ask) -> None:
        """Let rules and hooks answer a request; `ask` asks the client if they leave it open."""
        decider = self._decider
        assert decider is not None  # `takes` has said so
        if call.method in _OF_CLIENT:
            self._refuse(decider, link, call, ask)
            return
        request = call.params["toolCall"]
        self._updates.note_asked(request)
        asked = _Deciding(
            link, call, self._updates.card_told(request), self._updates.told_of(request)
        )
        link.at_clients.add(asked)
        kinds = self._updates.kinds_of(request)
        asked.stop = decider.decide(asked.told, kinds, partial(self._decided, asked, ask))

    def _refuse(self, decider: Decider, link: Link, call: Call, ask: Ask) -> None:
        """Pass a request about a client's file or terminal on, unless a rule refuses it."""
        params = as_object(call.params)
        asked = _Deciding(link, call, {}, {})
        link.at_clients.add(asked)
        then = partial(self._passed, asked, ask)
        if call.method == protocol.CREATE_TERMINAL:
            cwd = params.get("cwd")
            folder = cwd if isinstance(cwd, str) else ""
            asked.stop = decider.refuse_command(_as_lines(params), folder, then)
        else:
            writes = call.method == protocol.WRITE_TEXT_FILE
            asked.stop = decider.refuse_file(str(params.get("path")), then, writes=writes)

    def _passed(self, asked: _Deciding, ask: Ask, decision: Decision | None) -> None:
        if not asked.is_open:
            return
        asked.link.at_clients.remove(asked)
        if decision is None:
            asked.link.peer.fail(asked.call.id, errors.cancelled())
        elif decision.action == "deny":
            said = f"a rule of the user's refuses this: {decision.rules[0]}"
            asked.link.peer.fail(asked.call.id, errors.refused(said))
        else:
            ask(asked.link, asked.call, False)

    def denies_unattended(self, call: Call, *, guarded: bool) -> bool:
        """Return True for a permission that is denied if nobody can answer.

        `guarded`: only a person may allow it.
        """
        return (guarded or self._unattended == "deny") and _asks_about_a_call(call)

    @property
    def _unattended(self) -> str:
        return self._decider.unattended if self._decider else ""

    def marked(self, call: Call, params: Any) -> Any:
        """Return a question's parameters, marked if by the rules it waits for a person to come."""
        if not (self._unattended == "ask" and _asks_about_a_call(call)):
            return params
        own = {**protocol.own_meta(params), WAITS_FOR_PERSON: True}
        return protocol.with_own_meta(params, own)

    def deny(self, link: Link, call: Call) -> None:
        """Deny a permission that nobody can answer, say so, and show the card of its call."""
        about = summary(self._updates.told_of(call.params["toolCall"]))
        self._show(notices.notice(notices.unattended(about)))
        self._settle(link, call, Decision("deny", "unattended"), {})

    def tell_that_it_waits(self, call: Call, about: Json | None) -> None:
        """Start the hooks about a question to the user; `about`: all that is known of the call."""
        if self._decider and call.method in _WAITS:
            self._decider.waits_for_user(_WAITS[call.method], asks(call, about))

    def _decided(self, asked: _Deciding, ask: Ask, decision: Decision | None) -> None:
        link, call = asked.link, asked.call
        if not asked.is_open:
            return  # it was answered when the hooks were stopped
        link.at_clients.remove(asked)
        if decision is None:
            link.peer.fail(call.id, errors.cancelled())
            return
        person = is_for_person(call)
        allows = decision.action == "allow" and not person and self._still_says(asked)
        offered = option_for("allow", call.params.get("options")) is not None
        if decision.action == "deny" or (allows and offered):
            self._settle(link, call, decision, asked.told)
        else:
            ask(link, call, decision.guarded or person)

    def _settle(self, link: Link, call: Call, decision: Decision, told: Json) -> None:
        """Answer a permission that no person was asked for; `told`: what hooks were told of it."""
        self.note(call, self._card_id(call), decision)
        if self._decider and decision.action == "allow" and decision.by == "hook":
            self._decider.tell_allowed(summary(told))
        option = option_for(decision.action, call.params.get("options"))
        chosen = {"outcome": {"outcome": "selected", "optionId": option}}
        link.peer.answer(call.id, CANCELLED_PERMISSION if option is None else chosen)

    def note(self, call: Call, card_id: object, decision: Decision) -> None:
        """Record and show on a call's card what has become of a permission, and who decided so."""
        self._updates.asking.settle(card_id)
        if decision.action != "allow":
            self._updates.deny(call.params["toolCall"])
        if isinstance(card_id, str):
            said = {"sessionUpdate": protocol.TOOL_CALL_UPDATE, "toolCallId": card_id}
            self._show(protocol.with_own_meta(placed(said), {"decided": decision.told}))

    def _card_id(self, call: Call) -> object:
        """Show the card of a call that no client was asked about; returns the clients' id of it."""
        card, _, new = self._updates.asked_about(call.params["toolCall"])
        card_id = card.get("toolCallId")
        if new and isinstance(card_id, str):
            self._show(new_card(card))
            self._updates.forget_notes([card_id])
        return card_id

    def _still_says(self, asked: _Deciding) -> bool:
        """Return True if card and request agree, and say what the hooks were told of the call."""
        request = asked.call.params["toolCall"]
        card = self._updates.card_told(request)
        return shows_alike(asked.card, card) and not disagrees(card, request)


def is_for_person(call: Call) -> bool:
    """Return True for a permission that the built-in agent has marked as a person's to give."""
    meta = as_object(as_object(as_object(call.params).get("toolCall")).get("_meta"))
    return as_object(meta.get(protocol.BUILTIN_AGENT)).get(protocol.ONLY_PERSON) is True


def asks(call: Call, about: Json | None) -> str:
    """Return the subject of a question in one line; `about`: all that is known of a tool call."""
    if call.method == REQUEST_PERMISSION:
        return summary(about or {})
    said = call.params.get("message") if isinstance(call.params, dict) else None
    return said if isinstance(said, str) else ""


def _asks_about_a_call(call: Call) -> bool:
    asked = as_object(call.params).get("toolCall")
    return call.method == REQUEST_PERMISSION and isinstance(asked, dict)


def _as_lines(params: Json) -> list[str]:
    """Return a terminal's command as the lines that a client may make of it.

    Some clients give the command and its arguments to a shell as they are.
    """
    import shlex  # few bridges ever need it

    args = params.get("args")
    given = [params.get("command"), *(args if isinstance(args, list) else [])]
    words = [each for each in given if isinstance(each, str)]
    if len(words) == 1:
        return words
    return list(dict.fromkeys((shlex.join(words), " ".join(words))))


def new_card(call: Json) -> Json:
    """Return the update that opens a card for a call that only its permission has named."""
    return placed(opening_update(call))


def decision_of(call: Call, result: object, by: str, name: str = "") -> Decision | None:
    """Return the decision that an answer to a permission is; None for another question.

    `name`: the login of the client that has answered, if it has one.
    """
    params = as_object(call.params)
    if call.method != REQUEST_PERMISSION or not isinstance(params.get("toolCall"), dict):
        return None
    match result:
        case {"outcome": {"outcome": "selected", "optionId": chosen}}:
            offered = objects(params.get("options"))
            option = next((each for each in offered if each.get("optionId") == chosen), {})
            kind = str(option.get("kind", ""))
            action = "deny" if kind.startswith("reject") else "allow"
            return Decision(action, by, option=kind if by == "client" else "", name=name)
    return Decision("cancelled", by, name=name)


def option_for(decision: str | None, options: object) -> object:
    """Return the id of the option that stands for a decision; None if there is none."""
    unclear = unclear_options(options)
    for kind in _KINDS.get(decision or "", ()):
        for option in objects(options):
            option_id = option.get("optionId")
            if option.get("kind") == kind and option_id and option_id not in unclear:
                return option_id
    return None
