"""The bridge's end of a connection to an agent that speaks version 2. SANS-IO.

The bridge speaks version 1. Its messages are translated into version 2 for the agent, and the
agent's into version 1: one message becomes none, one or several, and some are answered here.

- The ids of requests stay as they are; requests that are made here have ids that no other has.
- Methods and kinds that are not known pass unread: who gets them is for the bridge to decide.
- What version 2 alone has does not reach the bridge as it came, nor does anything of a session that
  was neither opened nor announced as a subagent's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from acp_bridge.core import errors, protocol
from acp_bridge.core.agents.activity import Activity, Piece
from acp_bridge.core.protocol import (
    CANCEL_REQUEST,
    ON_THE_MACHINE,
    SAID,
    SPARES,
    SUBAGENT_UPDATE,
    Json,
    as_object,
    has,
    objects,
    only_stands,
    own_meta,
    with_own_meta,
    without,
    without_own_meta,
)
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Malformed, Message, Ok, RequestId, RpcError
from acp_bridge.versions import v2
from acp_bridge.versions.agent_handshake import (
    initialize_to_v2,
    initialized_to_v1,
    opening_to_v2,
)
from acp_bridge.versions.agent_turn import Item, Turn
from acp_bridge.versions.as_said import TerminalIds, for_version_1, question_said, with_said
from acp_bridge.versions.children_to_v1 import child_stands, without_links
from acp_bridge.versions.options_to_v1 import commands_to_v1, setting_to_v2
from acp_bridge.versions.question_to_v1 import elicitation_to_v1, permission_to_v1
from acp_bridge.versions.update_to_v1 import Shown

_FROM_START: Final = {v2.REPLAY_FROM: {"type": "start"}}
#: by each type of background work, the method that ends a piece of it and the member with its id.
_CANCELS: Final = {
    v2.OF_TERMINAL: (v2.CANCEL_TERMINAL, "terminalId"),
    v2.OF_TOOL_CALL: (v2.CANCEL_TOOL_CALL, "toolCallId"),
}
#: kinds of updates that show words of the user.
_OF_USER: Final = (protocol.USER_MESSAGE, v2.USER_MESSAGE)


@dataclass(slots=True)
class Out:
    """The messages to be sent for one message that was translated."""

    to_agent: list[Message] = field(default_factory=list)
    to_bridge: list[Message | Malformed] = field(default_factory=list)
    #: the message tells what the agent does: the bridge takes `AgentEnd.activity` before the rest.
    tells_activity: bool = False


@dataclass(slots=True)
class _Session:
    """What is known of one session of the agent's."""

    shown: Shown
    turn: Turn | None = None
    #: the state that the agent told last.
    state: str = v2.IDLE
    #: the background work that it listed last, by type and, if it has one, id; None if it never
    #: listed any.
    background: list[Item] | None = None
    #: the id of the session above it, if it is a subagent's.
    above: str = ""


_OnAnswer: TypeAlias = Callable[[Message], Out]


class AgentEnd:
    """Translates the messages of one connection."""

    def __init__(self, ids: str = "") -> None:
        """`ids`: the beginning of the ids of the agent's terminals at clients."""
        #: the agent has answered `initialize` as version 2 has it.
        self.agreed = False
        #: it has answered `initialize` in version 1: nothing is translated any more.
        self._over = False
        self._booleans = self._compaction = self._documents = False
        self._sessions: dict[str, _Session] = {}
        #: the ids of open requests for a new session: its id is known by the answer.
        self._opening: set[RequestId] = set()
        #: a subagent was announced.
        self._has_children = False
        #: the handlers of the answers to open requests, by the ids of the requests.
        self._open: dict[RequestId, _OnAnswer] = {}
        self._made = 0
        self._terminals = TerminalIds(ids)
        self._requests: dict[str, Callable[[RequestId, Json], Out]] = {
            protocol.INITIALIZE: self._initialize,
            protocol.AUTHENTICATE: self._same(v2.AUTH_LOGIN),
            protocol.LOGOUT: self._same(v2.AUTH_LOGOUT),
            protocol.SESSION_NEW: self._new,
            protocol.SESSION_FORK: self._fork,
            protocol.SESSION_LOAD: self._load,
            protocol.SESSION_RESUME: self._resume,
            protocol.SESSION_LIST: self._same(protocol.SESSION_LIST),
            protocol.SESSION_DELETE: self._same(protocol.SESSION_DELETE),
            protocol.SESSION_CLOSE: self._close,
            protocol.SESSION_PROMPT: self._prompt,
            protocol.SET_MODE: self._set_mode,
            protocol.SET_CONFIG_OPTION: self._set_option,
            protocol.CANCEL_ITEM: self._cancel_one,
        }

    def activity(self, session_id: str | None) -> Activity:
        """Return what the agent says that it does in a session: foreground and background work."""
        session = self._sessions.get(session_id) if session_id else None
        if session is None:
            return Activity(runs=False, background=None)
        cards, listed = session.shown.cards, session.background
        pieces = [
            Piece(*item, cards.title(*item), cards.can_cancel(*item), cards.calls_of(*item))
            for item in listed or ()
        ]
        for _, child in self._with_children(str(session_id)):
            if child.above and child.background:
                pieces.append(Piece(v2.OF_SUBAGENT, "", "", can_cancel=False))
        runs = session.turn is None and session.state != v2.IDLE
        return Activity(runs, tuple(pieces) if pieces or listed is not None else None)

    # --- from the bridge -----------------------------------------------------------------------

    def take_from_bridge(self, message: Message) -> Out:
        """Translate a message of the bridge; returns the messages to be sent for it."""
        method = message.get("method")
        if method is None or self._over:
            return Out(to_agent=[message])
        params = as_object(message.get("params"))
        if "id" not in message:
            return self._told(message, method, params)
        request_id = message["id"]
        if method == protocol.SET_MODEL:  # a word of version 1 alone
            return _refused(request_id, errors.unknown_method(method))
        if method not in self._requests:
            self._open[request_id] = _as_it_is
            return Out(to_agent=[message])
        try:
            return self._requests[method](request_id, params)
        except RpcError as refusal:
            return _refused(request_id, refusal)

    def _told(self, message: Message, method: str, params: Json) -> Out:
        """Translate a notification of the bridge: a Stop or a withdrawal; any other passes."""
        if method == protocol.SESSION_CANCEL:
            return self._cancel(str(params.get("sessionId")), params)
        if method != CANCEL_REQUEST:
            return Out(to_agent=[message])
        withdrawn = params.get("requestId")
        for session_id, session in self._sessions.items():
            if (turn := session.turn) and turn.request_id == withdrawn and turn.inserted:
                return self._cancel(session_id, {"sessionId": session_id})
        return Out(to_agent=[jsonrpc.notification(CANCEL_REQUEST, params)])

    def _ask(self, request_id: RequestId, method: str, params: Json, on_answer: _OnAnswer) -> Out:
        self._open[request_id] = on_answer
        return Out(to_agent=[jsonrpc.request(request_id, method, params)])

    def _same(self, method: str) -> Callable[[RequestId, Json], Out]:
        """Return the handler of a request that is sent on under `method`, its params unchanged."""
        return lambda request_id, params: self._ask(request_id, method, params, _as_it_is)

    def _initialize(self, request_id: RequestId, params: Json) -> Out:
        can = params.get("clientCapabilities")
        self._booleans = has(can, "session", "configOptions", "boolean")
        self._compaction = has(can, "session", "compaction")
        self._documents = has(can, protocol.PLAN)

        def answered(message: Message) -> Out:
            self.agreed = v2.answers_as_v2(message.get("result"))
            if not self.agreed:
                self._over = True
                return _as_it_is(message)
            return _answered(message, initialized_to_v1(message["result"]))

        return self._ask(request_id, protocol.INITIALIZE, initialize_to_v2(params), answered)

    # --- sessions ------------------------------------------------------------------------------

    def _shown(self) -> Shown:
        return Shown(
            booleans=self._booleans, compaction=self._compaction, documents=self._documents
        )

    def _session(self, session_id: str) -> _Session:
        if session_id not in self._sessions:
            self._sessions[session_id] = _Session(self._shown())
        return self._sessions[session_id]

    def _spoken_of(self, session_id: object) -> _Session | None:
        """Return the session that the agent names; None if it was neither opened nor announced."""
        if not isinstance(session_id, str):
            return None
        known = session_id in self._sessions or self._opening & self._open.keys()
        return self._session(session_id) if known else None

    def _upwards(self, session_id: str) -> Iterator[str]:
        """Yield the id of a session and those of the sessions above it, from the lowest up."""
        while session_id:
            yield session_id
            session = self._sessions.get(session_id)
            session_id = session.above if session else ""

    def _with_children(self, session_id: str) -> list[tuple[str, _Session]]:
        """Return a session, if it is known, and all subagents below it, each with its id."""
        known = self._sessions.items()
        return [(id_, each) for id_, each in known if session_id in self._upwards(id_)]

    def _new(self, request_id: RequestId, params: Json) -> Out:
        return self._open_new(request_id, protocol.SESSION_NEW, params)

    def _fork(self, request_id: RequestId, params: Json) -> Out:
        return self._open_new(request_id, protocol.SESSION_FORK, params)

    def _open_new(self, request_id: RequestId, method: str, params: Json) -> Out:
        """Send a request for a new session, whose id comes with the agent's answer."""

        def answered(message: Message) -> Out:
            self._opening.discard(request_id)
            session_id = as_object(message.get("result")).get("sessionId")
            return self._opened(message, session_id, {"sessionId": session_id})

        self._opening.add(request_id)
        return self._ask(request_id, method, opening_to_v2(params), answered)

    def _load(self, request_id: RequestId, params: Json) -> Out:
        return self._resume(request_id, {**params, **_FROM_START})

    def _resume(self, request_id: RequestId, params: Json) -> Out:
        asked = opening_to_v2(params)
        session_id = str(params.get("sessionId"))
        self._session(session_id)
        for each, known in self._with_children(session_id):  # each is replayed from its beginning
            self._sessions[each] = _Session(self._shown(), above=known.above)
        return self._ask(
            request_id,
            protocol.SESSION_RESUME,
            asked,
            lambda message: self._opened(message, session_id, {}),
        )

    def _opened(self, message: Message, session_id: object, told: Json) -> Out:
        """Translate the agent's answer to the opening of a session: settings, then its commands.

        `told`: members that the result has in any case. An error stays as it is.
        """
        result = as_object(message.get("result"))
        if "result" not in message or not isinstance(session_id, str):
            return _as_it_is(message)
        session = self._session(session_id)
        kept = without(result, "sessionId", "configOptions", "availableCommands")
        out = Out()
        out.to_bridge += _waiting(session_id, session)
        if isinstance(options := result.get("configOptions"), list):
            told = {**told, **session.shown.settings(options)}
        out.to_bridge += _answered(message, {**told, **kept}).to_bridge
        if commands := commands_to_v1(result.get("availableCommands")):
            update = {"sessionUpdate": protocol.COMMANDS_UPDATE, "availableCommands": commands}
            out.to_bridge += self._updates(session_id, [update])
        return out

    def _close(self, request_id: RequestId, params: Json) -> Out:
        session_id = str(params.get("sessionId"))

        def answered(message: Message) -> Out:
            out = Out()
            closed = self._with_children(session_id) if "result" in message else []
            if session := self._sessions.get(session_id):
                if session.turn and closed:
                    session.turn.break_off()
                out.to_bridge += self._ended(session_id, session)
            for each, _ in closed:
                del self._sessions[each]
            out.to_bridge.append(message)
            return out

        return self._ask(request_id, protocol.SESSION_CLOSE, params, answered)

    # --- settings ------------------------------------------------------------------------------

    def _set_mode(self, request_id: RequestId, params: Json) -> Out:
        session_id = str(params.get("sessionId"))
        option = self._session(session_id).shown.mode
        if option is None:
            raise errors.invalid("the agent has no modes", "modeId")
        config_id, value = option["configId"], params.get("modeId")
        setting = {"sessionId": session_id, "configId": config_id, "type": "id", "value": value}
        return self._ask(
            request_id,
            protocol.SET_CONFIG_OPTION,
            setting,
            lambda message: self._set(message, session_id, of_mode=True),
        )

    def _set_option(self, request_id: RequestId, params: Json) -> Out:
        session_id = str(params.get("sessionId"))
        return self._ask(
            request_id,
            protocol.SET_CONFIG_OPTION,
            setting_to_v2(params),
            lambda message: self._set(message, session_id, of_mode=False),
        )

    def _set(self, message: Message, session_id: str, *, of_mode: bool) -> Out:
        """Translate the agent's answer to a setting, which lists all config options.

        Version 1 has options and modes: an update tells the options after a mode was set
        (`of_mode`), or the mode if it changed after an option was set.
        """
        result = as_object(message.get("result"))
        options = result.get("configOptions")
        if not isinstance(options, list):
            return _answered(message, {}) if of_mode else _as_it_is(message)
        shown = self._session(session_id).shown
        told = shown.options_told(options)
        changed = shown.mode_changed(options)
        if of_mode:
            out = _answered(message, {})
            out.to_bridge += self._updates(session_id, [told])
        else:
            out = _answered(message, {**result, "configOptions": told["configOptions"]})
            out.to_bridge += self._updates(session_id, changed)
        return out

    # --- turns ---------------------------------------------------------------------------------

    def _prompt(self, request_id: RequestId, params: Json) -> Out:
        session_id = str(params.get("sessionId"))
        session = self._session(session_id)
        if session.turn:
            raise errors.refused("a prompt runs")
        turn = session.turn = Turn(request_id)
        session.shown.prompting = True

        def answered(message: Message) -> Out:
            if message_id := turn.take_answer(message):
                session.shown.prompts.add(message_id)
            return Out(to_bridge=self._ended(session_id, session))

        return self._ask(request_id, protocol.SESSION_PROMPT, params, answered)

    def _cancel(self, session_id: str, params: Json) -> Out:
        """Send a Stop, and cancel the session's background work as far as the agent lets it.

        The Stop of a client of version 2 spares the background work.
        """
        told = without_own_meta(params)
        out = Out(to_agent=[jsonrpc.notification(protocol.SESSION_CANCEL, told)])
        session = self._session(session_id)
        if session.turn:
            session.turn.cancelled = True
        spares = own_meta(params).get(SPARES) is True
        for kind, item_id in [] if spares else session.background or ():
            if session.shown.cards.can_cancel(kind, item_id):
                out.to_agent.append(self._cancel_item(session_id, session, (kind, item_id)))
        return out

    def _cancel_item(self, session_id: str, session: _Session, item: Item) -> Message:
        """Return the request that cancels `item`, and let the turn's answer wait for its end."""
        self._made += 1
        request_id = f"acp-bridge-{self._made}"
        if session.turn:
            session.turn.ending.add(item)

        def answered(message: Message) -> Out:
            if "result" not in message and session.turn:
                session.turn.ending.discard(item)
            return Out(to_bridge=self._ended(session_id, session))

        self._open[request_id] = answered
        (method, member), item_id = _CANCELS[item[0]], self._terminals.at_agent(item[1])
        return jsonrpc.request(request_id, method, {"sessionId": session_id, member: item_id})

    def _cancel_one(self, request_id: RequestId, params: Json) -> Out:
        """Ask the agent to end one tool call or terminal, if it lets that be ended now."""
        session_id = str(params.get("sessionId"))
        cards = self._session(session_id).shown.cards
        for item in cards.cancellable():
            method, member = _CANCELS[item[0]]
            if params.get(member) == item[1]:
                asked = {"sessionId": session_id, member: self._terminals.at_agent(item[1])}
                return self._ask(request_id, method, asked, _as_it_is)
        raise errors.invalid("nothing that runs under this id can be cancelled by itself")

    def _ended(self, session_id: str, session: _Session) -> list[Message | Malformed]:
        """Return the answer to the prompt, after the updates that wait; empty while it has none.

        With its answer the turn is over.
        """
        turn, cards = session.turn, session.shown.cards
        if turn is None or turn.outcome is None:
            return []
        turn.ending -= {item for item in turn.ending if cards.has_ended(*item)}
        if (answer := turn.answer) is None:
            return []
        session.turn, session.shown.prompting = None, False
        if isinstance(answer, Ok):
            message = jsonrpc.response(turn.request_id, answer.result)
        else:
            message = jsonrpc.error(turn.request_id, answer.error)
        return [*_waiting(session_id, session), message]

    # --- from the agent ------------------------------------------------------------------------

    def take_from_agent(self, message: Message | Malformed) -> Out:
        """Translate a message of the agent, or a line that is no message; returns what to send."""
        if isinstance(message, Malformed):
            self._spoiled(message)
            return Out(to_bridge=[message])
        if self._over:
            return _as_it_is(message)
        method = message.get("method")
        if method == protocol.SESSION_UPDATE and "id" not in message:
            return self._updated(message)
        if method is None:
            says = message.get("id") is None and as_object(message.get("result"))
            if says and len(self._open) == 1:
                return self.take_from_agent(jsonrpc.without_id(next(iter(self._open))))
            on_answer = self._open.pop(jsonrpc.known_id(message.get("id"), self._open), None)
            return on_answer(message) if on_answer else Out()  # an answer to nothing
        if "id" in message:
            return self._asked(message, method, message.get("params"))
        return Out(to_bridge=[message])

    def _spoiled(self, line: Malformed) -> None:
        """Forget the request that an unreadable line answers; the bridge itself fails it."""
        id = jsonrpc.known_id(line.id, self._open)
        if line.answer and id in self._open:
            del self._open[id]
            for session in self._sessions.values():
                if session.turn and session.turn.request_id == id:
                    session.turn, session.shown.prompting = None, False

    def _asked(self, message: Message, method: str, given: object) -> Out:
        """Translate a request of the agent: a question for a person. Any other passes.

        Those for a client's files and terminals are refused: version 2 has none.
        """
        out, params = Out(), as_object(given)
        try:
            if method == protocol.REQUEST_PERMISSION:
                session = self._asking(params)
                out.to_bridge += _waiting(params["sessionId"], session)
                self._made += 1
                call_id = f"acp-bridge-question-{self._made}"
                params = self._terminals.question_outward(params)
                told = permission_to_v1(params, session.shown.cards, call_id)
                told = with_own_meta(told, {SAID: question_said(params)})
            elif method == protocol.CREATE_ELICITATION:
                if "sessionId" in params:
                    self._asking(params)
                told = elicitation_to_v1(params)
            elif method.startswith(ON_THE_MACHINE):
                raise errors.unknown_method(method)
            else:
                return _as_it_is(message)
        except RpcError as refusal:
            return Out(to_agent=[jsonrpc.error(message["id"], refusal)])
        out.to_bridge.append({**message, "params": told})
        return out

    def _asking(self, params: Json) -> _Session:
        """Return the session that a question's `params` name; raises RpcError if it is unknown."""
        if (session := self._spoken_of(params.get("sessionId"))) is None:
            raise errors.unknown_session()
        return session

    def _updated(self, message: Message) -> Out:
        """Translate a `session/update`; one that is the same in both versions stays as it is."""
        params = as_object(message.get("params"))
        session_id, update = str(params.get("sessionId")), as_object(params.get("update"))
        if (session := self._spoken_of(params.get("sessionId"))) is None:
            return Out()
        if update.get("sessionUpdate") == v2.STATE_UPDATE:
            stands = self._state(session_id, session, update)
            return Out(to_bridge=stands, tells_activity=True)
        if update.get("sessionUpdate") == SUBAGENT_UPDATE:
            return Out(to_bridge=self._told_of_child(session_id, params, update))
        if session.turn and update.get("sessionUpdate") in _OF_USER:
            session.turn.take_shown(str(update.get("messageId")))
        update = self._terminals.outward(update)
        told = update if self._has_children else without_links(update)
        updates = [] if told is None else session.shown.update(told)
        if len(updates) == 1 and updates[0] is update:
            same = update is params.get("update")
            return Out(to_bridge=[message if same else _update({**params, "update": update})])
        # Of subagents, and what links to them, version 1 alone is recorded.
        plain = session.above or without_links(update) is not update
        kept = [{"update": each} for each in updates] if plain else with_said(update, updates)
        out = Out(to_bridge=[_update(_beside(params, each)) for each in kept])
        if session.turn and session.turn.ending:
            out.to_bridge += self._ended(session_id, session)
        return out

    def _state(self, session_id: str, session: _Session, update: Json) -> list[Message | Malformed]:
        if isinstance(update.get("background"), list):
            listed = [self._terminals.outward(each) for each in objects(update["background"])]
            session.background = list(_items(listed))
        if isinstance(update.get("state"), str):
            session.state = update["state"]
        if session.above:
            return self._child_stands(session_id, session, update)
        if session.turn:
            session.turn.take_state(update)
            return self._ended(session_id, session)
        return _waiting(session_id, session) if update.get("state") == v2.IDLE else []

    def _told_of_child(self, above: str, params: Json, update: Json) -> list[Message | Malformed]:
        """Translate a `subagent_update`, told on the session `above`; the first one announces it.

        A state in it repeats that of the subagent's own session.
        """
        child_id, state = update.get("sessionId"), update.get("state")
        if not isinstance(child_id, str) or not child_id:
            return []
        if is_new := child_id not in self._sessions:
            self._session(child_id).above = above
            self._has_children = True
        child = self._sessions[child_id]
        if not child.above:  # the bridge has opened it
            return []
        out: list[Message | Malformed] = []
        if is_new or not only_stands(update):
            out.append(_update({**params, "update": without(update, "state")}))
        return [*out, *(self._child_stands(child_id, child, state) if state else [])]

    def _child_stands(
        self, child_id: str, child: _Session, state: object
    ) -> list[Message | Malformed]:
        """Return the update with a subagent's state, after those with its waiting pieces."""
        told = child_stands(child_id, as_object(state))
        if told is None:
            return []
        shown = self._updates(child_id, child.shown.cards.flush())
        return [*shown, *self._updates(child.above, [told])]

    def _updates(self, session_id: str, updates: list[Json]) -> list[Message | Malformed]:
        return [_update({"sessionId": session_id, "update": each}) for each in updates]


def _waiting(session_id: str, session: _Session) -> list[Message | Malformed]:
    """Return updates that show the waiting pieces of cards; clients of version 2 have seen them."""
    waiting = map(for_version_1, session.shown.cards.flush())
    return [_update({"sessionId": session_id, **each}) for each in waiting]


def _beside(params: Json, told: Json) -> Json:
    """Return `params` with the members of `told` in place of its own, and the `_meta` of both."""
    if "_meta" not in params or "_meta" not in told:
        return {**params, **told}
    return {**params, **told, "_meta": {**as_object(params["_meta"]), **told["_meta"]}}


def _items(background: list[Json]) -> Iterator[Item]:
    """Yield the type and the id of each piece of background work; the id is empty if unknown."""
    for each in background:
        kind = str(each.get("type"))
        _, member = _CANCELS.get(kind, ("", ""))
        yield kind, str(each.get(member, ""))


def _update(params: Json) -> Message:
    return jsonrpc.notification(protocol.SESSION_UPDATE, params)


def _as_it_is(message: Message) -> Out:
    return Out(to_bridge=[message])


def _answered(message: Message, result: Any) -> Out:
    """Return the answer `message` with `result` as its result; an error stays as it is."""
    if "result" not in message:
        return _as_it_is(message)
    return Out(to_bridge=[jsonrpc.response(message["id"], result)])


def _refused(request_id: RequestId, refusal: RpcError) -> Out:
    return Out(to_bridge=[jsonrpc.error(request_id, refusal)])
