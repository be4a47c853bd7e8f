"""Keeps a session's mode, model and config options: those shown, and those in force.

- What the user chose and the agent confirmed is set again in every later process, in order,
  before the next prompt (invariant R9); it is kept in the journal for the next bridge.
- What the agent announces takes the place of what was chosen before, or voids it (invariant R13).
- Everything here has the agent's form: what a client can't take is left out where it leaves for
  that client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from acp_bridge.core import protocol
from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import JournalError, SessionJournal
from acp_bridge.core.protocol import (
    SET_CONFIG_OPTION,
    SET_MODE,
    SET_MODEL,
    ErrorCode,
    Json,
    without,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.opening import Refused
from acp_bridge.core.session.requests import options
from acp_bridge.core.wire.jsonrpc import RpcError

_NAMES: Final = {SET_MODE: "mode", SET_MODEL: "model", SET_CONFIG_OPTION: "option"}
_SHOWN: Final = ("modes", "models", "configOptions", "_meta")


class Choice(Struct, frozen=True):
    """A request that sets something, without the session's id."""

    method: str
    params: Json
    #: the agent announced the value; the client did not ask for it.
    announced: bool = False

    @property
    def kind(self) -> object:
        """The setting that is chosen; a later choice of the same kind replaces this one."""
        return options.kind(self.method, self.params)

    @property
    def name(self) -> str:
        """The name of the setting, in words."""
        return str(self.params.get("configId") or _NAMES[self.method])

    @property
    def value(self) -> object:
        """The value that is set."""
        return self.params.get(options.VALUE_KEYS[self.method])

    def announce(self, value: object) -> Choice:
        """Return this choice with the value that the agent announces."""
        key = options.VALUE_KEYS[self.method]
        return Choice(self.method, {**self.params, key: value}, announced=True)


class UserSettings:
    """The mode, model and options of one session: those shown, and those that the user chose."""

    def __init__(self, journal: SessionJournal) -> None:
        """Read the settings that another bridge kept. Raises JournalError."""
        self._journal = journal
        #: `modes`, `models`, `configOptions` and `_meta` as the agent told them last.
        self.shown: Json = journal.get("shown") or {}
        self._choices = [Choice(*kept) for kept in journal.get("chosen") or []]
        #: the settings that clients were told last, while a process tells those that it begins
        #: with; None: clients were told all of `shown`.
        self._told: Json | None = None
        #: choices that were forgotten, of which the user was not told yet what took their place.
        self._given_up: list[Choice] = []

    @property
    def chosen(self) -> list[tuple[str, Json]]:
        """The requests that a later process is sent, method and parameters, in order."""
        return [(choice.method, choice.params) for choice in self._choices]

    def note_result(self, result: Json) -> None:
        """Note the settings in the agent's answer to `session/new`, `load` or `resume`."""
        self._show({key: result[key] for key in _SHOWN if result.get(key) is not None})

    def note_update(self, update: Json, *, announced: bool = True) -> None:
        """Note a mode or options that the agent changed by itself.

        `announced`: False while a process that is being given the session tells its defaults.
        """
        match update.get("sessionUpdate"):
            case protocol.MODE_UPDATE:
                mode = _mode(update)
                self._set_current("modes", mode, update)
                if announced and isinstance(mode, str):
                    self._announce_mode(mode)
            case protocol.OPTIONS_UPDATE:
                before = options.values(self.shown)
                self._show({"configOptions": update.get("configOptions")})
                if announced:
                    self._announce_options(before)

    def note_choice(self, method: str, params: object, result: object) -> None:
        """Note a client's setting that the agent has confirmed."""
        if not isinstance(params, dict) or options.kind(method, params) is None:
            return
        kept = without(params, "sessionId")
        self._put(Choice(method, kept))
        before = options.values(self.shown)
        if self._note_confirmed(method, kept, result):
            self._announce_options(before, besides=kept.get("configId"))
        if self._told is not None and method == SET_MODE and "modes" in self.shown:
            self._told["modes"] = self.shown["modes"]  # the answer tells it

    def forget(self, method: str, params: object) -> None:
        """Forget the choice that this request replaces: no process can confirm the new value."""
        kind = options.kind(method, params) if isinstance(params, dict) else None
        if kind is not None and (choice := self._find(kind)):
            self._drop(kind)
            self._given_up.append(choice)

    def take_given_up(self) -> list[tuple[str, object, object]]:
        """Return the forgotten choices whose value was not restored: name, old value, value now.

        To be called when the process that has the session has told its values.
        """
        given_up, self._given_up = self._given_up, []
        now = [options.current(self.shown, each.method, each.params) for each in given_up]
        return [
            (each.name, each.value, value)
            for each, value in zip(given_up, now, strict=True)
            if self._find(each.kind) is None and value != each.value
        ]

    async def restore(
        self, link: Link, coming: Iterable[tuple[str, Any]], told: Json | None = None
    ) -> None:
        """Set the user's choices in a new process, except those that `coming` requests set anyway.

        `told`: what the process has just said of the settings that it begins with. Raises Refused:
        then the prompt must not run.
        """
        replaced = [options.kind(method, p) for method, p in coming if isinstance(p, dict)]
        for choice in list(self._choices):
            begins_with = options.current(told or {}, choice.method, choice.params)
            as_announced = choice.announced and choice.value == begins_with
            if choice.kind not in replaced and not as_announced:
                await self._set_again(link, choice)

    async def _set_again(self, link: Link, choice: Choice) -> None:
        params = {**choice.params, "sessionId": link.agent_session_id}
        try:
            result = await link.ask(choice.method, params)
        except RpcError as exc:
            if choice.announced and exc.code == ErrorCode.METHOD_NOT_FOUND:
                return  # the agent alone changes it
            option = f"{choice.name!r} to " if choice.method == SET_CONFIG_OPTION else ""
            why = f"the agent would not set {option}{choice.value!r} again: {exc.message}"
            raise Refused(why, permanent=False) from exc
        self._note_confirmed(choice.method, choice.params, result)

    # --- what a process says of them while it is given the session -----------------------------

    def repeats(self, update: Json) -> bool:
        """Return True for a mode or options that clients are shown already."""
        match update.get("sessionUpdate"):
            case protocol.MODE_UPDATE:
                held = self.shown.get("modes")
                return isinstance(held, dict) and held.get("currentModeId") == _mode(update)
            case protocol.OPTIONS_UPDATE:
                return bool(self.shown.get("configOptions") == update.get("configOptions"))
        return False

    def tells_later(self, update: Json) -> bool:
        """Return True if `take_news` will tell the clients what this update has changed."""
        kind = update.get("sessionUpdate")
        has_modes = isinstance(self.shown.get("modes"), dict)
        return kind == protocol.OPTIONS_UPDATE or (kind == protocol.MODE_UPDATE and has_modes)

    def hush(self) -> None:
        """Remember what clients were told, until `take_news`, while a process is given the session.

        The process begins with its defaults, which nobody needs to see.
        """
        if self._told is None:
            self._told = dict(self.shown)

    def take_news(self) -> list[Json]:
        """Return the updates for what has changed since `hush`."""
        told, self._told = self._told, None
        return self.news(self.shown if told is None else told)

    def news(self, known: Json) -> list[Json]:
        """Return the updates for all that differs from `known`, an earlier `shown`."""
        updates: list[Json] = []
        now, modes = self.shown.get("configOptions"), self.shown.get("modes")
        if now is not None and now != known.get("configOptions"):
            updates.append({"sessionUpdate": protocol.OPTIONS_UPDATE, "configOptions": now})
        mode = modes.get("currentModeId") if isinstance(modes, dict) else None
        before = known.get("modes")
        if isinstance(before, dict) and mode and mode != before.get("currentModeId"):
            updates.append({"sessionUpdate": protocol.MODE_UPDATE, "currentModeId": mode})
        return updates

    # --- what the agent announces --------------------------------------------------------------

    def _announce_mode(self, mode: str) -> None:
        """Put the mode to which the agent has changed in the place of the user's choice."""
        known = options.available(self.shown, SET_MODE)
        if SET_MODE in {choice.method for choice in self._choices} or known is not None:
            self._announce(Choice(SET_MODE, {}), mode, known)
        for option in options.of_category(self.shown, "mode"):
            if self._find(option.kind):
                self._announce(Choice(SET_CONFIG_OPTION, option.params), mode, option.values)

    def _announce_options(self, before: Json, besides: object = None) -> None:
        """Put the options that the agent has changed in the place of the user's choices.

        `before`: the values until now, by id; `besides`: the one that the client has just set.
        """
        found = {option.id: option for option in options.read(self.shown)}
        for option in found.values():
            chosen = self._find(option.kind) is not None
            changed = option.id in before and before[option.id] != option.value
            if option.id != besides and (chosen or changed):
                self._announce(Choice(SET_CONFIG_OPTION, option.params), option.value, None)
            method = options.BY_CATEGORY.get(option.category)
            if method and self._find(method):
                known = options.available(self.shown, method)
                self._announce(Choice(method, {}), option.value, known)
        for choice in list(self._choices):
            if choice.method == SET_CONFIG_OPTION and choice.params["configId"] not in found:
                self._drop(choice.kind)

    def _announce(self, choice: Choice, value: object, known: list[object] | None) -> None:
        """Replace a choice by the announced value, or drop it if nobody could set that one.

        `known`: the values that can be set, None if any can.
        """
        chosen = self._find(choice.kind)
        if chosen and chosen.value == value:
            return
        if value is None or (known is not None and value not in known):
            self._drop(choice.kind)
        else:
            self._put((chosen or choice).announce(value))

    # --- what is kept --------------------------------------------------------------------------

    def _note_confirmed(self, method: str, params: Json, result: object) -> bool:
        """Note a value that the agent has confirmed; returns True if it told all options too."""
        if method == SET_MODE:
            self._set_current("modes", params.get("modeId"), result)
        elif method == SET_MODEL:
            self._set_current("models", params.get("modelId"), result)
        if isinstance(result, dict) and isinstance(result.get("configOptions"), list):
            self._show({"configOptions": result["configOptions"]})
            return True
        return False

    def _set_current(self, key: str, value: object, said: object) -> None:
        """Note the mode or model that is in force now.

        `said`: the agent's update or answer; its `_meta` takes the place of that which came with
        the value before.
        """
        held = self.shown.get(key)
        if isinstance(value, str) and isinstance(held, dict):
            name = "currentModeId" if key == "modes" else "currentModelId"
            meta = said.get("_meta") if isinstance(said, dict) else None
            if meta is None and held.get(name) == value:
                meta = held.get("_meta")
            rest = without(held, "_meta")
            self._show({key: {**rest, name: value, **({} if meta is None else {"_meta": meta})}})

    def _find(self, kind: object) -> Choice | None:
        return next((choice for choice in self._choices if choice.kind == kind), None)

    def _put(self, choice: Choice) -> None:
        self._choices = [each for each in self._choices if each.kind != choice.kind]
        self._choices.append(choice)
        self._keep_choices()

    def _drop(self, kind: object) -> None:
        if self._find(kind):
            self._choices = [each for each in self._choices if each.kind != kind]
            self._keep_choices()

    def _keep_choices(self) -> None:
        kept = [[each.method, each.params, each.announced] for each in self._choices]
        self._keep("chosen", kept)

    def _show(self, changes: Json) -> None:
        shown = {**self.shown, **changes}
        if shown != self.shown:
            self.shown = shown
            self._keep("shown", shown)

    def _keep(self, key: str, value: object) -> None:
        try:
            self._journal.set(key, value)
        except JournalError as exc:
            event("journal.failed", what=exc)


def _mode(update: Json) -> object:
    return update.get("currentModeId")
