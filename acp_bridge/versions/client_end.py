"""The bridge's end of a connection to a client that speaks version 2.

The bridge speaks version 1. The client's messages are translated for it, and its for the client.

- A prompt is answered when its turn begins, with the id of its message; the bridge's answer at the
  end of the turn becomes the one state `idle` with a stop reason (invariant X3).
- A prompt that never had a turn is withdrawn: -32800, or the error that says why.
- The client gets no word of version 1, and nothing of the bridge's own that it did not ask for
  (invariant X1).
- A Stop withdraws the client's own prompts that have not begun, and is then the bridge's Stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from acp_bridge.core import errors, protocol
from acp_bridge.core.history import attaches_whole
from acp_bridge.core.protocol import (
    Json,
    LiveState,
    as_object,
    kind_of,
    meta_of,
    objects,
    own_meta,
    without,
    without_said,
)
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import UNSET, Err, Message, Ok, RequestId, RpcError, read_answer
from acp_bridge.versions import greeting_to_v2, requests_to_v1, v2
from acp_bridge.versions.background_to_v2 import Background
from acp_bridge.versions.children_to_v2 import Children, is_told_anew
from acp_bridge.versions.settings_to_v2 import Settings, servers
from acp_bridge.versions.update_to_v2 import ToV2, tool_call

#: methods that a client of version 2 has no more.
_GONE: Final = frozenset(
    {
        *(protocol.AUTHENTICATE, protocol.LOGOUT, protocol.SESSION_LOAD),
        *(protocol.SET_MODE, protocol.SET_MODEL),
    }
)
#: by each notification that a client has to ask for, the ability of `initialize` that does so.
_ASKED_FOR: Final = {
    protocol.ACCEPTED: protocol.HEARS_ACCEPTED,
    protocol.SESSION_STATE: protocol.HEARS_STATE,
}
#: the method and error code of closing an unknown session: in version 2 no error.
_CLOSED_ALREADY: Final = (protocol.SESSION_CLOSE, protocol.ErrorCode.RESOURCE_NOT_FOUND)
#: states of a session in which its foreground works.
_WORKS: Final = frozenset({LiveState.WORKING, LiveState.PERMISSION})


@dataclass(slots=True)
class _Asked:
    """A request of the client that the bridge has not answered."""

    id: RequestId
    method: str
    params: Json
    #: the method and parameters that the bridge got.
    sent: tuple[str, Json]
    #: the id that the bridge gave the prompt when it accepted it.
    prompt_id: str = ""
    #: the turn of the prompt has begun: the request is answered.
    begun: bool = False
    #: the prompt was sent before under the same key, and its turn has ended.
    is_over: bool = False
    #: the client has asked to be shown the session from its beginning since.
    replayed: bool = False


@dataclass(slots=True, eq=False)
class _Session:
    """What the client was told of one session."""

    settings: Settings
    updates: ToV2
    #: the state that the client was told last.
    state: str = v2.IDLE
    #: the id of the prompt whose turn runs.
    turn: str = ""
    #: the session's state as the bridge told it last, and whether its subagents work.
    word: object = None
    children_work: bool = False
    #: the ids of the last turns whose end the client was told.
    ended: list[str] = field(default_factory=list)
    background: Background = field(default_factory=Background)


class ClientEnd:
    """Translates between one client of version 2 and the bridge, each message at once."""

    def __init__(self, to_client: Callable[[Message], None], ids: str) -> None:
        """`to_client` sends a message; `ids`: the prefix of message ids that are made here."""
        self._send = to_client
        self._ids = ids
        self._numbers = count(1)
        self._asked: dict[RequestId, _Asked] = {}
        self._sessions: dict[object, _Session] = {}
        self._children = Children()
        #: abilities of the bridge's own that the client itself declared.
        self._own: Json = {}
        #: the methods of the bridge's own requests that the client has not answered.
        self._questions: dict[RequestId, str] = {}

    # --- from the client -----------------------------------------------------------------------

    def from_client(self, message: Message) -> list[Message]:
        """Return the client's message as messages for the bridge; none if it is refused here."""
        if "method" not in message:
            return [self._answer(message)]
        if "id" not in message:
            return self._notification(message)
        try:
            request = self._request(message)
            if message["method"] != protocol.SESSION_CLOSE:
                return [request]
            closed = as_object(request.get("params")).get("sessionId")
            return [*self._withdrawals(closed), request]
        except RpcError as refusal:
            self._send(jsonrpc.error(message["id"], refusal))
            return []

    def _request(self, message: Message) -> Message:
        method, given = message["method"], message.get("params", UNSET)
        params = given if isinstance(given, dict) else {}
        if any(_same(each.id, message["id"]) for each in self._asked.values() if not each.begun):
            raise errors.refused("the id is in flight already")
        sent = self._translated(method, params)
        asked = _Asked(message["id"], method, params, sent)
        inner = f"v2:{next(self._numbers)}"
        self._asked[inner] = asked
        if protocol.after_of(*sent) is not None:
            self._known(params.get("sessionId")).updates.replays = True
        elif sent[0] == protocol.SESSION_LOAD or attaches_whole(method, params):
            session_id = params.get("sessionId")
            self._known(session_id).updates.begin_replay()
            self._forget_children(session_id)
            for each in self._asked.values():
                each.replayed |= each.params.get("sessionId") == session_id
        is_object = isinstance(given, dict) or sent[1]
        return jsonrpc.request(inner, sent[0], sent[1] if is_object else given)

    def _translated(self, method: str, params: Json) -> tuple[str, Json]:
        """Return a request's method and parameters in version 1; raises RpcError if it has none."""
        if method in _GONE:
            raise errors.unknown_method(method)
        match method:
            case protocol.INITIALIZE:
                return method, greeting_to_v2.for_bridge(params)
            case v2.AUTH_LOGIN:
                return protocol.AUTHENTICATE, params
            case v2.AUTH_LOGOUT:
                return protocol.LOGOUT, params
            case protocol.SESSION_NEW | protocol.SESSION_FORK:
                return method, {**params, "mcpServers": servers(params.get("mcpServers"))}
            case protocol.SESSION_RESUME:
                return requests_to_v1.resume(params)
            case protocol.SESSION_PROMPT:
                return method, requests_to_v1.prompt(params)
            case protocol.SET_CONFIG_OPTION:
                return self._known(params.get("sessionId")).settings.setting(params)
            case v2.CANCEL_TOOL_CALL | v2.CANCEL_TERMINAL:
                return protocol.CANCEL_ITEM, params
        return method, params

    def _notification(self, message: Message) -> list[Message]:
        method, params = message["method"], as_object(message.get("params"))
        if method == protocol.CANCEL_REQUEST:
            wanted = params.get("requestId", UNSET)
            return [
                jsonrpc.notification(method, {**params, "requestId": inner})
                for inner, asked in self._asked.items()
                if _same(asked.id, wanted) and not asked.begun
            ]
        if method != protocol.SESSION_CANCEL:
            return [message]
        bound, asked = own_meta(params).get(protocol.PROMPT_KEY), self._asked.values()
        if bound is None or any(each.params.get(v2.IDEMPOTENCY_KEY) == bound for each in asked):
            return [*self._withdrawals(params.get("sessionId")), message]
        return [message]

    def _withdrawals(self, session_id: object) -> list[Message]:
        """Return a `$/cancel_request` for each prompt of the client's that has no turn yet."""
        return [
            jsonrpc.notification(protocol.CANCEL_REQUEST, {"requestId": inner})
            for inner, asked in self._asked.items()
            if asked.method == protocol.SESSION_PROMPT
            and not asked.begun
            and asked.params.get("sessionId") == session_id
        ]

    def _answer(self, message: Message) -> Message:
        """Return the client's answer to a question; one unknown to version 1 becomes a cancel."""
        question = self._questions.pop(message.get("id"), "")
        result = message.get("result")
        if question == protocol.REQUEST_PERMISSION and isinstance(result, dict):
            match result.get("outcome"):
                case {"outcome": "selected" | "cancelled"}:
                    return message
            return {**message, "result": protocol.CANCELLED_PERMISSION}
        known = ("accept", "decline", "cancel")
        asks = question == protocol.CREATE_ELICITATION and result is not None
        if asks and as_object(result).get("action") not in known:
            return {**message, "result": {"action": "cancel"}}
        return message

    # --- from the bridge -----------------------------------------------------------------------

    def from_bridge(self, message: Message) -> bool:
        """Send the client a message of the bridge in version 2.

        Returns True, and sends nothing, if the caller may pass the message on as it is.
        """
        method = message.get("method")
        params = as_object(message.get("params"))
        if method == protocol.SESSION_UPDATE:
            return self._update(params)
        if method is None:
            self._answered(message)
            return False
        if "id" in message:
            self._ask(message, method, params)
            return False
        if method == protocol.ACCEPTED:
            params = self._accepted(params)
        elif method == protocol.SESSION_STATE:
            self._stands(params)
        needed = _ASKED_FOR.get(method)
        if needed is None or self._own.get(needed):
            self._send({**message, "params": params} if "params" in message else message)
        return False

    def _ask(self, message: Message, method: str, params: Json) -> None:
        """Send the client a request of the bridge in version 2."""
        self._questions[message["id"]] = method
        if method == protocol.REQUEST_PERMISSION:
            params = _permission(params)
        elif method == protocol.CREATE_ELICITATION and "requestId" in params:
            asked = self._asked.get(params["requestId"])
            params = {**params, "requestId": asked.id if asked else params["requestId"]}
        self._send({**message, "params": params} if "params" in message else message)

    def _update(self, params: Json) -> bool:
        if kind_of(params) == protocol.SUBAGENT_UPDATE:
            self._told_of_child(params)
            return False
        updates = self._session(params.get("sessionId")).updates.updates(params)
        if len(updates) == 1 and updates[0] is params:
            return True
        for each in updates:
            self._send(jsonrpc.notification(protocol.SESSION_UPDATE, each))
        return False

    def _told_of_child(self, params: Json) -> None:
        """Send the client a `subagent_update`, and the subagent's state in its own session."""
        asked = self._asked.values()
        anew = [each.params.get("sessionId") for each in asked if is_told_anew(each.method)]
        for told in self._children.told(params, anew):
            self._session(told["sessionId"]).updates.end_message()
            self._send(jsonrpc.notification(protocol.SESSION_UPDATE, told))
        session_id = self._children.session_of(params.get("sessionId"))
        session = self._session(session_id)
        session.children_work = self._children.work(session_id)
        if session.word == LiveState.WORKING and session_id not in anew:
            self._say_state(session_id, session, _state_of({"state": session.word}, session))

    def _forget_children(self, session_id: object) -> None:
        """Forget what the client was shown of the subagents of a session."""
        for each in self._children.forget(session_id):
            self._sessions.pop(each, None)

    # --- answers -------------------------------------------------------------------------------

    def _answered(self, message: Message) -> None:
        asked = self._asked.pop(message.get("id"), None)
        if asked is None:  # the answer to a line that was no request
            self._send(message)
            return
        answer = read_answer(message)
        if asked.method == protocol.SESSION_PROMPT:
            self._prompt_ended(asked, answer)
            return
        match answer:
            case Ok(result):
                told = self._result(asked, as_object(result))
                self._send(jsonrpc.response(asked.id, result if told is None else told))
            case Err(error) if (asked.method, error.code) == _CLOSED_ALREADY:
                self._send(jsonrpc.response(asked.id, {}))
            case Err(error):
                self._fail(asked, error)

    def _fail(self, asked: _Asked, error: RpcError) -> None:
        """Answer a request with an error, which names the session if that is not known."""
        told = error
        if error.code == protocol.ErrorCode.RESOURCE_NOT_FOUND and "sessionId" in asked.params:
            data = {**as_object(error.data), "sessionId": asked.params["sessionId"]}
            told = RpcError.received(error.code, error.message, data)
        self._send(jsonrpc.error(asked.id, told))

    def _result(self, asked: _Asked, result: Json) -> Json | None:
        """Return the result of a request in version 2; None if it is the same in both."""
        session_id = asked.params.get("sessionId")
        match asked.method:
            case protocol.INITIALIZE:
                self._own = own_meta(as_object(asked.params.get("capabilities")))
                return greeting_to_v2.for_client(result)
            case v2.AUTH_LOGIN | v2.AUTH_LOGOUT:
                return {key: value for key, value in result.items() if key == "_meta"}
            case protocol.SESSION_NEW | protocol.SESSION_FORK:
                session = self._session(result.get("sessionId"))
                session.settings.take(result)
                told = {"sessionId": result.get("sessionId")}
                return {**told, **_opened(session, result)}
            case protocol.SESSION_RESUME | protocol.ATTACH:
                session = self._session(session_id)
                session.settings.take(result)
                self._end_replay(session_id, session, asked, result)
                return _opened(session, result)
            case protocol.SET_CONFIG_OPTION:
                session = self._known(session_id)
                session.settings.note_set(*asked.sent, result)
                return {**meta_of(result), "configOptions": session.settings.shown}
            case protocol.SESSION_CLOSE | protocol.SESSION_DELETE:
                self._left(session_id)
        return None

    def _left(self, session_id: object) -> None:
        """Forget a session that was closed or deleted; a turn that runs ends as cancelled."""
        if session := self._sessions.get(session_id):
            if session.turn:
                self._end_turn(session_id, session, session.turn, {"stopReason": "cancelled"})
            del self._sessions[session_id]
        self._forget_children(session_id)

    def _end_replay(self, session_id: object, session: _Session, asked: _Asked, own: Json) -> None:
        """Send the end of a replay and the session's state, before `asked` is answered.

        `own`: the result that the bridge gave, whose `_meta` has the state.
        """
        session.updates.end_message()
        session.updates.replays = False
        replayed = asked.params.get(v2.REPLAY_FROM) is not None
        whole = replayed or attaches_whole(asked.method, asked.params)
        for child_id, update in self._children.told_anew(session_id, whole=whole):
            self._say(child_id, update)
        if whole:
            self._say(session_id, {"sessionUpdate": v2.REPLAY_COMPLETE})
        stands = as_object(own_meta(own).get("state"))
        turn, session.word = self._turn(session_id, session, stands), stands.get("state")
        self._end_other(session_id, session, turn, stands)
        session.turn, session.background = turn, Background()
        for update in session.background.take(stands):
            self._say(session_id, update)
        self._say_standing(session_id, session, _state_of(stands, session))
        self._answer_begun(session_id, session, as_object(stands.get("turn")))

    # --- turns ---------------------------------------------------------------------------------

    def _accepted(self, params: Json) -> Json:
        """Note the id of an accepted prompt; returns `params` with the client's own request id."""
        asked = self._asked.get(params.get("requestId"))
        if asked is None:
            return params
        asked.prompt_id = str(params.get("promptId"))
        asked.is_over = params.get("ended") is True and params.get("begun") is True
        session_id = params.get("sessionId")
        session = self._known(session_id)
        if asked.prompt_id == session.turn:  # it was sent again, and runs
            shown_as = session.updates.shown_as(asked.params.get("prompt"))
            self._insert(session_id, asked, shown_as=shown_as)
        return {**params, "requestId": asked.id}

    def _stands(self, params: Json) -> None:
        """Take a session's state from the bridge: tell the client which turn began or ended."""
        session_id = params.get("sessionId")
        if (session := self._sessions.get(session_id)) is None:
            return
        for update in session.background.take(params):
            self._say(session_id, update)
        turn, session.word = self._turn(session_id, session, params), params.get("state")
        shown = session.updates.without_turn  # of a turn that follows at once: before this is told
        self._end_other(session_id, session, turn, params)
        if turn and turn != session.turn and turn not in session.ended:
            session.turn, session.updates.without_turn = turn, shown
            session.updates.end_message()
            self._say_state(session_id, session, v2.RUNNING)
            self._answer_begun(session_id, session, as_object(params.get("turn")))
        self._say_state(session_id, session, _state_of(params, session))
        if params.get("state") == LiveState.CLOSED and not session.turn:
            del self._sessions[session_id]
            self._forget_children(session_id)
        elif session.background.is_new:
            self._say_standing(session_id, session, session.state)

    def _turn(self, session_id: object, session: _Session, stands: Json) -> str:
        """Return the prompt id of the turn that runs; empty if none runs.

        A turn of the client's goes on while its prompt is not answered: hooks, and the turn of
        their feedback, which no client has sent, belong to it (invariant Q11).
        """
        turn = _turn_of(stands)
        is_mine = as_object(stands.get("turn")).get("mine") is True
        if turn and (not is_mine or self._own_prompts(turn)):
            return turn
        for asked in self._asked.values():
            is_here = asked.begun and asked.params.get("sessionId") == session_id
            if is_here and asked.prompt_id not in session.ended:
                return asked.prompt_id
        return turn

    def _own_prompts(self, prompt_id: str) -> list[_Asked]:
        """Return the client's unanswered requests that brought the prompt `prompt_id`."""
        return [each for each in self._asked.values() if each.prompt_id == prompt_id]

    def _answer_begun(self, session_id: object, session: _Session, turn: Json) -> None:
        """Answer the client's own requests for the prompt whose turn has begun.

        `turn`: the member `turn` of the session's state.
        """
        shown_as = session.updates.last_user_message if turn.get("edited") else ""
        for asked in self._own_prompts(session.turn) if session.turn else ():
            if not asked.begun:
                shown_as = shown_as or session.updates.begun_as(asked.params.get("prompt"))
                self._insert(session_id, asked, shown_as=shown_as)
                shown_as = shown_as or asked.prompt_id
        session.updates.without_turn = ()

    def _insert(self, session_id: object, asked: _Asked, *, shown_as: str = "") -> None:
        """Show the client its own words, and answer its prompt with the id of their message.

        `shown_as`: the id of a message that shows them already, or others in their place.
        """
        asked.begun = True
        message = shown_as or asked.prompt_id or f"{self._ids}p{next(self._numbers)}"
        if not shown_as:
            words = objects(asked.params.get("prompt"))
            self._known(session_id).updates.note_shown(words, message)
            told = {"sessionUpdate": v2.USER_MESSAGE, "messageId": message, "content": words}
            self._say(session_id, told)
        self._send(jsonrpc.response(asked.id, {"messageId": message}))

    def _prompt_ended(self, asked: _Asked, answer: Ok | Err) -> None:
        """Tell how a prompt's turn ended, from the bridge's answer, or answer it if it had none."""
        session_id = asked.params.get("sessionId")
        session = self._known(session_id)
        if asked.begun:
            if session.turn == asked.prompt_id:  # else the client has left, and may be back
                self._end_turn(session_id, session, asked.prompt_id, _end_of(answer))
            return
        match answer:
            case _ if asked.is_over:
                shown_as = session.updates.shown_as(asked.params.get("prompt"))
                self._insert(session_id, asked, shown_as=shown_as)
            case Err(error):
                self._fail(asked, error)
            case Ok({"stopReason": "cancelled"}):
                self._send(jsonrpc.error(asked.id, errors.cancelled()))
            case Ok(result) if own_meta(as_object(result)).get("delivery") == "steered":
                # Its words have joined a turn, which has ended.
                self._insert(session_id, asked, shown_as=self._shown_as(session, asked))
            case _:  # a command of the bridge's own, or a prompt that a hook has refused
                alone = session.state == v2.IDLE
                if alone:
                    self._say_state(session_id, session, v2.RUNNING)
                self._insert(session_id, asked, shown_as=self._shown_as(session, asked))
                if alone:
                    self._say_idle(session_id, session, _end_of(answer))

    def _shown_as(self, session: _Session, asked: _Asked) -> str:
        """Return the id of the message in or behind a replay that has a prompt's words, or ""."""
        shown = session.updates.shown_as(asked.params.get("prompt"))
        return shown if asked.replayed or shown == asked.prompt_id else ""

    def _end_turn(self, session_id: object, session: _Session, turn: str, end: Json) -> None:
        """Tell the client how a turn ended, unless it was told before."""
        if turn in session.ended:
            return
        session.ended = [*session.ended[-9:], turn]
        if session.turn == turn:
            session.turn = ""
        session.updates.without_turn = ()
        self._say_idle(session_id, session, end)

    def _end_other(self, session_id: object, session: _Session, turn: str, stands: Json) -> None:
        """Tell the client how the turn it knows of ended, if `turn` is another one, or empty."""
        if session.turn and session.turn != turn:
            self._end_turn(session_id, session, session.turn, _end_told(stands, session.turn))

    # --- states --------------------------------------------------------------------------------

    def _say_state(self, session_id: object, session: _Session, state: str) -> None:
        if state != session.state:
            session.updates.end_message()
            self._say_standing(session_id, session, state)

    def _say_idle(self, session_id: object, session: _Session, end: Json) -> None:
        session.updates.end_message()
        reason = end.get("stopReason") or "end_turn"
        told: Json = {"stopReason": reason}
        if reason == v2.ERROR and end.get("error"):
            told["error"] = end["error"]
        self._say_standing(session_id, session, v2.IDLE, **told, **meta_of(end))

    def _say_standing(self, session_id: object, session: _Session, state: str, **more: Any) -> None:
        """Send a state with the list of background work; `more`: how a turn ended."""
        session.state = state
        told = {"sessionUpdate": v2.STATE_UPDATE, "state": state, **more}
        self._say(session_id, session.background.in_state(told))

    def _say(self, session_id: object, update: Json) -> None:
        params = {"sessionId": session_id, "update": update}
        self._send(jsonrpc.notification(protocol.SESSION_UPDATE, params))

    def _session(self, session_id: object) -> _Session:
        """Return the record of a session that the bridge names, made and kept if there is none."""
        found = self._known(session_id)
        self._sessions[session_id] = found
        return found

    def _known(self, session_id: object) -> _Session:
        """Return the record of a session that the client names; if unknown a new one, not kept."""
        if isinstance(session_id, str) and session_id in self._sessions:
            return self._sessions[session_id]
        settings = Settings()
        updates = ToV2(f"{self._ids}{next(self._numbers)}-", settings)
        updates.replays = any(
            (each.sent[0] == protocol.SESSION_LOAD or protocol.after_of(*each.sent) is not None)
            and each.params.get("sessionId") == session_id
            for each in self._asked.values()
        )
        return _Session(settings, updates)


def _permission(params: Json) -> Json:
    """Return a permission question's parameters in version 2, in the agent's own form if kept."""
    call = as_object(params.get("toolCall"))
    title = call.get("title")
    told = without(without_said(params), "toolCall")
    told["title"] = title if isinstance(title, str) and title else "Permission"
    told["subject"] = {"type": v2.OF_TOOL_CALL, "toolCall": tool_call(call)}
    return {**told, **as_object(own_meta(params).get(protocol.SAID))}


def _opened(session: _Session, result: Json) -> Json:
    """Return the members of an answer to the opening of a session, but for the session's id."""
    rest = without(result, "sessionId", "modes", "models")
    return {**rest, "configOptions": session.settings.shown}


def _turn_of(stands: Json) -> str:
    turn = as_object(stands.get("turn")).get("promptId")
    return turn if isinstance(turn, str) else ""


def _state_of(stands: Json, session: _Session) -> str:
    """Return version 2's state of a session, for the state that the bridge tells."""
    word = stands.get("state")
    if not session.turn and word == LiveState.CANCELLING:  # what ends is work outside of a turn
        return session.state
    by_children = session.children_work and word == LiveState.WORKING
    if not session.turn and (by_children or word not in _WORKS):
        return v2.IDLE
    return v2.REQUIRES_ACTION if word == LiveState.PERMISSION else v2.RUNNING


def _end_of(answer: Ok | Err) -> Json:
    """Return stop reason, error and `_meta` of a turn's end, from the answer to its prompt."""
    if isinstance(answer, Err):
        return {"stopReason": v2.ERROR, "error": answer.error.to_wire()}
    result = as_object(answer.result)
    reason = result.get("stopReason")
    return {**meta_of(result), "stopReason": reason if isinstance(reason, str) else "end_turn"}


def _end_told(stands: Json, turn: str) -> Json:
    """Return stop reason and error of `turn` from the session's state; empty if it has none."""
    last = as_object(stands.get("last"))
    if last.get("promptId") != turn:
        return {}
    if error := last.get("error"):
        return {"stopReason": v2.ERROR, "error": error}
    reason = last.get("stopReason")
    return {"stopReason": reason} if isinstance(reason, str) else {}


def _same(mine: RequestId, wanted: Any) -> bool:
    """Return True if two ids are equal and of one type: 1, "1" and true all differ."""
    return type(mine) is type(wanted) and mine == wanted
