"""The sessions that clients of this bridge have from bridges that hold them.

- If another bridge has the lock of a session, that bridge is sent the request, again and again,
  until it takes the request, the lock is free, or the time for that is over.
- When the bridge that holds a session ends, the session is opened here; what the client sends
  meanwhile waits for that, in order.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents.holder import Holder, read_holder
from acp_bridge.core.clients.client import ANSWERED, Client, ClientRequest
from acp_bridge.core.clients.waiting_requests import WaitingRequests
from acp_bridge.core.protocol import (
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
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions.attaching import Attaching
from acp_bridge.core.sessions.elsewhere import Elsewhere, Load
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.core.wire.peer import Call
from acp_bridge.sharing.bridge_client.by_socket import connect, live_at
from acp_bridge.sharing.elsewhere import passage_words
from acp_bridge.sharing.elsewhere.kept_work import KeptWork
from acp_bridge.sharing.elsewhere.passage import LEAVING, NotLive, Passage
from acp_bridge.sharing.listening.run_files import live_bridges

#: requests that are not passed on at once, whatever session they name: those that open or delete a
#: session go through the registry, and this bridge answers those about no session or about all.
_NOT_PASSED: Final = frozenset(
    {SESSION_LOAD, SESSION_RESUME, SESSION_DELETE, SESSION_NEW, SESSION_LIST, LIVE}
)


class HeldElsewhere(Exception):
    """Another bridge holds the session, and has taken the request, by way of `passage`."""

    def __init__(self, passage: Passage) -> None:
        super().__init__("the session is live in another bridge")
        self.passage = passage


class Continued(ClientRequest, frozen=True):
    """Stands for the load of a session that a client had from a bridge that has ended."""

    def answer(self, result: Any) -> None:
        """Do nothing: no client has sent this request."""

    def fail(self, error: RpcError) -> None:
        """Do nothing: no client has sent this request."""


class Continuation:
    """Keeps, in order, what a client sends to a session that is being opened again."""

    def __init__(self) -> None:
        """`scope` cancels the task that opens the session again; `ended` is set when it is over."""
        self.waiting = WaitingRequests()
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()


class Reach:
    """Tries to pass `request` on to the bridge that holds its session."""

    def __init__(self, passages: Passages, request: ClientRequest) -> None:
        """The attribute `why` says why the last try failed; None before the first failure."""
        self.why: str | None = None
        self._passages = passages
        self._request = request

    async def try_holder(self, lock_file: Path) -> None:
        """Send the request to the bridge that `lock_file` names, if it names one.

        Raises HeldElsewhere if that bridge takes the request, RpcError if it never will: it has
        another agent, say. Otherwise notes in `why` what failed; the caller may try again.
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


class Passages(Elsewhere):
    """Holds the passages of all clients, each to the bridge that holds one of their sessions."""

    def __init__(self, context: SessionContext, attaching: Attaching, load: Load) -> None:
        """`load` opens a session again after the end of its holder, here or in another bridge."""
        self._context = context
        self.kept_work = KeptWork(context, attaching)
        self._load = load
        #: the key of the hash that names the clients of this bridge to other bridges.
        self._secret = os.urandom(32)
        #: by client and session id, the passages to bridges that hold sessions.
        self.held: dict[tuple[Client, str], Passage] = {}
        #: by client and session id, the sessions that are opened again, as their holder has ended.
        self.continued: dict[tuple[Client, str], Continuation] = {}

    @property
    def in_use(self) -> bool:
        """True while a client has a session from another bridge, or it is opened again."""
        return bool(self.held or self.continued)

    def sessions(self) -> Set[tuple[Client, str]]:
        """Return (client, session id) for each session that a client has, or had, from a bridge."""
        return self.held.keys() | self.continued.keys()

    def reach(self, request: ClientRequest) -> Reach:
        """Return what passes the request on if its session is held by another bridge."""
        return Reach(self, request)

    async def live(self) -> list[Json]:
        """Return a row for each session of this bridge's agent that another bridge has live.

        All bridges are asked at once, in a bounded time; one that is silent is left out.
        """
        found: dict[str, list[Json] | None] = {}
        with anyio.move_on_after(waits.KEPT_WORK), suppress(NoThread):
            home = self._context.settings.home
            bridges = await in_thread(live_bridges, home, abandon_on_cancel=True)
            sockets = {each.socket for each in bridges if each.protocol == SOCKET_PROTOCOL}
            await live_at(sockets - {str(self._context.socket)}, found)
        owns = self._context.identity.owns
        rows = (row for listed in found.values() for row in listed or ())
        ours = {row["sessionId"]: row for row in rows if owns(str(row.get("agent")), None)}
        return [*ours.values()]

    async def tell_kept_work(self, session: Session, client: Client) -> None:
        """Show a client that opened a session a notice of unattended work in its folder."""
        await self.kept_work.tell(session, client)

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
        """Return the name under which the other bridge knows the client, None if it has no name.

        It stays the same when the client comes back to this bridge; another session or another
        bridge gives another one. A delete has none: it must not take the client's place.
        """
        client = request.client
        if client.abilities.name is None or request.method == SESSION_DELETE:
            return None
        who = repr((client.identity, session_id)).encode()
        import hashlib  # no start waits for it

        return hashlib.blake2b(who, key=self._secret).hexdigest()

    def _check(self, holder: Holder) -> None:
        """Raise RpcError for a bridge that this one can't pass a session through to."""
        if holder.protocol != SOCKET_PROTOCOL:
            raise errors.refused(passage_words.other_protocol(holder.protocol, SOCKET_PROTOCOL))
        ours = self._context.identity
        if not ours.owns(holder.agent, holder.agent_info):
            raise errors.refused(passage_words.other_agent(holder.agent, ours.name))

    async def or_elsewhere(self, request: ClientRequest, work: Awaitable[object]) -> object:
        """Await `work`, which answers `request` here, and return its result.

        If it raises HeldElsewhere, wait until the other bridge has answered, and return ANSWERED.
        Raises RpcError.
        """
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
        """Load a session again through the bridge from which the client has it; True if it did.

        False if the client has it from no bridge, or that one lacks it by now. Raises RpcError.
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
        """Pass a `session/load` on at the moment it is read, lest a later message overtake it.

        Does nothing if the client does not have the session from another bridge.
        """
        session_id = params.get("sessionId")
        if request.method == SESSION_LOAD and isinstance(session_id, str):
            passage = self._passage((request.client, session_id))
            if passage:
                passage.load(request)

    def take(self, request: ClientRequest, params: Json) -> bool:
        """Pass a request on, and return True, if the client has its session from another bridge.

        While the session is opened again, the request waits instead. Raises RpcError.
        """
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

    def notify(self, client: Client, method: str, params: Json, session_id: object) -> bool:
        """Pass a notification on, and return True, if its session is another bridge's.

        `session_id`: the session that it is about, or that of the subagent that it is about. While
        the session is opened again, only a cancel counts, for prompts that wait.
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
        """Return the passage for a (client, session id); None if there is none, or it was left."""
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
        """Let all clients leave their sessions in other bridges, since this bridge ends."""
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
        """Open a session whose holder has ended, here or in the bridge that has it now.

        The requests that waited go on then, or fail if that fails.
        """
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
