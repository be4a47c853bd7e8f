"""The abilities that a client declared in `initialize`; updates are made fit for them."""

from __future__ import annotations

from typing import Any, Final

from acp_bridge.core import protocol
from acp_bridge.core.protocol import (
    ASKED_FOR_KINDS,
    OF_SUBAGENTS,
    OPTIONS_UPDATE,
    PLAN,
    QUOTA,
    STATES,
    SUBAGENTS,
    TRANSCRIPT,
    Json,
    as_object,
    can_own,
    has,
    names_terminal,
    own_meta,
    with_own_meta,
    without_own_meta,
    without_terminals,
)
from acp_bridge.core.runtime.log import event

#: kinds of updates that some clients can't take, or not in every form.
_CONVERTED: Final = frozenset({OPTIONS_UPDATE, *ASKED_FOR_KINDS})
#: the kinds of updates, of blocks, and of items of a tool call's content that are known.
_KINDS: Final = frozenset({*TRANSCRIPT, *STATES, *OF_SUBAGENTS, *ASKED_FOR_KINDS})
_BLOCKS: Final = ("text", "image", "audio", "resource_link", "resource", "session")
_ITEMS: Final = (*_BLOCKS, "content", "diff", "terminal")
#: the members that are known of a client's capabilities, and of their member `session`.
_CAPABILITIES: Final = frozenset(
    {"fs", "terminal", "session", "auth", "elicitation", PLAN, SUBAGENTS, "_meta"}
    | {"nes", "positionEncodings"}
)
_OF_SESSION: Final = frozenset({"configOptions", "compaction", "notices", QUOTA, "_meta"})


def is_converted(update: Json) -> bool:
    """Return True for a known update that may look different to different clients."""
    kind = update.get("sessionUpdate")
    return (isinstance(kind, str) and kind in _CONVERTED) or names_terminal(update)


def is_unknown(kind: str) -> bool:
    """Return True for a kind of update that the bridge does not know."""
    return kind not in _KINDS


def has_unknown(update: Json) -> bool:
    """Return True for an update of an unknown kind, or with content of an unknown kind."""
    content = update.get("content")
    items = content if isinstance(content, list) else ()
    return (
        update.get("sessionUpdate") not in _KINDS
        or _is_unknown_block(content)
        or any(map(is_unknown_item, items))
    )


def _is_unknown_block(block: object) -> bool:
    kind = as_object(block).get("type")
    return isinstance(kind, str) and kind not in _BLOCKS


def is_unknown_item(item: object) -> bool:
    """Return True for an item of an unknown kind in the content of a tool call or a message."""
    kind = as_object(item).get("type")
    if kind == "content":
        return _is_unknown_block(as_object(item).get("content"))
    return isinstance(kind, str) and kind not in _ITEMS


def with_known_items(holder: Json) -> Json:
    """Return a tool call without the items of its content that are of an unknown kind."""
    content = holder.get("content")
    if not isinstance(content, list):
        return holder
    known = [each for each in content if not is_unknown_item(each)]
    return holder if len(known) == len(content) else {**holder, "content": known}


def unknown_capabilities(told: object) -> Json:
    """Return those members of a client's capabilities that the bridge does not know.

    Unknown members of `session` are returned in a `session`.
    """
    can = as_object(told)
    unknown = {name: can[name] for name in can if name not in _CAPABILITIES}
    session = as_object(can.get("session"))
    if deeper := {name: session[name] for name in session if name not in _OF_SESSION}:
        unknown["session"] = deeper
    return unknown


def _declared(unknown: Json) -> set[str]:
    """Return the names of unknown capabilities that are declared, and not turned off."""
    session = as_object(unknown.get("session"))
    names = {name for name in unknown if name != "session" and has(unknown, name)}
    return names | {f"session.{name}" for name in session if has(session, name)}


class ClientAbilities:
    """The client's declared capabilities; anything but an object declares none."""

    def __init__(self, capabilities: object = None) -> None:
        self._capabilities = capabilities
        #: the abilities of the bridge's own that the client declared.
        self.own = frozenset(
            name for name in own_meta(self.declared) if can_own(capabilities, name)
        )
        name = own_meta(self.declared).get(protocol.CLIENT_NAME)
        #: the name under which the client comes back on another connection, if it has one.
        self.name = name if isinstance(name, str) else None
        #: the client speaks version 2.
        self.shows_said = protocol.SHOWS_SAID in self.own
        #: the client takes kinds that the bridge does not know. Version 1's lists are closed.
        self.takes_unknown = self.shows_said
        self._said_unknown = False
        #: the client shows the sessions of subagents.
        self.shows_subagents = has(capabilities, SUBAGENTS)
        #: the client wants to be told that a prompt is on disk.
        self.hears_accepted = protocol.HEARS_ACCEPTED in self.own
        #: the client wants a cursor with each recorded update.
        self.takes_cursors = protocol.TAKES_CURSORS in self.own
        #: the client wants to be told the states of its sessions.
        self.hears_state = protocol.HEARS_STATE in self.own
        #: the client shows what runs, and has a Stop for any turn.
        self.has_stop = protocol.HAS_STOP in self.own
        #: the client wants to be told which prompts wait in its sessions.
        self.hears_queue = protocol.HEARS_QUEUE in self.own

    @property
    def declared(self) -> Json:
        """The capabilities as the client gave them."""
        return self._capabilities if isinstance(self._capabilities, dict) else {}

    def note_shown(self, capabilities: object) -> None:
        """Note the capabilities that the agent was shown.

        The client takes unknown kinds if an unknown capability of its own is among them.
        """
        of_agent = _declared(unknown_capabilities(capabilities))
        self.takes_unknown |= bool(of_agent & _declared(unknown_capabilities(self.declared)))

    def has(self, *path: str) -> bool:
        """Return True when the client declared this capability."""
        return has(self._capabilities, *path)

    def allows(self, method: str, params: object) -> bool:
        """Return True when the client takes this request of an agent, by its capabilities."""
        match method:
            case protocol.READ_TEXT_FILE:
                return self.has("fs", "readTextFile")
            case protocol.WRITE_TEXT_FILE:
                return self.has("fs", "writeTextFile")
            case protocol.CREATE_ELICITATION:
                mode = params.get("mode") if isinstance(params, dict) else None
                return isinstance(mode, str) and self.has("elicitation", mode)
            case _:
                return not method.startswith("terminal/") or self.has("terminal")

    def fit(self, holder: Json) -> Json:
        """Return a result or an update with `configOptions` as this client can take it.

        Boolean options are left out unless the client declared them (spec: session config
        options), and options of an unknown kind unless it takes such. Journal and session keep what
        the agent said.
        """
        options = holder.get("configOptions")
        if not isinstance(options, list):
            return holder
        taken = [each for each in options if self._takes_option(each)]
        return holder if len(taken) == len(options) else {**holder, "configOptions": taken}

    def _takes_option(self, option: object) -> bool:
        kind = as_object(option).get("type")
        if kind == "boolean":
            return self.has("session", "configOptions", "boolean")
        return not isinstance(kind, str) or kind == "select" or self._takes("an option", kind)

    def fit_call(self, call: Json) -> Json:
        """Return a tool call that the client is asked about as it can take it."""
        known = with_known_items(call)
        return call if known is call or self._takes("content", "a tool call") else known

    def fit_end(self, result: Any) -> Any:
        """Return the answer to a prompt with a stop reason that this client can take."""
        own = dict(own_meta(as_object(result)))
        if (reason := own.pop(protocol.STOP_REASON, None)) is None:
            return result
        told = with_own_meta(result, own) if own else without_own_meta(result)
        return {**told, "stopReason": reason} if self._takes("a stop reason", reason) else told

    def _takes(self, what: str, kind: object) -> bool:
        """Return True if the client takes unknown kinds; else the log says so, once."""
        if not (self.takes_unknown or self._said_unknown):
            self._said_unknown = True
            event("client.kept_from", what=f"{what} of an unknown kind: {kind}")
        return self.takes_unknown

    def fit_update(self, update: Json, *, has_terminals: bool) -> Json | None:
        """Return an update as this client can take it, or None if it can't at all.

        `has_terminals`: the terminals that the agent shows are at this client.
        """
        kind = update.get("sessionUpdate")
        needed = ASKED_FOR_KINDS.get(kind) if isinstance(kind, str) else None
        if needed and not (self.shows_said or self.has(*needed)):
            return _as_plan(update)
        if kind == OPTIONS_UPDATE:
            return self.fit(update)
        if has_unknown(update) and not self._takes("an update", kind):
            known = with_known_items(update)
            if has_unknown(known):
                return None
            update = known
        return update if has_terminals or not names_terminal(update) else without_terminals(update)


def _as_plan(update: Json) -> Json | None:
    """Return the baseline form of a plan that has entries; None for anything else."""
    match update:
        case {"sessionUpdate": protocol.PLAN_UPDATE, protocol.PLAN: {"entries": list(entries)}}:
            return {"sessionUpdate": protocol.PLAN, "entries": entries}
    return None
