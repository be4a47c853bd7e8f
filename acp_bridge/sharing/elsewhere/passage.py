"""Passes one session through between a client of this bridge and the bridge that holds it.

Every message of the session goes through, both ways and in order; ids of requests are mapped. The
other bridge sees one more client, with the abilities that the client here declared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio
from msgspec import Struct, field

from acp_bridge.core import errors, protocol
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.clients.rights import Right
from acp_bridge.core.history import HISTORY, History
from acp_bridge.core.protocol import (
    ATTACH,
    CANCEL_REQUEST,
    CLIENT_NAME,
    CLOSE_FOR_ALL,
    CURSOR,
    HEARS_STATE,
    HOLDER,
    LOGIN,
    OBSERVES,
    SESSION_CLOSE,
    SESSION_LOAD,
    SESSION_PROMPT,
    SESSION_RESUME,
    SESSION_UPDATE,
    TAKES_CURSORS,
    ErrorCode,
    Json,
    after_of,
    as_object,
    only_if_live,
    own_meta,
    queue_words,
    with_own_meta,
    without,
    without_client_name,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.settings import Settings
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, RequestId, RpcError, is_id
from acp_bridge.core.wire.streams import Streams
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, Sent
from acp_bridge.sharing.elsewhere import passage_words
from acp_bridge.sharing.elsewhere.holder_life import HolderLife

#: requests with which a client leaves the session.
LEAVING: Final = frozenset({SESSION_CLOSE, CLOSE_FOR_ALL})
_LOADING: Final = frozenset({SESSION_LOAD, SESSION_RESUME})
#: the most bytes that may wait for a bridge that doesn't read; with more, requests are refused.
_FLOOD: Final = 64 * 1024 * 1024

#: answers that may come too late and are known.
_MOST_ANSWERED: Final = 32


class _Load(Struct, eq=False):
    """The state of a request that loads or deletes the session: its answer, once it has one."""

    answer: Answer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class _Closes(Struct, eq=False):
    """The state of the requests with which the client leaves the session."""

    unanswered: set[ClientRequest] = field(default_factory=set)
    #: the client has left, unless a load that it has sent behind its close is answered well.
    done: bool = False


class NotLive(Exception):
    """The other bridge does not have the session, or does not answer; the text says why."""


class Passage:
    """The way between one client and the bridge that holds one session of it."""

    def __init__(
        self,
        client: Client,
        session_id: str,
        streams: Streams,
        bounds: Settings,
        name: str | None = None,
    ) -> None:
        """Takes over `streams`, a connection to the other bridge, and closes them in the end.

        `bounds` has the limits of its waits, in seconds and bytes. `name`: under which the other
        bridge knows the client again; None for no name.
        """
        self.client = client
        self._name = name
        self.session_id = session_id
        #: the parameters with which the session was loaded.
        self.given: Json = {}
        #: a load has succeeded: the client has the session.
        self.was_loaded = False
        #: the client, or this bridge, has no use for the passage any more.
        self.left = False
        #: the client has asked to leave the session, or another client has closed it.
        self.leaving = False
        self._closes = _Closes()
        #: the cursor that the client was told last, if it wants cursors.
        self.cursor: str | None = None
        #: why the other bridge has let the client go; None if it has not.
        self.let_go: str | None = None
        self.ended = anyio.Event()
        self._bounds = bounds
        self._there = Connection(streams, self, lost=self._lost)
        self._requests = PassedRequests(self._there)
        self._questions = PassedQuestions(client)
        self._life = HolderLife(self._there, bounds.reach_timeout, self._owes)
        #: what the other bridge says of its settings.
        self._holder: Json = {}
        #: the other bridge has sent a message of the session.
        self._has_shown = False
        #: set by the answer to the load, by a message of the session, or by the end.
        self._sign = anyio.Event()
        #: the loads and deletes by their requests, until `loaded` has returned.
        self._loads: dict[ClientRequest, _Load] = {}
        #: the connection ended before the load was answered.
        self._cut_off = False

    # --- its life ------------------------------------------------------------------------------

    async def run(self, on_end: Callable[[Passage], None]) -> None:
        """Carry messages until the connection ends; then end what is open, and call `on_end`."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                await self._there.run()
                tasks.cancel_scope.cancel()
        finally:
            self._there.close()
            self._questions.end()
            self._sign.set()
            self.ended.set()
            on_end(self)

    def _lost(self) -> RpcError:
        """Note why the connection ended; return the error with which open requests are answered."""
        self.let_go = self.let_go or self._there.refusal
        self._cut_off = self._owes()
        return errors.agent_trouble(self.let_go or passage_words.HOLDER_ENDED)

    def _owes(self) -> bool:
        return any(load.answer is None for load in self._loads.values())

    async def _watch(self) -> None:
        """Wait until the other bridge is silent for too long, then give it up.

        Prompts that it may not have read are cancelled there, and the connection is closed.
        """
        await self._life.lost()
        event("holder.silent", session=self.session_id)
        self.let_go = passage_words.HOLDER_SILENT
        self._requests.take_back_turns(self._life.has_read)
        await self._there.flush(waits.FLUSH)
        self._there.close()

    def leave(self) -> None:
        """End the connection: the other bridge sees that a client has left."""
        self.left = True
        self._there.close()

    # --- the beginning -------------------------------------------------------------------------

    async def open(self, request: ClientRequest) -> None:
        """Send the client's load or delete, and wait until the other bridge is known to hold it.

        Raises NotLive, or the RpcError with which the other bridge refuses the request.
        """
        try:
            with anyio.fail_after(self._bounds.reach_timeout):
                await self._introduce()
                load = self.load(request)
                await self._sign.wait()
        except TimeoutError:
            raise NotLive("it does not answer") from None
        if self._cut_off and not self._has_shown:
            raise NotLive(self.let_go or "it has ended the connection")
        if isinstance(load.answer, Err):
            await self.loaded(request)

    async def _introduce(self) -> None:
        """Send the other bridge an `initialize` with the client's abilities. Raises NotLive.

        It asks for the session's states even if the client did not, to learn of a close. For a
        remote client it tells the login; this bridge refuses what that client may not do.
        """
        able = without_client_name(self.client.abilities.declared)
        own: Json = {HEARS_STATE: True}
        if self._name:
            own |= {CLIENT_NAME: self._name}
        if self.client.rights:
            own |= {LOGIN: self.client.login}
        if not self.client.may(Right.ANSWER):
            own |= {OBSERVES: True}
        try:
            result = await self._there.initialize(
                "acp-bridge",
                own={**own_meta(able), **own},
                capabilities=able,
                within=None,
            )
        except RpcError as exc:
            raise NotLive(self.let_go or exc.message) from None
        except ConnectionLost:
            raise NotLive(self.let_go or passage_words.HOLDER_ENDED) from None
        agent = result.get("agentCapabilities")
        if not isinstance(agent, dict):
            raise NotLive("it does not speak as an acp-bridge")
        self._holder = own_meta(agent)

    def load(self, request: ClientRequest) -> _Load:
        """Send a load or a delete to the other bridge; a request sent already is not sent again.

        `loaded` waits for the answer. Raises RpcError for a load from a cursor if the other bridge
        knows no cursors.
        """
        if load := self._loads.get(request):
            return load
        after = after_of(request.method, as_object(request.params))
        if after is not None and not self._holder.get(TAKES_CURSORS):
            raise errors.wrong_cursor("the acp-bridge that has the session open knows no cursors")
        params: Json = request.params
        method, load = request.method, _Load()
        self._loads[request] = load
        if method in _LOADING:
            self.given, params = params, only_if_live(params)
            if self.client.rights:
                method, params = ATTACH, _attaching(request)
        self._send(request, params, partial(self._loaded, request, load), method)
        return load

    async def loaded(self, request: ClientRequest) -> None:
        """Wait until a request that was given to `load` has succeeded.

        Raises the RpcError that answered it, or NotLive if the other bridge lacks the session.
        """
        load = self._loads[request]
        try:
            await load.answered.wait()
        finally:
            del self._loads[request]
        if isinstance(load.answer, Err):
            if load.answer.error.code == ErrorCode.RESOURCE_NOT_FOUND:
                raise NotLive("it does not have the session any more")
            raise load.answer.error

    def _loaded(self, request: ClientRequest, load: _Load, answer: Answer) -> None:
        """Note the other bridge's answer to a load or a delete, and pass a result on to the client.

        That is done at once, so that the session's next updates come after the answer.
        """
        load.answer = answer
        match answer:
            case Ok(result) if request.method in _LOADING:
                shown = as_object(result)
                own = {**own_meta(shown), HOLDER: self._holder}
                self._note_cursor(shown)
                self.was_loaded, self.leaving = True, bool(self._closes.unanswered)
                self._closes.done = False
                request.answer(with_own_meta(shown, own))
            case Ok(result):
                request.answer(result)
        self._leave_if_closed()
        self._sign.set()
        load.answered.set()

    # --- from the client -----------------------------------------------------------------------

    def take(self, request: ClientRequest) -> None:
        """Pass a client's request on to the other bridge, and later its answer back.

        Raises RpcError if the other bridge has stopped reading.
        """
        if self._there.pending > _FLOOD:
            raise errors.agent_trouble(passage_words.HOLDER_DEAF)
        if request.method in LEAVING:
            self.leaving = True
            self._closes.unanswered.add(request)
        self._send(request, request.params, partial(self._respond, request))

    def notify(self, method: str, params: Any) -> None:
        """Pass a client's notification on; drop it if the other bridge has stopped reading."""
        if self._there.pending <= _FLOOD:
            self._there.notify(method, params)
            self._life.note_sent()

    def cancel_request(self, request_id: object) -> bool:
        """Pass on that the client gives a request up; False if none is open under this id."""
        given_up = self._requests.give_up(self.client, request_id)
        if given_up:
            self._life.note_sent()
        return given_up

    def _send(
        self,
        request: ClientRequest,
        params: Any,
        on_answer: Callable[[Answer], None],
        method: str | None = None,
    ) -> None:
        self._requests.send(request, params, on_answer, method)
        self._life.note_sent()

    def _respond(self, request: ClientRequest, answer: Answer) -> None:
        request.respond(answer)
        self._closes.unanswered.discard(request)
        if request.method in LEAVING and isinstance(answer, Ok):
            self._closes.done = True
            self._leave_if_closed()

    def _leave_if_closed(self) -> None:
        """End the connection if a close has succeeded and no load sent after it is open."""
        if self._closes.done and not self._owes():
            self.leave()

    # --- from the other bridge -----------------------------------------------------------------

    def on_request(self, request: BridgeRequest) -> None:
        self._note_word()
        self._questions.ask(request, self._requests.with_client_id(request.call.params))

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Tell the client that a question was withdrawn; its answer is still passed back."""
        self._questions.take_back(request)

    def on_notification(self, method: str, params: Any) -> None:
        match method, params:
            case protocol.CANCEL_REQUEST, _:  # of a request that is answered already
                self._questions.called_back(as_object(params).get("requestId"))
            case protocol.LET_GO, {"reason": str(reason)}:
                self.let_go = reason
            case protocol.SESSION_STATE, {"state": word}:
                self._note_word()
                self.leaving |= word == protocol.LiveState.CLOSED
                if self.client.abilities.hears_state:
                    self.client.peer.notify(method, params)
            case _:
                self._note_word()
                if self.client.abilities.takes_cursors and method == SESSION_UPDATE:
                    self._note_cursor(as_object(params))
                self.client.peer.notify(method, self._requests.with_client_id(params))

    def _note_cursor(self, told: Json) -> None:
        cursor = own_meta(told).get(CURSOR)
        self.cursor = cursor if isinstance(cursor, str) else self.cursor

    def _note_word(self) -> None:
        self._has_shown = True
        self._sign.set()

    async def room(self) -> None:
        """Wait until the client has taken most of the bytes that were passed on."""
        self._life.held_up = True
        await self.client.outgoing.drain_below(self._bounds.client_limit)
        self._life.held_up = False


def _attaching(load: ClientRequest) -> Json:
    """Return the parameters of the `_acp_bridge/attach` that is sent for a remote client's load.

    They have `history`, and all of the load but a remote client's folder and MCP servers, which do
    not count in the other bridge.
    """
    history = History.FULL if load.method == SESSION_LOAD else History.PENDING
    told = without(load.params, "cwd", "additionalDirectories", "mcpServers")
    return {**told, HISTORY: history}


class PassedQuestions:
    """Holds the requests of the other bridge that the client has not answered yet.

    A question to a client that has left gets no answer: the other bridge sees that the client has
    left, and keeps the question open for the next client (invariant V8).
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: the open requests, each with the id by which the client knows it.
        self._asked: dict[BridgeRequest, int] = {}
        #: the ids at the client of the last requests that it has answered, by those at the bridge.
        self._answered: dict[RequestId, int] = {}

    def ask(self, request: BridgeRequest, params: Any) -> None:
        """Send the client the request with `params`; the answer goes back to the other bridge."""
        self._asked[request] = 0
        client_id = self._client.peer.request(request.method, params, partial(self._reply, request))
        if request in self._asked:
            self._asked[request] = client_id

    def take_back(self, request: BridgeRequest) -> None:
        """Tell the client that the other bridge waits for its answer no more."""
        if client_id := self._asked.get(request):
            self._client.peer.cancel(client_id)

    def called_back(self, request_id: object) -> None:
        """Tell the client that its answer to a request came too late at the other bridge."""
        if is_id(request_id) and (client_id := self._answered.pop(request_id, None)):
            self._client.peer.notify(CANCEL_REQUEST, {"requestId": client_id})

    def end(self) -> None:
        """Take back all questions, since the connection has ended."""
        for client_id in self._asked.values():
            self._client.peer.cancel(client_id)
        self._asked.clear()

    def _reply(self, request: BridgeRequest, answer: Answer) -> None:
        client_id = self._asked.pop(request, None)
        if client_id is not None and not self._client.gone:
            self._answered[request.call.id] = client_id
            while len(self._answered) > _MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
            request.respond(answer)


class PassedRequests:
    """Holds the clients' requests that the other bridge has not answered yet."""

    def __init__(self, there: Connection) -> None:
        """`there`: the connection to the other bridge."""
        self._there = there
        #: the open requests, by the id that each has on the connection to the other bridge.
        self._open: dict[int, tuple[Sent, ClientRequest]] = {}

    def send(
        self,
        request: ClientRequest,
        params: Any,
        on_answer: Callable[[Answer], None],
        method: str | None = None,
    ) -> None:
        """Pass a request on with `params`; `on_answer` is called once, with the answer to it.

        `method`: sent in place of the request's own. If the connection has ended, `on_answer` is
        called with an error before this returns.
        """
        sent = self._there.send(method or request.method, params)
        self._open[sent.id] = sent, request
        sent.when_answered(partial(self._answered, sent, on_answer))

    def _answered(self, sent: Sent, on_answer: Callable[[Answer], None]) -> None:
        del self._open[sent.id]
        assert sent.answer is not None
        on_answer(sent.answer)

    def give_up(self, client: Client, request_id: object) -> bool:
        """Pass on that a client gives a request up; False if none is open under this id."""
        for sent, request in self._open.values():
            if request.is_of(client, request_id):
                sent.cancel()
                return True
        return False

    def take_back_turns(self, read: int) -> None:
        """Cancel every prompt for the agent that the other bridge may not have read.

        `read`: the id of the last request that it surely has read.
        """
        for sent, request in self._open.values():
            if sent.id > read and _begins_a_turn(request):
                sent.cancel()

    def with_client_id(self, params: Any) -> Any:
        """Return `params` with their `requestId`, if any, mapped back to the client's own id."""
        there = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(there, int) and (found := self._open.get(there)):
            _, request = found
            return {**params, "requestId": request.call.id}
        return params


def _begins_a_turn(request: ClientRequest) -> bool:
    """Return True for a prompt that is for the agent, and is no `/queue` command."""
    prompt = request.params.get("prompt") if request.method == SESSION_PROMPT else None
    return isinstance(prompt, list) and queue_words(prompt) is None
