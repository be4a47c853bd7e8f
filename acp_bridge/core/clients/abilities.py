"""The abilities that a client declared in `initialize`; updates are made fit for them."""

from __future__ import annotations

from typing import Final

from acp_bridge.core import protocol
from acp_bridge.core.protocol import (
    ASKED_FOR_KINDS,
    OPTIONS_UPDATE,
    Json,
    can_own,
    has,
    names_terminal,
    own_meta,
    without_terminals,
)

#: kinds of updates that some clients can't take, or not in every form.
_CONVERTED: Final = frozenset({OPTIONS_UPDATE, *ASKED_FOR_KINDS})


def is_converted(update: Json) -> bool:
    """Return True for an update that may look different to different clients."""
    kind = update.get("sessionUpdate")
    return (isinstance(kind, str) and kind in _CONVERTED) or names_terminal(update)


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
        #: the client shows the sessions of subagents.
        self.shows_subagents = has(capabilities, protocol.SUBAGENTS)
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
        options). Journal and session keep what the agent said.
        """
        options = holder.get("configOptions")
        if not isinstance(options, list) or self.has("session", "configOptions", "boolean"):
            return holder
        shown = [o for o in options if not (isinstance(o, dict) and o.get("type") == "boolean")]
        return {**holder, "configOptions": shown}

    def fit_update(self, update: Json, *, has_terminals: bool) -> Json | None:
        """Return an update as this client can take it, or None if it can't at all.

        `has_terminals`: the terminals that the agent shows are at this client.
        """
        kind = update.get("sessionUpdate")
        if isinstance(kind, str) and (needed := ASKED_FOR_KINDS.get(kind)):
            return update if self.has(*needed) else _as_plan(update)
        if kind == OPTIONS_UPDATE:
            return self.fit(update)
        return update if has_terminals or not names_terminal(update) else without_terminals(update)


def _as_plan(update: Json) -> Json | None:
    """Return the baseline form of a plan that has entries; None for anything else."""
    match update:
        case {"sessionUpdate": protocol.PLAN_UPDATE, protocol.PLAN: {"entries": list(entries)}}:
            return {"sessionUpdate": protocol.PLAN, "entries": entries}
    return None
