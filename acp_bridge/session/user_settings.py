"""Keeps a session's mode and config options: what was shown of them, and what the user chose.

What the user chose and the agent confirmed is set again in every later process, in order,
before the next prompt (invariant R9); it is kept in the journal for the next bridge. Everything
here has the agent's form: what a client can't take is left out where it leaves for that client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from acp_bridge import protocol
from acp_bridge.agents.link import Link
from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.log import event
from acp_bridge.protocol import SET_CONFIG_OPTION, SET_MODE, Json
from acp_bridge.session.opening import Refused
from acp_bridge.wire.jsonrpc import RpcError

_SHOWN = ("modes", "configOptions")


class UserSettings:
    """The settings of one session."""

    def __init__(self, journal: SessionJournal) -> None:
        """Read what another bridge kept. Raises JournalError."""
        self._journal = journal
        #: `modes` and `configOptions` as the agent told them last.
        self.shown: Json = journal.get("shown") or {}
        #: confirmed requests, method and parameters without the session's id, in order.
        self.chosen: list[tuple[str, Json]] = [
            (method, params) for method, params in journal.get("chosen") or []
        ]

    def note_result(self, result: Json) -> None:
        """Take the agent's answer to `session/new`, `load` or `resume`."""
        self._show({key: result[key] for key in _SHOWN if result.get(key) is not None})

    def note_update(self, update: Json) -> None:
        """Take a mode or options that the agent changed by itself."""
        match update.get("sessionUpdate"):
            case protocol.MODE_UPDATE:
                self._set_mode(update.get("currentModeId"))
            case protocol.OPTIONS_UPDATE:
                self._show({"configOptions": update.get("configOptions")})

    def note_choice(self, method: str, params: object, result: object) -> None:
        """Take a request of the client that the agent has confirmed."""
        if not isinstance(params, dict) or (kind := _kind(method, params)) is None:
            return
        kept = {key: value for key, value in params.items() if key != "sessionId"}
        self.chosen = [each for each in self.chosen if _kind(*each) != kind]
        self.chosen.append((method, kept))
        if method == SET_MODE:
            self._set_mode(kept.get("modeId"))
        elif isinstance(result, dict) and "configOptions" in result:
            self._show({"configOptions": result["configOptions"]})
        self._keep("chosen", self.chosen)

    def forget(self, method: str, params: object) -> None:
        """Forget a choice: the user wants another value, and no process can confirm it."""
        kind = _kind(method, params) if isinstance(params, dict) else None
        if kind is not None:
            self.chosen = [each for each in self.chosen if _kind(*each) != kind]
            self._keep("chosen", self.chosen)

    async def restore(self, link: Link, coming: Iterable[tuple[str, Any]]) -> None:
        """Set again what was chosen, except what the `coming` requests set anyway.

        Raises Refused: then the prompt must not run.
        """
        replaced = {_kind(method, params) for method, params in coming if isinstance(params, dict)}
        for method, params in list(self.chosen):
            if _kind(method, params) in replaced:
                continue
            try:
                result = await link.ask(method, {**params, "sessionId": link.agent_session_id})
            except RpcError as exc:
                what = params.get("modeId") or params.get("configId")
                why = f"the agent would not set {what!r} again: {exc.message}"
                raise Refused(why, permanent=False) from exc
            self.note_choice(method, params, result)

    def news(self, known: Json) -> list[Json]:
        """Return the updates that tell a client what differs from `known`, an earlier `shown`."""
        updates: list[Json] = []
        options, modes = self.shown.get("configOptions"), self.shown.get("modes")
        if options is not None and options != known.get("configOptions"):
            updates.append({"sessionUpdate": protocol.OPTIONS_UPDATE, "configOptions": options})
        mode = modes.get("currentModeId") if isinstance(modes, dict) else None
        before = known.get("modes")
        if isinstance(before, dict) and mode and mode != before.get("currentModeId"):
            updates.append({"sessionUpdate": protocol.MODE_UPDATE, "currentModeId": mode})
        return updates

    def _set_mode(self, mode: object) -> None:
        modes = self.shown.get("modes")
        if isinstance(mode, str) and isinstance(modes, dict):
            self._show({"modes": {**modes, "currentModeId": mode}})

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


def _kind(method: str, params: Json) -> tuple[str, object] | None:
    """Return what a request sets, or None; a later one of the same kind replaces it."""
    if method == SET_MODE:
        return method, None
    if method == SET_CONFIG_OPTION and isinstance(params.get("configId"), str):
        return method, params["configId"]
    return None
