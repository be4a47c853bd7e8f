"""The open requests of one agent process: those that it was sent, and its own to clients.

For each request to the agent it is known on whose behalf it was sent. The requests of the process
go with it from owner to owner, and so do the terminals that it made at clients: the owner of the
process at its death calls the requests back and releases the terminals (invariants C19, Q12).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, Protocol

import anyio
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.protocol import (
    AUTHENTICATE,
    OPENING,
    SESSION_DELETE,
    SESSION_FORK,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    ErrorCode,
)
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, RequestId, RpcError, is_id, known_id
from acp_bridge.core.wire.peer import Call, Handler, Peer

#: methods that an agent answers with a result only when it needs no login.
_LOGGED_IN: Final = (AUTHENTICATE, SESSION_NEW, SESSION_LOAD, SESSION_RESUME, SESSION_PROMPT)

# --- requests to the agent ------------------------------------------------------------------------


def agent_peer(handler: Handler, send: Callable[[bytes], None]) -> Peer:
    """Return the bridge's end of a connection to an agent."""
    return Peer(
        handler,
        send,
        towards_client=False,
        internal_error=errors.internal,
        spoiled_answer=errors.spoiled_answer,
    )


class Login(Struct):
    """Whether a process wants a login; all sessions that it has see the same."""

    #: when the agent last said that it wants one; None if it has been content since.
    wanted: float | None = None


class Requests:
    """Sends requests through `peer` and remembers the origin of each until it is answered.

    An origin is whatever the caller gives, and is never looked into here: a client's bare request
    id would not do, because two clients may use the same one.
    """

    def __init__(self, peer: Peer, login: Login) -> None:
        """`login` is that of the process."""
        #: the origins of the requests that are open, by the id under which the agent knows them.
        self.on_behalf: dict[RequestId, object] = {}
        self._login = login
        #: when a request with an origin was last answered.
        self.touched = 0.0
        #: sends a last request, when the process has closed its session and is about to end.
        self.last: Callable[[], Awaitable[None]] | None = None
        #: gets the answer to a request for a new session that nobody waits for any more.
        self.late: Callable[[Answer], None] = lambda answer: None
        self._peer = peer
        #: by the agent's id, what gets the answer of each request that is open.
        self._open: dict[int, Callable[[Answer], None]] = {}
        #: the ids of those that are about the agent as a whole.
        self._of_agent: set[int] = set()
        #: the answer to every further request, once the session has left the process.
        self._given_up: RpcError | None = None

    @property
    def open(self) -> bool:
        """True while a request is not answered."""
        return bool(self._open)

    def give_up(self, error: RpcError) -> None:
        """Answer every request with `error`, also later ones: the session leaves the process.

        Those about the agent as a whole, as a login, are left to the process.
        """
        self._given_up = error
        for request_id, settled in list(self._open.items()):
            if request_id not in self._of_agent:
                self._peer.cancel(request_id)
                settled(Err(error))

    def send(
        self,
        origin: object | None,
        method: str,
        params: Any,
        on_answer: Callable[[Answer], None],
    ) -> int:
        """Send a request; `on_answer` is called exactly once. Returns the id, for `Peer.cancel`.

        If the peer is closed, or the session has left the process, `on_answer` is called before
        this returns.
        """
        of_agent = _is_of_agent(method, params)
        if self._given_up and not of_agent:
            on_answer(Err(self._given_up))
            return 0
        answered = False

        def settled(answer: Answer) -> None:
            nonlocal answered
            if answered:  # it was given up
                self._take_late(method, answer)
                return
            answered = True
            self._open.pop(request_id, None)
            self._of_agent.discard(request_id)
            if origin is not None:
                self.touched = monotonic()  # the event loop's clock
            self.on_behalf.pop(request_id, None)
            self._note_login(method, answer)
            if isinstance(answer, Err):  # no agent knows which machine has a session
                answer.error.data = errors.without_machine_named(answer.error.data)
            on_answer(answer)

        request_id = 0
        request_id = self._peer.request(method, params, settled)
        if not answered:
            self._open[request_id] = settled
            if of_agent:
                self._of_agent.add(request_id)
            if origin is not None:
                self.on_behalf[request_id] = origin
        return request_id

    def _take_late(self, method: str, answer: Answer) -> None:
        if method in (SESSION_NEW, SESSION_FORK):
            self.late(answer)

    @property
    def login_wanted(self) -> float | None:
        """When the process last said that it wants a login; None if it has been content since."""
        return self._login.wanted

    def _note_login(self, method: str, answer: Answer) -> None:
        if isinstance(answer, Ok):
            if method in _LOGGED_IN:
                self._login.wanted = None
        elif answer.error.code == ErrorCode.AUTH_REQUIRED:
            self._login.wanted = anyio.current_time()

    async def ask(self, origin: object | None, method: str, params: Any) -> Any:
        """Return the result of a request; raises RpcError.

        A caller that is cancelled gives the request up, and the agent is told so. The wait is
        unbounded: the caller sets the deadline.
        """
        answers: list[Answer] = []
        settled = anyio.Event()
        given_up = False

        def on_answer(answer: Answer) -> None:
            answers.append(answer)
            settled.set()
            if given_up:
                self._take_late(method, answer)

        request_id = self.send(origin, method, params, on_answer)
        try:
            await settled.wait()
        except BaseException:
            given_up = True
            self._peer.cancel(request_id)
            for answer in answers:  # it came just before
                self._take_late(method, answer)
            raise
        match answers[0]:
            case Ok(result):
                return result
            case Err(error):
                raise error


def _is_of_agent(method: str, params: Any) -> bool:
    """Return True for a request about the agent as a whole, or a session that it does not have."""
    named = isinstance(params, dict) and "sessionId" in params
    return method == SESSION_DELETE or not (named or method in OPENING)


# --- its requests to clients ----------------------------------------------------------------------

#: the requests of one process that may be open at clients at once. Beyond it the process is not
#: read on while a person is asked, and its other requests are refused.
MOST_OPEN: Final = 1_000


class Question(Protocol):
    """A request of the process that a client has not answered yet."""

    @property
    def call(self) -> Call:
        """The request as the process sent it."""

    @property
    def names_session(self) -> bool:
        """True when the request is about a session, not about the agent as such."""

    @property
    def asks_a_person(self) -> bool:
        """True when a client answers only after its user has answered."""

    def settled(self) -> None:
        """Do what follows when the request is open no more."""

    def call_back(self) -> None:
        """Tell the client that nobody waits for its answer any more."""

    def take_back(self) -> None:
        """Answer the process, which has cancelled the request, and call it back from the client."""

    def end(self) -> None:
        """Answer the process that the request was cancelled, and call it back from the client."""


class AtClients(Struct):
    """Keeps the requests and terminals that are open at clients, in the order of asking.

    Whatever is done with one request costs the same, however many are open.
    """

    #: the clients' id of the session that the process has, or is to have.
    session_id: str | None = None
    #: by a terminal's id, the function that releases the terminal.
    terminals: dict[str, Callable[[], None]] = field(default_factory=dict)
    #: when a client was last asked something, or a question was last settled.
    touched: float = 0.0
    #: the open requests by their ids at the process, which are different while they are open.
    _open: dict[RequestId, Question] = field(default_factory=dict)
    #: how many of them ask a person; how many of these are about a session.
    _of_persons: int = 0
    _of_session: int = 0
    #: set when the next request ends, if somebody waits for that.
    _ended: anyio.Event | None = None
    #: for how many seconds the process may be silent, and the scope that is cancelled then.
    _limits: list[tuple[float, anyio.CancelScope]] = field(default_factory=list)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The requests that are not answered yet."""
        return tuple(self._open.values())

    @property
    def waits(self) -> bool:
        """True while a request is not answered."""
        return bool(self._open)

    @property
    def asks_a_person(self) -> bool:
        """True while a request waits for a person."""
        return self._of_persons > 0

    @property
    def asks_in_session(self) -> bool:
        """True while a request about a session waits for a person."""
        return self._of_session > 0

    @property
    def full(self) -> bool:
        """True while `MOST_OPEN` requests are open."""
        return len(self._open) >= MOST_OPEN

    async def room(self) -> None:
        """Wait until fewer than `MOST_OPEN` requests are open, or none of them asks a person."""
        while self.full and self.asks_a_person:
            self._ended = self._ended or anyio.Event()
            await self._ended.wait()

    def has(self, question: Question) -> bool:
        """Return True while this request of the process is not answered."""
        return self._open.get(question.call.id) is question

    def has_id(self, request_id: object) -> bool:
        """Return True while the process's request with this id is not answered."""
        return is_id(request_id) and known_id(request_id, self._open) in self._open

    def add(self, question: Question) -> None:
        """Note a request that a client is asked now."""
        self._open[question.call.id] = question
        self._count(question, 1)

    def remove(self, question: Question) -> None:
        """Forget a request that is answered, or given up."""
        del self._open[question.call.id]
        self._count(question, -1)
        question.settled()
        ended, self._ended = self._ended, None
        if ended:
            ended.set()

    def _count(self, question: Question, by: int) -> None:
        if question.asks_a_person:
            self._of_persons += by
            self._of_session += by if question.names_session else 0
        self.touched = anyio.current_time()
        self._set_limits()

    def end_questions(self) -> None:
        """End the permissions and elicitations now, whatever the clients do with them."""
        for question in self.questions:
            if question.asks_a_person:
                question.end()

    def give_up_session(self) -> None:
        """End the requests, and release the terminals, of a session that came to nothing."""
        for question in self.questions:
            if question.names_session:
                question.end()
        self._release_terminals()
        self.session_id = None

    def take_back(self, request_id: object) -> None:
        """Withdraw the process's request with this id: the process has cancelled it."""
        if is_id(request_id) and (question := self._open.get(known_id(request_id, self._open))):
            question.take_back()

    def release(self) -> None:
        """Release the terminals of a dead process, and call its requests back."""
        for question in self.questions:
            self.remove(question)
            question.call_back()
        self._release_terminals()

    def _release_terminals(self) -> None:
        terminals, self.terminals = self.terminals, {}
        for let_go in terminals.values():
            let_go()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise TimeoutError from the block when the process is silent for `seconds` in it.

        The time begins anew with each of its requests to a client and the end of one. While a
        person is asked, it stands still.
        """
        limit = seconds, anyio.CancelScope()
        self._limits.append(limit)
        self._set_limits()
        try:
            with limit[1]:
                yield
        finally:
            self._limits.remove(limit)
        if limit[1].cancelled_caught:
            raise TimeoutError

    def begin_anew(self) -> None:
        """Let the time of each limit begin anew: the process is known to be at work."""
        self._set_limits()

    def _set_limits(self) -> None:
        now = math.inf if self.asks_a_person else anyio.current_time()
        for seconds, scope in self._limits:
            scope.deadline = now + seconds
