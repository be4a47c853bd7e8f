"""What a page's user does in one session: a client of the bridge that carries taps out.

Invariants
- A tap counts only for what its user saw: the prompt that ran, the question as it was shown, the
  queue as it stood. Anything else comes to nothing, and says why.
- A tap is decided only when the bridge has told all that is so now (`settled`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import (
    CANCELLED_PERMISSION,
    PROMPT_ID,
    ErrorCode,
    Json,
    as_object,
    objects,
    own_meta,
)
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.remote.page import taps
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest
from acp_bridge.sharing.bridge_client.permission_options import options_of, selected
from acp_bridge.sharing.bridge_client.sent import ConnectionLost
from acp_bridge.terminal.view.queue_rows import Row, moved, rows
from acp_bridge.terminal.view.settings_shown import SettingsShown
from acp_bridge.terminal.view.standing import standing

#: what a client that carries out taps, or shows them to a user, wants to be told.
ABILITIES: Final = dict.fromkeys(
    (acp.HEARS_STATE, acp.HEARS_QUEUE, acp.WHOLE_CALLS, acp.HAS_STOP, acp.TAKES_CURSORS), True
)
#: seconds for the answer to `initialize`, for other answers, and for a load, which may have to
#: start the agent.
_BEGINS: Final = 5.0
_PATIENCE: Final = 30.0
_LOADS: Final = 120.0
#: tool calls whose last decision is known.
_MOST_DECIDED: Final = 500


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """An open question; `number` counts those of this connection."""

    number: int
    key: str
    request: BridgeRequest

    @property
    def call_id(self) -> object:
        """The id of the tool call that the question is about."""
        return as_object(self.request.params.get("toolCall")).get("toolCallId")


class Hands:
    """The listener of a connection to the bridge that carries out taps in one session."""

    def __init__(
        self,
        session_id: str,
        login: str,
        *,
        asks: bool,
        gone: Callable[[Asked], None] = lambda asked: None,
    ) -> None:
        """`login`: its name. `asks`: it may answer questions. `gone` is told of each that ends."""
        self.session_id = session_id
        self.settings = SettingsShown()
        self.rows: tuple[Row, ...] = ()
        self.state: Json = {}
        #: set once the bridge has told all, or the session could not be opened.
        self.settled = anyio.Event()
        self._login, self._asks, self._gone = login, asks, gone
        self._connection: Connection | None = None
        self._questions: dict[str, Asked] = {}
        self._asked = 0
        self._decided: dict[str, Json] = {}
        #: the ids of requests that the bridge has withdrawn after they were answered.
        self._too_late: set[object] = set()

    # -- its life

    async def open(self, connection: Connection, cwd: str, method: str, client: str | None) -> Json:
        """Initialize, and open the session by `method`; returns the answer.

        `client`: its name at the bridge. Raises RpcError, NoAnswer, ConnectionLost.
        """
        own = {**ABILITIES, acp.CLIENT_NAME: client} if client else dict(ABILITIES)
        if not self._asks:  # a question that it refused would be rejected, where it is asked alone
            own[acp.OWN_TURNS_ONLY] = True
        await connection.initialize("acp-bridge page", own=own, within=_BEGINS)
        about = {"sessionId": self.session_id, "cwd": cwd, "mcpServers": []}
        found = as_object(await connection.request(method, about, within=_LOADS))
        self.settings.opened(found)
        self._connection = connection
        return found

    async def settle(self) -> None:
        """Wait until the bridge has told all that it tells behind a load: taps count from now."""
        await self._told_all()
        self.settled.set()

    def end(self) -> None:
        """Note that the connection has ended, or never opened the session."""
        self._connection = None
        self.settled.set()

    @property
    def open_now(self) -> bool:
        """True while taps can be carried out here."""
        return self._connection is not None and self.settled.is_set()

    # -- what the bridge sends

    def on_notification(self, method: str, params: Any) -> None:
        """Note the state, the queue, a setting, a decision or a withdrawal, as it is told."""
        params = as_object(params)
        if method == acp.CANCEL_REQUEST:
            self._too_late.add(params.get("requestId"))
        if params.get("sessionId") != self.session_id:
            return
        match method:
            case acp.SESSION_STATE:
                self.state = params
            case acp.QUEUE:
                self.rows = rows(params)
            case acp.SESSION_UPDATE:
                self.note_update(params)

    def note_update(self, params: Json) -> bool:
        """Note an update; returns True if the mode or the model has changed."""
        update, decided = params.get("update"), own_meta(params).get("decided")
        if not isinstance(update, dict):
            return False
        call_id = update.get("toolCallId")
        if isinstance(decided, dict) and isinstance(call_id, str):
            self._decided.pop(call_id, None)
            self._decided[call_id] = decided
            while len(self._decided) > _MOST_DECIDED:
                del self._decided[next(iter(self._decided))]
        return bool(self.settings.note_update(update))

    def on_request(self, request: BridgeRequest) -> None:
        """Take a question. Raises RpcError for another request."""
        self.ask(request)

    def ask(self, request: BridgeRequest) -> Asked | None:
        """Take a question and return it; None for one without options, which is answered here.

        Raises RpcError for any other request, and if the page may not answer.
        """
        if request.method != acp.REQUEST_PERMISSION or not self._asks:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"{request.method} is not done here")
        if not options_of(request.params):
            request.answer(CANCELLED_PERMISSION)
            return None
        self._asked += 1
        key = taps.question_key(request.params, f"{id(self)} {self._asked}")
        found = self._questions[key] = Asked(self._asked, key, request)
        return found

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Forget a question that was settled elsewhere, or is asked again in other words."""
        request.give_up()
        for asked in [each for each in self._questions.values() if each.request is request]:
            self._forget(asked)

    async def room(self) -> None:
        """Return at once: nothing here is slow."""

    # -- taps

    async def apply(self, tap: Json) -> str | None:
        """Carry a tap out; returns None, or a sentence that says why it came to nothing.

        Raises RpcError, NoAnswer, ConnectionLost.
        """
        tap = self._in_full(tap)
        if standing(self.state).closed:
            return taps.CLOSED
        match tap:
            case {"do": "stop", "prompt": str(seen)}:
                return await self._stop(seen)
            case {"do": "answer", "question": str(key)}:
                return await self._answer(key, tap)
            case {"do": "drop", "prompt": str(prompt)}:
                return await self._drop(prompt)
            case {"do": "move", "prompt": str(prompt), "before": str(before)}:
                return await self._move(prompt, before)
            case {"do": "set", "kind": str(kind), "choice": str(choice)}:
                return await self._set(kind, choice, tap.get("was"))
            case {"do": "run", "prompts": str(seen)} if seen != taps.unsent_key(self.rows):
                return taps.UNSENT_CHANGED
        return None

    def _in_full(self, tap: Json) -> Json:
        """Return a tap of an earlier version's page, which may still be open, as one of today.

        Such a page does not keep its taps: what it shows is what was told over this line.
        """
        match tap:
            case {"do": "stop"} if "prompt" not in tap:
                return {**tap, "prompt": taps.stop_key(self.state)}
            case {"do": "answer", "question": number}:
                known = [
                    each for each in self._questions.values() if f"{each.number}" == f"{number}"
                ]
                return {**tap, "question": known[0].key} if known else tap
            case {"do": "move", "prompt": prompt, "by": by} if "before" not in tap:
                to = moved(self.rows, prompt, number_of(by)) or {}
                return {**tap, "before": to["before"] or ""} if to else tap
            case {"do": "set", "kind": str(kind), "value": value} if "choice" not in tap:
                choices, at = self.settings.choices(kind), number_of(value)
                values = choices.values if choices else ()
                return {**tap, "choice": values[at].id} if 0 <= at < len(values) else tap
        return tap

    async def _stop(self, seen: str) -> str | None:
        ended = taps.WORK_ENDED if seen.startswith("work:") else taps.TURN_ENDED
        if (what := taps.stopped_by(seen, self.state)) is None:
            return ended
        result = await self._request(acp.CANCEL_TURN, what)
        return None if result.get("cancelled") is True else ended

    async def _answer(self, key: str, tap: Json) -> str | None:
        asked = self._questions.get(key)
        if asked is None:
            return self._why_not_asked(tap)
        options, at = options_of(asked.request.params), number_of(tap.get("option"))
        if not 0 <= at < len(options):
            return taps.NOT_OFFERED
        kind = options[at].get("kind")
        about = {"turn": taps.stop_key(self.state), "call": asked.call_id, "kind": kind}
        asked.request.answer(selected(options[at]["optionId"]))
        self._forget(asked)
        await self._told_all()
        late = asked.request.call.id in self._too_late  # another's answer came first
        return self._why_not_asked(about) if late else None

    def _why_not_asked(self, tap: Json) -> str | None:
        call_id, turn = tap.get("call"), taps.stop_key(self.state)
        if call_id and any(each.call_id == call_id for each in self._questions.values()):
            return taps.CHANGED
        decided = self._decided.get(call_id, {}) if isinstance(call_id, str) else {}
        same = bool(turn) and turn == tap.get("turn")
        return taps.why_not_asked(decided, self._login, tap.get("kind"), same_turn=same)

    async def _drop(self, prompt: str) -> str | None:
        if all(row.prompt_id != prompt for row in self.rows):
            return taps.NOT_WAITING
        await self._request(acp.QUEUE_DROP, {PROMPT_ID: prompt})
        return None

    async def _move(self, prompt: str, before: str) -> str | None:
        """Move a prompt before another one; `before` is empty for the last place of its list."""
        row = next((each for each in self.rows if each.prompt_id == prompt), None)
        if row is None:
            return taps.NOT_WAITING
        same = [each.prompt_id for each in self.rows if each.held == row.held]
        if before and before not in same:
            return taps.QUEUE_CHANGED
        if [*same, ""][same.index(prompt) + 1] == before:
            return None
        await self._request(acp.QUEUE_MOVE, {PROMPT_ID: prompt, "before": before or None})
        return None

    async def _set(self, kind: str, choice: str, was: object) -> str | None:
        """Set the mode or the model; `was`: what it was when the user chose."""
        choices = self.settings.choices(kind)
        if choices is None or all(each.id != choice for each in choices.values):
            return taps.SETTING_UNKNOWN.format(kind=kind) if choices else None
        if choices.current == choice:
            return None
        if was is not None and choices.current != was:
            return taps.SETTING_CHANGED.format(kind=kind)
        method, params = self.settings.chosen(kind, choice)
        self.settings.was_set(kind, choice, await self._request(method, params))
        return None

    # -- internal

    async def _request(self, method: str, params: Json) -> Json:
        if self._connection is None:
            raise ConnectionLost
        about = {"sessionId": self.session_id, **params}
        return as_object(await self._connection.request(method, about, within=_PATIENCE))

    async def _told_all(self) -> None:
        """Wait until all is read that the bridge has sent so far: an answer comes behind that."""
        await self._request(acp.QUEUE_LIST, {})

    def _forget(self, asked: Asked) -> None:
        if self._questions.pop(asked.key, None) is not None:
            self._gone(asked)


async def is_live(connection: Connection, session_id: str) -> bool:
    """Return True if a bridge of this data folder has the session open.

    Raises RpcError, NoAnswer, ConnectionLost.
    """
    told = as_object(await connection.request(acp.LIVE, {}, within=_PATIENCE))
    return any(row.get("sessionId") == session_id for row in objects(told.get("sessions")))


def number_of(value: Any) -> int:
    """Return the integer that a page has sent, as a number or a text; -1 for anything else."""
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return -1
