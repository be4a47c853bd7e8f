"""The differences of the two versions of ACP that matter when a connection drops. Sans-IO."""

from __future__ import annotations

from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.history import attaches_whole
from acp_bridge.core.protocol import (
    AFTER,
    HEARS_ACCEPTED,
    HEARS_STATE,
    PROMPT_KEY,
    REPLAY_AFTER,
    SESSION_LOAD,
    SESSION_RESUME,
    Json,
    after_of,
    as_object,
    can_own,
    own_meta,
    prompt_key,
    with_own_meta,
    without_machine,
)
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Message, RequestId
from acp_bridge.versions import v2

#: members of a request that opens a session, which are repeated to open it again.
_OPENED: Final = ("cwd", "additionalDirectories", "mcpServers")


def opening(session_id: str, opened: Json) -> Json:
    """Return the params that all requests have which open a session again.

    `opened`: the params of the request that opened it first.
    """
    given: Json = {name: opened[name] for name in _OPENED if name in opened}
    return {**given, "sessionId": session_id}


def _begins_anew(method: str, params: Json) -> bool:
    """Return True for an attach that shows the session from its beginning, not from a cursor."""
    return attaches_whole(method, params) and after_of(method, params) is None


class First:
    """Version 1: a prompt is answered at the end of its turn."""

    #: the members of an answer to `initialize` that matter to an editor.
    members: tuple[str, ...] = ("protocolVersion", "agentCapabilities", "agentInfo", "authMethods")
    #: a replay shows an editor its own words, though it was not shown them when it sent them.
    replays_own_words = True
    #: abilities of the bridge's own that are needed to know to which turn an answer belongs.
    needs: tuple[str, ...] = ()

    def abilities(self, params: Json) -> Json:
        """Return the abilities of the bridge's own that an `initialize` declares."""
        return own_meta(as_object(params.get("clientCapabilities")))

    def greeting(self, params: Json, own: Json) -> Json:
        """Return the params of `initialize` with `own` as the bridge's own abilities.

        Files and terminals of this machine are not offered to what runs elsewhere.
        """
        able = without_machine(as_object(params.get("clientCapabilities")))
        return {**params, "clientCapabilities": with_own_meta(able, own)}

    def can(self, result: Json, ability: str) -> bool:
        """Return True if the result of `initialize` declares an ability of the bridge's own."""
        return can_own(result.get("agentCapabilities"), ability)

    def key_of(self, params: Json) -> str | None:
        """Return the idempotency key in the params of a prompt, None if there is none."""
        return prompt_key(params)

    def keyed(self, params: Json, key: str) -> Json:
        """Return the params of a prompt with an idempotency key."""
        return with_own_meta(params, {**own_meta(params), PROMPT_KEY: key})

    def withdrawn(self, id: RequestId) -> Message:
        """Return the answer to a prompt that was stopped before it was sent."""
        return jsonrpc.response(id, {"stopReason": "cancelled"})

    def replays(self, method: str, params: Json) -> bool:
        """Return True for a request that replays a session from its beginning."""
        return method == SESSION_LOAD or _begins_anew(method, params)

    def cursor_in(self, method: str, params: Json) -> object:
        """Return the cursor that the editor itself names in a request to open a session."""
        return after_of(method, params)

    def after(self, session_id: str, opened: Json, cursor: object) -> tuple[str, Json]:
        """Return the request that replays a session from a cursor on; None: without a replay."""
        params = opening(session_id, opened)
        own = {} if cursor is None else {AFTER: cursor}
        return SESSION_RESUME, with_own_meta(params, own) if own else params

    def whole(self, session_id: str, opened: Json) -> tuple[str, Json] | None:
        """Return the request that replays a whole session, to be compared with what was shown.

        None for version 2, in which the two can't be compared.
        """
        return SESSION_LOAD, opening(session_id, opened)

    def begins(self, message: Message) -> str | None:
        """Return the id of the turn that the answer to a prompt begins; None if it ends one."""
        return None

    def ends_replay(self, update: Json) -> bool:
        """Return True for the update that marks the end of a replay."""
        return False

    def whole_words(self, update: Json) -> object:
        """Return the message id of an update that shows a whole user message; else None."""
        return None

    def is_state(self, update: Json) -> bool:
        """Return True for an update that says whether a turn runs."""
        return False

    def runs(self, update: Json) -> bool:
        """Return True if a state says that something runs."""
        return False

    def running(self) -> Json:
        """Return the update that says that a turn runs."""
        return {}

    def ends(self, update: Json) -> bool:
        """Return True for an update that ends a turn."""
        return False

    def end_of(self, turn: str, stands: Json) -> Json | None:
        """Return the update that ends a turn; None if it runs still.

        `stands`: the session's state, which names the turn that runs and the last one.
        """
        return None


class Second(First):
    """Version 2: a prompt is answered when its turn begins, and a state ends it."""

    members = ("protocolVersion", "capabilities", "info", "authMethods")
    replays_own_words = False
    needs = (HEARS_ACCEPTED, HEARS_STATE)

    def abilities(self, params: Json) -> Json:
        return own_meta(as_object(params.get("capabilities")))

    def greeting(self, params: Json, own: Json) -> Json:
        return {**params, "capabilities": with_own_meta(as_object(params.get("capabilities")), own)}

    def can(self, result: Json, ability: str) -> bool:
        return can_own(result.get("capabilities"), ability)

    def key_of(self, params: Json) -> str | None:
        key = params.get(v2.IDEMPOTENCY_KEY)
        return key if isinstance(key, str) else None

    def keyed(self, params: Json, key: str) -> Json:
        return {**params, v2.IDEMPOTENCY_KEY: key}

    def withdrawn(self, id: RequestId) -> Message:
        return jsonrpc.error(id, errors.cancelled())

    def replays(self, method: str, params: Json) -> bool:
        if method == SESSION_RESUME:
            return as_object(params.get(v2.REPLAY_FROM)).get("type") == v2.FROM_START
        return _begins_anew(method, params)

    def cursor_in(self, method: str, params: Json) -> object:
        place = as_object(params.get(v2.REPLAY_FROM))
        if method == SESSION_RESUME:
            return place.get("cursor") if place.get("type") == REPLAY_AFTER else None
        return after_of(method, params)

    def after(self, session_id: str, opened: Json, cursor: object) -> tuple[str, Json]:
        params = opening(session_id, opened)
        if cursor is not None:
            params[v2.REPLAY_FROM] = {"type": REPLAY_AFTER, "cursor": cursor}
        return SESSION_RESUME, params

    def whole(self, session_id: str, opened: Json) -> tuple[str, Json] | None:
        return None

    def begins(self, message: Message) -> str | None:
        turn = as_object(message.get("result")).get("messageId")
        return turn if isinstance(turn, str) else None

    def ends_replay(self, update: Json) -> bool:
        return update.get("sessionUpdate") == v2.REPLAY_COMPLETE

    def whole_words(self, update: Json) -> object:
        is_whole = update.get("sessionUpdate") == v2.USER_MESSAGE
        return update.get("messageId") if is_whole else None

    def is_state(self, update: Json) -> bool:
        return update.get("sessionUpdate") == v2.STATE_UPDATE

    def runs(self, update: Json) -> bool:
        return update.get("state") != v2.IDLE

    def running(self) -> Json:
        return {"sessionUpdate": v2.STATE_UPDATE, "state": v2.RUNNING}

    def ends(self, update: Json) -> bool:
        return self.is_state(update) and update.get("stopReason") is not None

    def end_of(self, turn: str, stands: Json) -> Json | None:
        runs, last = as_object(stands.get("turn")), as_object(stands.get("last"))
        if runs.get("promptId") == turn:
            return None
        told: Json = {"sessionUpdate": v2.STATE_UPDATE, "state": v2.IDLE}
        if last.get("promptId") != turn:
            return {**told, "stopReason": "end_turn"}
        if "error" in last:
            return {**told, "stopReason": v2.ERROR, "error": last["error"]}
        return {**told, "stopReason": last.get("stopReason") or "end_turn"}
