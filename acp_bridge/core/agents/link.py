"""One session's place in an agent process, from its request for a session to its end there.

- A link belongs to one process (`Connection`) and one epoch. A process may have several links.
- While a link is parked, the agent's messages about sessions are kept in order (invariant P8).
- An owner is told exactly once that the process has ended, and exactly once that its tree is dead
  or the session has left it, also one that adopts the link after either happened (invariant Q12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core import errors
from acp_bridge.core.agents import agent_params
from acp_bridge.core.agents.connection import AgentCommand, Connection, tell_owner
from acp_bridge.core.agents.failed_start import NotReady
from acp_bridge.core.agents.forks import Forks
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.agents.process_pool import has_come
from acp_bridge.core.agents.requests import AtClients, Requests
from acp_bridge.core.protocol import (
    CANCEL_REQUEST,
    CANCEL_REQUESTS,
    INITIALIZE,
    SAID_UPDATE,
    SESSION_CLOSE,
    SESSION_UPDATE,
    Json,
    kind_of,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.updates import odd_updates
from acp_bridge.core.updates.odd_answers import made_id
from acp_bridge.core.wire.jsonrpc import Answer, Ok, RequestId, RpcError, encode, withdrawn
from acp_bridge.core.wire.peer import Call
from acp_bridge.core.wire.runs import Run

if TYPE_CHECKING:
    from acp_bridge.core.agents.activity import Activity


class Owner(Protocol):
    """Gets the messages of a process, and the news of its end."""

    def on_update(self, link: Link, params: dict[str, Any]) -> None:
        """Handle a `session/update` with these parameters."""

    def on_run(self, link: Link, run: Run) -> None:
        """Handle a run of `session/update` notifications, all of plain text."""

    def on_agent_request(self, link: Link, call: Call) -> None:
        """Handle a request, which is answered now or later through `link.peer`."""

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        """Handle a notification that is no `session/update`."""

    def on_batch_end(self, link: Link) -> None:
        """Note that everything of one read has been handed over."""

    def on_occupied(self, link: Link) -> None:
        """Note that another session works in the process now: it gets no prompt of this one."""

    def on_free(self, link: Link) -> None:
        """Note that no other session works in the process any more."""

    async def room(self, link: Link) -> None:
        """Wait until more of the agent's output may be read."""

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        """Note that the process has ended and was read to its end; its tree may be alive."""

    def on_dead(self, link: Link) -> None:
        """Note that no process of the tree is left."""


class Link:
    """One session's place in a process, which it has until `kill`, `leave` or `close`."""

    def __init__(
        self, connection: Connection, owner: Owner, name: str, *, parked: bool = False
    ) -> None:
        """`name` is for the log. `parked`: begin as `park` does; `start` is not `patient` then."""
        self.connection = connection
        self.owner = owner
        self.name = name
        self.peer = connection.peer
        self.requests = Requests(self.peer, connection.login)
        self.requests.late = self.close_late
        #: the origins of the requests that are not answered yet, by the id that the agent knows.
        self.on_behalf: Mapping[RequestId, object] = self.requests.on_behalf
        #: the number of this process among those of its session.
        self.epoch = 0
        self.at_clients = AtClients()
        #: the session's id at the agent, once it has one.
        self.agent_session_id: str | None = None
        #: the agent's answer to the fork that it has open, until `take_fork`.
        self.forked: Json | None = None
        #: set when no process of the tree is left, or the session has left the process, just
        #: before the owner is told.
        self.dead = anyio.Event()
        #: forks of the session, made for questions beside it; ids of subagents announced in it.
        self.forks, self.children = Forks(), set[str]()
        self._parked, self.parked_bytes, self._kept = parked, 0, list[tuple[str, Any]]()
        #: the session has left the process to others; the agent was asked to open it.
        self.has_left = self.opening = False
        self._told_to_close = False
        #: the session's lock, if the guard holds it.
        self._lock: int | None = None
        connection.links.join(self)

    # --- life ----------------------------------------------------------------------------------

    async def start(self, tasks: TaskGroup, *, lock_fd: int | None = None) -> None:
        """Start the process and initialize it; the caller sets the deadline.

        Raises StartFailed, OSError or RpcError. Then, and when cancelled, the process is killed.
        """
        self._lock = lock_fd
        await self.connection.start(tasks, lock_fd=lock_fd, patient=not self._parked)

    @property
    def started(self) -> bool:
        """True once a process was spawned: `on_dead` is then called once, when its tree is dead.

        The call comes up to `waits.LAST_WORDS` after `kill`, whoever called `kill`. For a tree that
        outlives the kill it comes late, and not after `close`.
        """
        return self.connection.started

    @property
    def command(self) -> AgentCommand:
        """How the process was started."""
        return self.connection.command

    @property
    def initialized(self) -> dict[str, Any]:
        """The result of `initialize`; empty until the process is ready for a session."""
        return self.connection.initialized

    @property
    def pid(self) -> int:
        """The id of the main process, once it is started."""
        return self.connection.pid

    @property
    def light(self) -> bool:
        """True if the process is to be replaced before a prompt (`agents.parent`)."""
        return self.connection.light

    @property
    def gone(self) -> bool:
        """True once the process has ended, or the session has left it.

        Answers to its requests are the bridge's own from then on.
        """
        return self.has_left or self.connection.gone

    @property
    def why_ended(self) -> RpcError | None:
        """Why the process ended before it answered the request for this session, if it did."""
        return self.connection.why_ended if self.opening else None

    async def kill(self) -> bool:
        """Kill the whole tree; returns False if it is not dead after `waits.KILL`.

        The session leaves it instead if it has not come to it yet, or if it doesn't work while
        another one does, or is being opened.
        """
        if self.has_left:
            return True
        self.doom()
        if self.gone or self.connection.links.dies_with(self):
            return await self.connection.kill()
        self.connection.links.spoiled |= has_come(self)
        await self.leave()
        return self.has_left or await self.connection.kill()  # the others may have left meanwhile

    def doom(self) -> None:
        """Note that `kill` is to come: if the process dies of it, no other session prompts it."""
        if self.connection.links.dies_with(self) and not self.has_left:
            self.connection.doom()

    async def leave(self) -> None:
        """Leave the process to its other sessions: the agent closes this one, and the guard lets go
        of its lock. The owner is told as of a death. Shielded and bounded; for a session that is
        alone it does nothing.
        """
        links = self.connection.links
        with anyio.move_on_after(waits.LEAVE_PROCESS, shield=True):
            if self.agent_session_id is not None and links.several and not self.gone:
                await self.close_session(waits.LEAVE_ANSWER)
            if self._lock is not None and links.several and not self.gone:
                links.spoiled |= not await self.connection.return_lock(self._lock)
        if not links.several or self.gone:
            return
        self.has_left = True
        for question in self.at_clients.questions:  # the process lives on, and waits for answers
            question.end()
        for freed in links.leave(self):
            freed.note_occupied()
        self.requests.give_up(errors.AgentEnded("", killed=True))
        self.is_dead()

    @property
    def leaves_nothing(self) -> bool:
        """True if nothing of the session stays behind in a process that it leaves.

        Either the agent closes it, or it had no prompt.
        """
        return self._closes or self.connection.links.fresh(self)

    async def close_session(self, within: float = waits.CLOSE_ANSWER) -> bool:
        """Have the agent close the session, once; returns True if it says in time that it has."""
        if self._told_to_close or not self._closes:
            return False
        self._told_to_close = True
        with anyio.move_on_after(within):
            try:
                await self.ask(SESSION_CLOSE, {"sessionId": self.agent_session_id})
            except RpcError as exc:
                event("agent.close_refused", agent=self.name, what=exc.message)
            else:
                return True
        return False

    def close_late(self, answer: Answer) -> None:
        """Have the agent close the session that it has made for a request which was given up."""
        made = made_id(answer.result) if isinstance(answer, Ok) else None
        known = made is None or self.connection.links.has_session(made)
        if self._closes and not known:
            self.peer.request(SESSION_CLOSE, {"sessionId": made}, lambda answer: None)

    def is_gone(self) -> None:
        """Tell the owner that the process has ended and was read to its end."""
        tell_owner(self.owner.on_gone, self, self.connection.exit)

    def is_dead(self) -> None:
        """Tell the owner, once, that nothing of the process works on the session any more."""
        if not self.dead.is_set():
            self.dead.set()
            tell_owner(self.owner.on_dead, self)

    async def why_not(
        self, failure: Exception, method: str = INITIALIZE, within: float = 0.0
    ) -> RpcError:
        """Return the error that says why the process has come to no session; it is logged, too.

        `failure`: a StartFailed, the RpcError that answered the request `method`, or a TimeoutError
        if no answer came `within` so many seconds. No user's word has reached the process, so none
        is in its last lines.
        """
        return await self.connection.why_not(failure, method, within)

    async def with_lines(self, what: str) -> NotReady:
        """Return an error whose message is `what`, with the agent's last lines in its details."""
        return await self.connection.with_lines(what)

    async def close(self, grace: float) -> None:
        """Let the process end by itself within `grace` seconds, then kill the tree."""
        self.connection.doom()
        await self.connection.close(grace)

    def hold_lock(self, lock_fd: int) -> None:
        """Let the guard hold the session's lock, too, until the tree is dead (invariant P12)."""
        self._lock = lock_fd
        self.connection.hold_lock(lock_fd)

    # --- other sessions in the process ---------------------------------------------------------

    @property
    def shared(self) -> bool:
        """True while the process has another session."""
        return self.connection.links.several

    @property
    def occupied(self) -> bool:
        """True while another session works in the process, and this one is at rest."""
        return self.connection.links.occupied(self)

    @property
    def works(self) -> bool:
        """True while the session is noted to work in the process."""
        return self.connection.links.working(self)

    def note_work(self, *, works: bool) -> None:
        """Note that the session works, or is at rest; the owners whom that concerns are told."""
        links = self.connection.links
        for link in links.note(self, works=works):
            link.note_occupied()

    def note_prompted(self) -> None:
        """Note that the session had a prompt, maybe in another process."""
        for link in self.connection.links.note_prompted(self):
            link.note_occupied()

    def note_occupied(self) -> None:
        """Tell the owner if the process works for another session now, or not any more."""
        tell_owner(self.owner.on_occupied if self.occupied else self.owner.on_free, self)

    # --- requests ------------------------------------------------------------------------------

    def can(self, *path: str) -> bool:
        """Return True if `agentCapabilities` has this path as a true flag or an object."""
        return self.connection.can(*path)

    @property
    def _closes(self) -> bool:
        """True for an agent that can close a session."""
        return self.can("sessionCapabilities", "close")

    @property
    def speaks_v2(self) -> bool:
        """True for an agent whose messages are translated from version 2."""
        return self.connection.translated is not None

    @property
    def activity(self) -> Activity | None:
        """What the agent says that it does in the session; None for one that speaks version 1."""
        translated = self.connection.translated
        return translated.activity(self.agent_session_id) if translated else None

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Return the agent's result for a request of the bridge's own; raises RpcError."""
        return await self.requests.ask(None, method, params)

    async def ask_for(self, origin: object | None, method: str, params: Any) -> Any:
        """Return the agent's result for a request that `origin` caused; raises RpcError."""
        return await self.requests.ask(origin, method, params)

    def request_for(
        self, origin: object | None, method: str, params: Any, on_answer: Callable[[Answer], None]
    ) -> int:
        """Send a request that `origin` caused, without waiting; returns the id, for `cancel`."""
        return self.requests.send(origin, method, params, on_answer)

    async def ask_for_session(self, origin: object | None, method: str, params: Any) -> Any:
        """Return the agent's result for a request that opens a session; raises RpcError."""
        self.opening = True
        try:
            return await self.ask_for(origin, method, params)
        finally:
            self.opening = False

    def note_session(self) -> None:
        """Note that the process has come to a session: what it wrote until then is forgotten."""
        self.connection.note_session()

    @property
    def busy(self) -> bool:
        """True while a request of the session is not answered, by the agent or by a client."""
        return self.peer.busy and (not self.shared or self.requests.open or self.at_clients.waits)

    # --- parking -------------------------------------------------------------------------------

    def park(self) -> None:
        """Keep messages about sessions until `adopt`, as the agent is about to name its session."""
        self._parked, self.agent_session_id, self.children = True, None, set()
        self._kept, self.parked_bytes = [], 0

    def adopt(self, owner: Owner) -> None:
        """Tell `owner` everything from now on, first the kept messages about its session.

        What the agent says of a fork is kept until `take_fork`.
        """
        changed = owner is not self.owner
        self.owner = owner
        self.connection.hurry()  # the owner before waits for a client no more
        if self.forked is None:
            self._unpark()
        if changed and self.gone:
            tell_owner(owner.on_gone, self, self.connection.exit)
            if self.dead.is_set():
                tell_owner(owner.on_dead, self)

    def take_fork(self) -> Json | None:
        """Return the agent's answer to the fork that it has open, once; None if there is none.

        The owner, which is ready for the fork now, is told what the agent has said of it meanwhile.
        """
        if (forked := self.forked) is not None:
            self.forked = None
            self._unpark()
        return forked

    def _unpark(self) -> None:
        kept, self._kept, self._parked = self._kept, [], False
        for method, params in kept:
            if self._has(params.get("sessionId")):  # else its opening came to nothing
                self._hand_over(method, params)
        self.owner.on_batch_end(self)

    # --- what the agent says of the session ----------------------------------------------------

    @property
    def awaits_its_id(self) -> bool:
        """True while the agent is about to name the session."""
        return self._parked and self.agent_session_id is None

    def is_about(self, session_id: object) -> bool:
        """Return True for the agent's id of the session, of a subagent's or of a fork."""
        if not isinstance(session_id, str):
            return session_id is not None and str(session_id) == self.agent_session_id
        own = session_id == self.agent_session_id or session_id in self.children
        return own or self.forks.has(session_id)

    def on_request(self, call: Call) -> None:
        """Handle a request of the agent's."""
        several = self.children or self.forks.some
        call = agent_params.of_request(call, None if several else self.agent_session_id)
        if not self.forks.take_request(self.peer, call):
            self.owner.on_agent_request(self, call)

    def on_run(self, run: Run) -> None:
        """Handle a run of text updates."""
        session_id = run.message["params"]["sessionId"]
        if session_id == self.agent_session_id and not self._parked:
            self.owner.on_run(self, run)
        else:
            for message in run.each():
                self.on_notification(SESSION_UPDATE, message["params"])

    def on_notification(self, method: str, params: Any) -> None:
        """Handle a notification of the agent's."""
        updates = method == SESSION_UPDATE and isinstance(params, dict)
        kind = kind_of(params) if updates else None
        if updates and not isinstance(kind, str):
            params = odd_updates.with_kind(params)
        if kind == SAID_UPDATE and not self.speaks_v2:
            event("agent.noise", agent=self.name, what="an update that only a bridge makes")
        elif updates and not self._parked:
            session_id = params.get("sessionId")
            if (session_id and session_id == self.agent_session_id) or self._has(session_id):
                self.owner.on_update(self, params)
            elif not self.forks.take_update(params):
                event("agent.noise", agent=self.name, what="an update of another session")
        elif self._keeps(method, params):
            self._kept.append((method, params))
            self.parked_bytes += len(encode(params))
        else:
            self._hand_over(method, params)

    def _keeps(self, method: str, params: Any) -> bool:
        """Return True for a message about a session while the link is parked."""
        about = isinstance(params, dict) and (method == SESSION_UPDATE or "sessionId" in params)
        return self._parked and about and method not in CANCEL_REQUESTS

    def on_batch_end(self) -> None:
        """Note that everything of one read has been handed over."""
        self.owner.on_batch_end(self)

    async def room(self) -> None:
        """Wait until more of the agent's output may be read."""
        await self.at_clients.room()
        await self.owner.room(self)

    def _has(self, session_id: object) -> bool:
        """Return True for the id of the process's session, or of one of its subagents' sessions.

        Without an id the only session is meant.
        """
        if isinstance(session_id, str):
            return session_id == self.agent_session_id or session_id in self.children
        if session_id is None:
            return not self.children and not self.forks.some
        return str(session_id) == self.agent_session_id

    def _hand_over(self, method: str, params: Any) -> None:
        if method in CANCEL_REQUESTS:
            method, params = CANCEL_REQUEST, {"requestId": withdrawn(params)}
        if method != SESSION_UPDATE:
            self.owner.on_agent_notification(self, method, params)
        elif isinstance(params, dict):
            self.owner.on_update(self, params)
