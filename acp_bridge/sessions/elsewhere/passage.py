"""One session that another bridge holds, as one client of this bridge has it.

Every message of the session goes through, both ways and in order; ids of requests are mapped. The
other bridge sees one more client, with the abilities that this one declared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from acp_bridge import errors, protocol, waits
from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.json_values import as_object
from acp_bridge.log import event
from acp_bridge.protocol import (
    CLOSE_FOR_ALL,
    HOLDER,
    SESSION_CLOSE,
    SESSION_LOAD,
    SESSION_RESUME,
    ErrorCode,
    Json,
    only_if_live,
    own_meta,
    with_own_meta,
)
from acp_bridge.sessions.elsewhere import passage_words
from acp_bridge.sessions.elsewhere.holder_hello import NotLive, introduce
from acp_bridge.sessions.elsewhere.holder_life import HolderLife
from acp_bridge.sessions.elsewhere.passed_questions import PassedQuestions
from acp_bridge.sessions.elsewhere.passed_requests import PassedRequests
from acp_bridge.settings import Settings
from acp_bridge.wire.jsonrpc import Answer, Decoder, Err, Malformed, Ok, is_id
from acp_bridge.wire.peer import Call, Peer
from acp_bridge.wire.streams import Incoming, Outgoing

#: requests with which a client leaves the session.
LEAVING: Final = frozenset({SESSION_CLOSE, CLOSE_FOR_ALL})
_LOADING: Final = frozenset({SESSION_LOAD, SESSION_RESUME})
#: bytes that wait for a bridge that doesn't read; then requests are refused.
_FLOOD: Final = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Load:
    """A request that loads or deletes the session."""

    answer: Answer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class Passage:
    """The way between one client and the bridge that holds one session of it."""

    def __init__(
        self, client: Client, session_id: str, streams: tuple[Incoming, Outgoing], bounds: Settings
    ) -> None:
        """Own both streams; `bounds` has for how long and for how much is waited."""
        self.client = client
        self.session_id = session_id
        #: the parameters with which the session was loaded.
        self.given: Json = {}
        #: a load was answered well: the client has the session.
        self.was_loaded = False
        #: the client, or the bridge, has no use for it any more.
        self.left = False
        #: the client has asked to have the session no more, or another one has closed it.
        self.leaving = False
        #: why the other bridge has let the client go; None if it has not.
        self.let_go: str | None = None
        self.ended = anyio.Event()
        self._incoming, self._outgoing = streams
        self._bounds = bounds
        self._peer = Peer(self, self._outgoing.write, answer_malformed=False)
        self._requests = PassedRequests(self._peer)
        self._questions = PassedQuestions(self._peer, client.peer)
        self._life = HolderLife(self._peer, bounds.reach_timeout, self._owes)
        #: what the other bridge says of its settings.
        self._holder: Json = {}
        #: the other bridge has said a word of the session.
        self._has_shown = False
        #: the answer to the load, or a word of the session: it is live there.
        self._sign = anyio.Event()
        #: by their requests, until `loaded` has returned.
        self._loads: dict[ClientRequest, _Load] = {}
        #: the connection ended before the load was answered.
        self._cut_off = False

    # --- its life ------------------------------------------------------------------------------

    async def run(self, on_end: Callable[[Passage], None]) -> None:
        """Carry messages until the connection ends; `on_end` is called when all is settled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, tasks.cancel_scope)
                tasks.start_soon(self._watch)
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            self._settle()
            on_end(self)

    def _owes(self) -> bool:
        return any(load.answer is None for load in self._loads.values())

    async def _write(self, scope: anyio.CancelScope) -> None:
        await self._outgoing.run()
        scope.cancel()

    async def _watch(self) -> None:
        """Give up a bridge that is silent; what it may not have read is not to run there later."""
        await self._life.lost()
        event("holder.silent", session=self.session_id)
        self.let_go = passage_words.HOLDER_SILENT
        self._requests.take_back_turns(self._life.has_read)
        await self._outgoing.flush(waits.FLUSH)
        self._incoming.close()
        self._outgoing.close()

    async def _read(self) -> None:
        decoder = Decoder()
        try:
            while data := await self._incoming.read():
                self._life.note_heard()
                messages = list(decoder.feed(data))
                for message in messages:
                    match message:  # an error that answers no request: who may not connect
                        case {"id": None, "error": {"message": str(reason)}}:
                            self.let_go = reason
                self._peer.feed_messages(messages)
                self._life.held_up = True
                await self.client.outgoing.drain_below(self._bounds.client_limit)
                self._life.held_up = False
        except OSError as exc:
            event("holder.unreadable", what=exc.strerror)

    def leave(self) -> None:
        """End the connection: the other bridge sees that a client has left."""
        self.left = True
        self._incoming.close()
        self._outgoing.close()

    def _settle(self) -> None:
        """Give every open request one error, and take back what the client was asked."""
        self._incoming.close()
        self._outgoing.close()
        self._cut_off = self._owes()
        self._peer.close(errors.agent_trouble(self.let_go or passage_words.HOLDER_ENDED))
        self._questions.end()
        self._sign.set()
        self.ended.set()

    # --- the beginning -------------------------------------------------------------------------

    async def open(self, request: ClientRequest) -> None:
        """Send the request with which the client wants the session; it is live when this returns.

        Raises NotLive, and the RpcError with which the other bridge refuses it.
        """
        try:
            with anyio.fail_after(self._bounds.reach_timeout):
                self._holder = await introduce(self._peer, self.client.abilities.declared)
                load = self.load(request)
                await self._sign.wait()
        except TimeoutError:
            raise NotLive("it does not answer") from None
        except NotLive as exc:
            raise NotLive(self.let_go or str(exc)) from None
        if self._cut_off and not self._has_shown:
            raise NotLive(self.let_go or "it has ended the connection")
        if isinstance(load.answer, Err):
            await self.loaded(request)

    def load(self, request: ClientRequest) -> _Load:
        """Send a request that loads or deletes the session, once; `loaded` gives its end."""
        if load := self._loads.get(request):
            return load
        params: Json = request.params
        load = self._loads[request] = _Load()
        if request.method in _LOADING:
            self.given, params = params, only_if_live(params)
        self._send(request, params, partial(self._loaded, request, load))
        return load

    async def loaded(self, request: ClientRequest) -> None:
        """Return when a request that was given to `load` was answered well.

        Raises the RpcError that is its answer otherwise, and NotLive if that is why.
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
        """Answer at once: what the session shows next is to come behind the answer."""
        load.answer = answer
        match answer:
            case Ok(result) if request.method in _LOADING:
                shown = as_object(result)
                own = {**own_meta(shown), HOLDER: self._holder}
                self.was_loaded, self.leaving = True, False
                request.answer(with_own_meta(shown, own))
            case Ok(result):
                request.answer(result)
        self._sign.set()
        load.answered.set()

    # --- from the client -----------------------------------------------------------------------

    def take(self, request: ClientRequest) -> None:
        """Pass a request on; raises RpcError if the other bridge reads nothing."""
        if self._outgoing.pending > _FLOOD:
            raise errors.agent_trouble(passage_words.HOLDER_DEAF)
        self.leaving |= request.method in LEAVING
        self._send(request, request.params, partial(self._respond, request))

    def notify(self, method: str, params: Any) -> None:
        """Pass a notification on."""
        if self._outgoing.pending <= _FLOOD:
            self._peer.notify(method, params)
            self._life.note_sent()

    def cancel_request(self, request_id: object) -> bool:
        """Pass on that the client gives a request up; False if none is open under this id."""
        given_up = self._requests.give_up(self.client, request_id)
        if given_up:
            self._life.note_sent()
        return given_up

    def _send(
        self, request: ClientRequest, params: Any, on_answer: Callable[[Answer], None]
    ) -> None:
        self._requests.send(request, params, on_answer)
        self._life.note_sent()

    def _respond(self, request: ClientRequest, answer: Answer) -> None:
        request.respond(answer)
        if request.method in LEAVING and isinstance(answer, Ok):
            self.leave()

    # --- from the other bridge -----------------------------------------------------------------

    def on_request(self, call: Call) -> None:
        self._note_word()
        self._questions.ask(call.id, call.method, self._requests.with_client_id(call.params))

    def on_notification(self, method: str, params: Any) -> None:
        match method, params:
            case protocol.CANCEL_REQUEST, {"requestId": call_id} if is_id(call_id):
                self._questions.take_back(call_id)
            case protocol.LET_GO, {"reason": str(reason)}:
                self.let_go = reason
            case protocol.SESSION_STATE, {"state": word}:
                self._note_word()
                self.leaving |= word == protocol.CLOSED_STATE
                if self.client.hears_state:
                    self.client.peer.notify(method, params)
            case _:
                self._note_word()
                self.client.peer.notify(method, self._requests.with_client_id(params))

    def _note_word(self) -> None:
        self._has_shown = True
        self._sign.set()

    def on_malformed(self, line: Malformed) -> None:
        event("holder.malformed", what=line.error.message)

    def on_batch_end(self) -> None:
        """Do nothing: every message goes on as it comes."""
