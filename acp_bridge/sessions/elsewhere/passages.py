"""The sessions that clients of this bridge have from bridges that hold them.

- A session whose lock is another bridge's is asked for there, again and again, until the lock is
  free or the time for that is over.
- When the bridge that holds a session ends, it is opened here; what the client sends meanwhile
  waits for that, in order.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio

from acp_bridge import errors
from acp_bridge.bridge_client.by_socket import connect
from acp_bridge.clients.client import ANSWERED, Client, ClientRequest
from acp_bridge.clients.waiting_requests import WaitingRequests
from acp_bridge.listening.holder import Holder, read_holder
from acp_bridge.protocol import (
    LIVE,
    SESSION_CANCEL,
    SESSION_DELETE,
    SESSION_LIST,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_RESUME,
    SESSION_UPDATE,
    SOCKET_PROTOCOL,
    Json,
    continuing,
    prompt_key,
    resuming,
)
from acp_bridge.runtime.log import event
from acp_bridge.session.session_context import SessionContext
from acp_bridge.sessions.elsewhere import passage_words
from acp_bridge.sessions.elsewhere.passage import LEAVING, NotLive, Passage
from acp_bridge.updates import notices
from acp_bridge.wire.jsonrpc import RpcError
from acp_bridge.wire.peer import Call

#: loads a session; its answer, or its error, is the request's.
Load: TypeAlias = Callable[[ClientRequest, Json], Awaitable[object]]
#: requests about the session as a whole go by way of the registry, and about none or all of them
#: they are this bridge's own, whatever session they name.
_NOT_PASSED: Final = frozenset(
    {SESSION_LOAD, SESSION_RESUME, SESSION_DELETE, SESSION_NEW, SESSION_LIST, LIVE}
)


class HeldElsewhere(Exception):
    """Another bridge holds the session, and has taken the request."""

    def __init__(self, passage: Passage) -> None:
        super().__init__("the session is live in another bridge")
        self.passage = passage


class Continued(ClientRequest):
    """Stands for the load of a session that a client had from a bridge that has ended."""

    def answer(self, result: Any) -> None:
        """Do nothing: nobody has asked."""

    def fail(self, error: RpcError) -> None:
        """Do nothing: nobody has asked."""


class Continuation:
    """Keeps, in order, what a client sends to a session that is being opened again."""

    def __init__(self) -> None:
        """`scope` cancels the task that opens the session again."""
        self.waiting = WaitingRequests()
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()


class Reach:
    """Tries to pass one request on to the bridge that holds its session."""

    def __init__(self, passages: Passages, request: ClientRequest) -> None:
        """`why`: the reason why the last try failed."""
        self.why: str | None = None
        self._passages = passages
        self._request = request

    async def try_holder(self, lock_file: Path) -> None:
        """Raise HeldElsewhere if the holder of the lock has taken the request.

        Raises RpcError if it never will: it is another agent's, say.
        """
        holder = read_holder(lock_file)
        if holder is None:
            return
        try:
            raise HeldElsewhere(await self._passages.open(self._request, holder))
        except NotLive as exc:
            self.why = str(exc)
        except OSError as exc:
            self.why = f"it can't be reached: {exc.strerror}"
        event("holder.unreached", what=self.why)


class Passages:
    """Holds the passages of all clients."""

    def __init__(self, context: SessionContext, load: Load) -> None:
        """`load` opens a session again after the end of its holder, here or through another."""
        self._context = context
        self._load = load
        #: what makes the names under which clients of this bridge are known to others.
        self._secret = secrets.token_bytes(32)
        #: by client and session, the passages to bridges that hold sessions.
        self.held: dict[tuple[Client, str], Passage] = {}
        #: the same for sessions whose holder has ended, while they are opened again.
        self.continued: dict[tuple[Client, str], Continuation] = {}

    # --- to another bridge ---------------------------------------------------------------------

    async def open(self, request: ClientRequest, holder: Holder) -> Passage:
        """Make a passage to the bridge that has the session, and send it the request.

        Raises OSError, NotLive, RpcError.
        """
        self._check(holder)
        session_id: str = request.params["sessionId"]
        streams = await connect(holder.socket)
        name = self._name(request, session_id)
        passage = Passage(request.client, session_id, streams, self._context.settings, name)
        self._context.tasks.start_soon(passage.run, self._on_end)
        try:
            await passage.open(request)
        except BaseException:
            passage.leave()
            raise
        if request.method != SESSION_DELETE:
            self.held[request.client, session_id] = passage
        event("session.passed_through", session=session_id, agent=holder.agent)
        return passage

    def _name(self, request: ClientRequest, session_id: str) -> str | None:
        """Return the name of a client with a name, for the bridge that has the session.

        It is the same when the client comes back here, and for another session, or by way of
        another bridge, another one. A delete is sent beside the passage, and takes nobody's place.
        """
        client = request.client
        if client.abilities.name is None or request.method == SESSION_DELETE:
            return None
        who = repr((client.identity, session_id)).encode()
        return hashlib.blake2b(who, key=self._secret).hexdigest()

    def _check(self, holder: Holder) -> None:
        """Raise RpcError for a bridge that this one can't pass a session through to."""
        if holder.protocol != SOCKET_PROTOCOL:
            raise errors.refused(passage_words.other_protocol(holder.protocol, SOCKET_PROTOCOL))
        ours = self._context.identity
        if not ours.owns(holder.agent, holder.agent_info):
            raise errors.refused(passage_words.other_agent(holder.agent, ours.name))

    async def or_elsewhere(self, request: ClientRequest, work: Awaitable[object]) -> object:
        """Do `work` here and return its result; or that of another bridge that took the request."""
        try:
            return await work
        except HeldElsewhere as held:
            passage = held.passage
        try:
            await passage.loaded(request)
        except NotLive:
            self._drop(passage)
            raise errors.unknown_session() from None
        except BaseException:
            self._drop(passage)
            raise
        if request.method == SESSION_DELETE:
            passage.leave()
        return ANSWERED

    async def load_again(self, request: ClientRequest, session_id: str) -> bool:
        """Load a session again at the other bridge from which the client has it.

        False if there is none, or it does not hold the session any more. Raises RpcError.
        """
        passage = self._passage((request.client, session_id))
        if passage is None:
            return False
        passage.load(request)
        try:
            await passage.loaded(request)
        except NotLive:
            self._drop(passage)
            return False
        return True

    # --- what the clients send -----------------------------------------------------------------

    def take_load(self, request: ClientRequest, params: Json) -> None:
        """Pass a load on at the moment it is read, lest a later message overtake it.

        Does nothing if the client does not have the session from another bridge.
        """
        session_id = params.get("sessionId")
        if request.method == SESSION_LOAD and isinstance(session_id, str):
            passage = self._passage((request.client, session_id))
            if passage:
                passage.load(request)

    def take(self, request: ClientRequest, params: Json) -> bool:
        """Pass a request on; False if its session is not another bridge's. Raises RpcError."""
        session_id = params.get("sessionId")
        if request.method in _NOT_PASSED or not isinstance(session_id, str):
            return False
        key = request.client, session_id
        if continued := self.continued.get(key):
            continued.waiting.add(request)
        elif passage := self._passage(key):
            passage.take(request)
            if request.method in LEAVING:
                self._context.tasks.start_soon(self._see_left, passage)
        else:
            return False
        return True

    async def _see_left(self, passage: Passage) -> None:
        """Leave the other bridge if it does not answer a client's close in time."""
        with anyio.move_on_after(self._context.settings.reach_timeout):
            await passage.ended.wait()
        if not passage.leaving:
            return  # it was loaded again behind the close
        if not passage.left:
            passage.let_go = passage_words.HOLDER_DEAF
        self._drop(passage)

    def has(self, client: Client, session_id: str) -> bool:
        """Return True for a session that the client has from another bridge."""
        return (client, session_id) in self.held

    def notify(self, client: Client, method: str, params: Json, session_id: object) -> bool:
        """Pass a notification on; False if its session is not another bridge's.

        `session_id`: the session that it is about, or that of the subagent which it is about.
        """
        if not isinstance(session_id, str):
            return False
        key = client, session_id
        if continued := self.continued.get(key):
            if method == SESSION_CANCEL and params.get("sessionId") == session_id:
                continued.waiting.cancel_oldest(client, session_id, prompt_key(params))
        elif passage := self._passage(key):
            passage.notify(method, params)
        else:
            return False
        return True

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Pass on that a client gives a request up; False if the request was not passed on."""
        for continued in self.continued.values():
            if continued.waiting.cancel_request(client, request_id):
                return True
        own = [each for each in self.held.values() if each.client is client]
        return any(passage.cancel_request(request_id) for passage in own)

    def _passage(self, key: tuple[Client, str]) -> Passage | None:
        """Return the passage of a session that the client has not left."""
        passage = self.held.get(key)
        return passage if passage and not passage.left else None

    # --- ends ----------------------------------------------------------------------------------

    def forget(self, client: Client) -> None:
        """Let a client that is gone leave its sessions in other bridges."""
        for passage in [each for each in self.held.values() if each.client is client]:
            self._drop(passage)
        for (who, _), continued in self.continued.items():
            if who is client:
                continued.scope.cancel()

    async def end(self) -> None:
        """Let all clients leave: this bridge ends."""
        for passage in list(self.held.values()):
            self._drop(passage)
        continued = list(self.continued.values())
        for each in continued:
            each.scope.cancel()
        for each in continued:
            await each.ended.wait()

    def _drop(self, passage: Passage) -> None:
        passage.leave()
        key = passage.client, passage.session_id
        if self.held.get(key) is passage:
            del self.held[key]

    def _on_end(self, passage: Passage) -> None:
        key = passage.client, passage.session_id
        if self.held.get(key) is not passage:
            return
        del self.held[key]
        if passage.left or passage.leaving or not passage.was_loaded:
            return
        if passage.let_go is not None:
            _say(passage, passage_words.holder_let_go(passage.let_go))
            return
        event("holder.ended", session=passage.session_id)
        continued = self.continued[key] = Continuation()
        self._context.tasks.start_soon(self._continue, passage, continued)

    async def _continue(self, passage: Passage, continued: Continuation) -> None:
        """Open a session whose holder has ended, here or where it is now."""
        failure: RpcError | None = errors.cancelled()
        try:
            with continued.scope:
                failure = await self._reopened(passage)
        finally:
            del self.continued[passage.client, passage.session_id]
            continued.ended.set()
        continued.waiting.go_on(failure)

    async def _reopened(self, passage: Passage) -> RpcError | None:
        """Give the client the session again; if that fails, tell the client and return why.

        A client that has a cursor is shown what follows it, as far as that is in the journal.
        """
        try:
            try:
                await self._resume(passage, passage.cursor)
            except RpcError as exc:
                if not errors.is_wrong_cursor(exc):
                    raise
                await self._resume(passage, None)
        except RpcError as exc:
            _say(passage, passage_words.not_continued(exc.message))
            return exc
        except Exception as exc:
            return errors.internal(exc, "the session could not be opened here")
        return None

    async def _resume(self, passage: Passage, cursor: str | None) -> None:
        given = resuming(continuing(passage.given), cursor)
        request = Continued(passage.client, Call(None, SESSION_RESUME, given))
        await self.or_elsewhere(request, self._load(request, given))


def _say(passage: Passage, text: str) -> None:
    said = notices.notice(text)
    passage.client.peer.notify(SESSION_UPDATE, {"sessionId": passage.session_id, **said})
