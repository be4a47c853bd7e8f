"""The connection to one agent process: started, initialized, read until its tree is dead.

- A link is one process and one epoch; it is never started a second time.
- The agent's stdout is read to its end before the owner is told of the exit, so an answer written
  just before it counts (invariant P3).
- A process that has closed a pipe and lives on can serve nobody, so it is killed (invariant P3).
- While a link is parked, the agent's messages about sessions are kept in order (invariant P8).
- An agent can't speak in the bridge's name: the bridge's own methods are refused, and its marks are
  dropped from what the agent says (invariant V6).
- An owner is told exactly once that the process has ended, and exactly once that its tree is dead,
  also one that adopts the link after either happened (invariant Q12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents import agent_params
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.descendants import bytes_moved
from acp_bridge.core.agents.failed_start import FETCH, FETCHES, OPENS, Attempt, NotReady, fetches
from acp_bridge.core.agents.forks import Forks
from acp_bridge.core.agents.parent import AgentParent
from acp_bridge.core.agents.process import AgentProcess, Exit, StartFailed
from acp_bridge.core.agents.requests import AtClients, Requests, agent_peer
from acp_bridge.core.agents.spoken_version import SpokenVersion, is_of_version_1
from acp_bridge.core.agents.standing import StandingRequests
from acp_bridge.core.ends import AgentOfVersion2, Ends
from acp_bridge.core.protocol import (
    CANCEL_REQUEST,
    CANCEL_REQUESTS,
    INITIALIZE,
    OWN_PREFIX,
    SAID_UPDATE,
    SESSION_UPDATE,
    VERSION,
    ErrorCode,
    Json,
    has,
    kind_of,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, done_in_any_case, in_thread
from acp_bridge.core.updates import odd_updates
from acp_bridge.core.updates.odd_answers import numbered
from acp_bridge.core.wire.jsonrpc import (
    Answer,
    Heard,
    Malformed,
    RequestId,
    RpcError,
    encode,
    withdrawn,
)
from acp_bridge.core.wire.peer import Call
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.core.wire.streams import Incoming, Lines, Outgoing, next_bytes

if TYPE_CHECKING:
    from acp_bridge.core.agents.activity import Activity

#: bytes of one read, and so of one transaction of the journal: what a pipe holds.
_READ_BYTES = 64 * 1024
#: bytes that may wait for an agent that doesn't read; with more than that it is killed.
_AGENT_LIMIT = 64 * 1024 * 1024
#: bytes that an agent may say while it is parked; with more it is killed.
_PARKED_LIMIT = 16 * 1024 * 1024
#: calls an owner; its exception is logged, and does not stop the clean-up.
_tell: Final = partial(errors.contained, what="the owner of an agent failed")


class Owner(Protocol):
    """Gets the messages of a process, and the news of its end."""

    def on_update(self, link: Link, params: dict[str, Any]) -> None:
        """Handle a `session/update` with these parameters."""

    def on_agent_request(self, link: Link, call: Call) -> None:
        """Handle a request, which is answered now or later through `link.peer`."""

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        """Handle a notification that is no `session/update`."""

    def on_batch_end(self, link: Link) -> None:
        """Note that everything of one read has been handed over."""

    async def room(self, link: Link) -> None:
        """Wait until more of the agent's output may be read."""

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        """Note that the process has ended and was read to its end; its tree may be alive."""

    def on_dead(self, link: Link) -> None:
        """Note that no process of the tree is left."""


class AgentCommand(Struct, frozen=True):
    """The agent's command line, at least one word, and the first requests to each process."""

    words: tuple[str, ...]
    initialize: Mapping[str, Any]
    #: the requests that every process is sent after `initialize`.
    standing: StandingRequests = field(default_factory=StandingRequests)
    #: the version of ACP that every process is asked for.
    version: SpokenVersion = field(default_factory=SpokenVersion)
    #: the soft limit of open files that each process gets; None: that of the bridge.
    open_files: int | None = None
    #: the folder that each process starts in; None: that of the bridge.
    folder: str | None = None
    #: forks the processes when it can; None: each is started by the command line.
    parent: AgentParent | None = None
    #: the agent's name for people; "": that of the program.
    name: str = ""
    #: the data folder, whose keys are masked in what people are told of a process.
    keys_in: Path | None = None
    #: the agent is of this project: what it writes to stderr is its log.
    ours: bool = False
    #: what stands between bytes and the peers of agents and clients.
    ends: Ends = field(default_factory=Ends)
    #: the deadline that the guards of all processes and hooks follow; None: there is none.
    deadline: Deadline | None = None

    def attempt(self) -> Attempt:
        """Return what takes note of one start."""
        name = self.name or self.words[0]
        return Attempt(self.words, name, self.folder, self.keys_in, ours=self.ours)

    async def start(
        self,
        tasks: TaskGroup,
        lock_fd: int | None,
        on_stderr: Callable[[str], None],
        *,
        patient: bool = False,
    ) -> AgentProcess:
        """Start a process; see `AgentProcess.start`, which raises StartFailed."""
        return await AgentProcess.start(
            tasks,
            self.words,
            self.parent,
            self.open_files,
            self.folder,
            patient=patient,
            lock_fd=lock_fd,
            on_stderr=on_stderr,
            deadline=self.deadline,
        )


class Link:
    """One agent process, started by `start` and ended by `kill` or `close`."""

    #: stands between the peer and an agent that speaks version 2.
    _translated: AgentOfVersion2 | None = None
    #: reads the agent's lines.
    _lines: Lines
    #: is told of the agent's lines, for a trace.
    _heard: Heard | None = None
    #: why it ended before it answered the request for its session; None if it did not.
    why_ended: RpcError | None = None
    _asked_for_session = _has_session = _was_cut_off = False

    def __init__(
        self, command: AgentCommand, owner: Owner, name: str, *, parked: bool = False
    ) -> None:
        """`name` is for the log. `parked`: begin as `park` does; `start` is not `patient` then."""
        self.command = command
        self.owner = owner
        self.name = name
        self.peer = self._lines = agent_peer(self, self._send)
        self.requests = Requests(self.peer)
        #: the origins of the requests that are not answered yet, by the id that the agent knows.
        self.on_behalf: Mapping[RequestId, object] = self.requests.on_behalf
        #: the result of `initialize`; empty until the process was sent the `StandingRequests`.
        self.initialized: dict[str, Any] = {}
        #: the id of the main process, once it is started.
        self.pid = 0
        #: the number of this process among those of its session.
        self.epoch = 0
        #: the process is to be replaced before a prompt (`agents.parent`).
        self.light = False
        self.at_clients = AtClients()
        #: the session's id at the agent, once it has one.
        self.agent_session_id: str | None = None
        #: the agent's answer to the fork that it has open, until `take_fork`.
        self.forked: Json | None = None
        #: the process has ended: answers to its requests are the bridge's own from now on.
        self.gone = False
        #: set when no process of the tree is left, just before the owner is told.
        self.dead = anyio.Event()
        #: forks of the session, made for questions beside it; ids of subagents announced in it.
        self.forks, self.children = Forks(), set[str]()
        self._exit: Exit | None = None
        #: it is killed because it could not be initialized: `start` raises the reason.
        self._unfit = False
        self._process: AgentProcess | None = None
        self._writer: Outgoing | None = None
        self._parked, self._parked_bytes, self._kept = parked, 0, list[tuple[str, Any]]()
        self._hurry = anyio.CancelScope()
        #: what was seen of it until a session has the process.
        self._attempt = command.attempt()
        self._closed = anyio.Event()
        self._read_all, self._doomed, self._cut_off = (anyio.Event() for _ in range(3))

    # --- life ----------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """True once a process was spawned: `on_dead` is then called once, when its tree is dead.

        The call comes up to `waits.LAST_WORDS` after `kill`, whoever called `kill`. For a tree that
        outlives the kill it comes late, and not after `close`.
        """
        return self._process is not None

    async def start(self, tasks: TaskGroup, *, lock_fd: int | None = None) -> None:
        """Start the process and initialize it; the caller sets the deadline.

        Raises StartFailed, OSError or RpcError. Then, and when cancelled, the process is killed.
        """
        patient = not self._parked
        process = await self.command.start(tasks, lock_fd, self._on_stderr, patient=patient)
        self._process, self.pid, self.light = process, process.pid, process.light
        event("agent.started", agent=self.name, pid=self.pid)
        stdin, stdout = process.take_pipes()
        reader = Reader(stdout, _READ_BYTES)
        writer: Outgoing = Writer(stdin, on_broken=self._cut_off.set)
        if trace := self.command.ends.trace:
            self._heard, writer = trace.of_agent(writer)
            self.peer.tell_lines(self._heard)
        self._writer = writer
        tasks.start_soon(self._live, process, writer, reader)
        if fetches(self.command.words):
            tasks.start_soon(self._wait_for_fetch)
        try:
            result = await self._initialize()
            if self.command.standing.kept:
                await self.command.standing.repeat(self)
        except BaseException:
            await self.end_start()
            raise
        self.initialized = result

    async def _initialize(self) -> dict[str, Any]:
        """Return the agent's answer to `initialize`, as version 1 has it; raises as `start`."""
        version = self.command.version
        if (asked := version.asks) != VERSION and (translated := self.command.ends.agent):
            heard = partial(_tell, self.on_batch_end)
            self._translated = self._lines = translated(self.peer, self._write, heard)
            if self._heard:
                self._translated.tell_lines(self._heard)
        try:
            result = numbered(await self.ask(INITIALIZE, dict(self.command.initialize)))
        except errors.AgentEnded:
            raise
        except RpcError as refusal:
            raise version.refused(asked, refusal) from refusal
        if self._translated and not self._translated.agreed and is_of_version_1(result):
            self._translated, self._lines = None, self.peer
            result = {**result, "protocolVersion": VERSION}
        agreed = self._translated is None or self._translated.agreed
        if not agreed or not isinstance(result, dict) or result.get("protocolVersion") != VERSION:
            raise version.refused(asked, None)
        version.settle(asked if self._translated else VERSION)
        return result

    async def _wait_for_fetch(self) -> None:
        """Let the time of the start begin anew as long as the agent is being fetched."""
        before = 0
        for _ in range(FETCH):
            if self.initialized or self.gone:
                return
            try:
                moved = await in_thread(bytes_moved, self.pid)
            except NoThread:
                return
            if moved is not None and moved > before + FETCHES:
                self.at_clients.begin_anew()
            before = moved or before
            await anyio.sleep(1)

    async def end_start(self) -> None:
        """Kill a process that could not be initialized; the owner gets no `on_gone` for that."""
        self._unfit = not self.gone
        with anyio.CancelScope(shield=True):
            await self.kill()

    async def _live(self, process: AgentProcess, writer: Outgoing, reader: Incoming) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer.run)
                tasks.start_soon(self._read, reader)
                tasks.start_soon(self._kill_doomed)
                tasks.start_soon(self._doom_cut_off)
                self._exit = await process.wait_exit()
                self._hurry.cancel()  # one pipe at most is still unread
                with anyio.move_on_after(waits.LAST_WORDS):
                    await process.wait_dead()
                    await self._read_all.wait()
                tasks.cancel_scope.cancel()
        except Exception as exc:  # the trouble of one process is no other's (invariant P6)
            errors.internal(exc, "an agent's pipe failed")
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._explain_end(process)
                    self._over()
                    killed = await self.kill()
                if killed or await process.wait_dead():  # a tree may outlive the kill for a while
                    self.dead.set()
                    _tell(self.owner.on_dead, self)
            finally:
                with anyio.CancelScope(shield=True):
                    await process.close(0)
                    writer.close()
                    reader.close()
                self._closed.set()

    async def _explain_end(self, process: AgentProcess) -> None:
        """Find out why the process ended, if it has not answered a request for a session."""
        if self._exit and self._asked_for_session:
            with anyio.move_on_after(waits.LAST_STDERR):
                await process.wait_stderr()
            self.why_ended = await self.why_not(errors.AgentEnded("", killed=False), OPENS)

    def _over(self) -> None:
        if self._exit:
            event("agent.exited", agent=self.name, how=self._exit.describe())
        self._lines.eof()
        self.gone = True
        if not self._unfit:
            _tell(self.owner.on_gone, self, self._exit)
        how = self._exit.describe() if self._exit else ""
        killed = self._exit is not None and self._exit.by_others
        self.peer.close(errors.AgentEnded(how, killed=killed))

    async def _next_bytes(self, reader: Incoming) -> bytes:
        lines, bound = self._lines, waits.REST_OF_MESSAGE
        return await next_bytes(reader, lines.decoder, lines.feed, bound)

    async def _read(self, reader: Incoming) -> None:
        while data := await self._next_bytes(reader):
            if not self.initialized:
                self._attempt.note_stdout(data)
            self._lines.feed(data)
            if self._parked_bytes > _PARKED_LIMIT:
                event("agent.floods", agent=self.name)
                self._doomed.set()
                break
            if self._exit is None:
                with anyio.CancelScope() as self._hurry:
                    await self.at_clients.room()
                    await self.owner.room(self)
        self._read_all.set()
        self._cut_off.set()

    async def _kill_doomed(self) -> None:
        await self._doomed.wait()
        await self.kill()

    async def _doom_cut_off(self) -> None:
        await self._cut_off.wait()
        await anyio.sleep(waits.CUT_OFF_GRACE)
        event("agent.cut_off", agent=self.name)
        self._was_cut_off = True
        self._doomed.set()

    async def kill(self) -> bool:
        """Kill the whole tree; returns False if it is not dead after `waits.KILL`."""
        return self._process is None or await self._process.kill()

    async def why_not(
        self, failure: Exception, method: str = INITIALIZE, within: float = 0.0
    ) -> RpcError:
        """Return the error that says why the process has come to no session; it is logged, too.

        `failure`: a StartFailed, the RpcError that answered the request `method`, or a TimeoutError
        if no answer came `within` so many seconds. No user's word has reached the process, so none
        is in its last lines.
        """
        if self.why_ended and isinstance(failure, errors.AgentEnded):
            return self.why_ended
        if self._process and (self.gone or not self.initialized):
            with anyio.move_on_after(waits.LAST_WORDS + waits.LAST_STDERR):
                await self._closed.wait()
        if isinstance(failure, RpcError) and failure.code == ErrorCode.AUTH_REQUIRED:
            return failure
        attempt, refusal = self._attempt, None
        match failure:
            case StartFailed():
                explain = partial(attempt.not_started, failure, spoke=self.started)
            case errors.AgentEnded():
                explain = partial(attempt.ended, self._exit, method, cut_off=self._was_cut_off)
            case RpcError():
                explain, refusal = partial(attempt.refused, failure, method), failure
            case _:
                explain = partial(attempt.silent, within, method)
        trouble = await done_in_any_case(explain)
        event("agent.not_ready", agent=self.name, text=trouble.details)
        return NotReady(trouble, refusal)

    async def with_lines(self, what: str) -> NotReady:
        """Return an error whose message is `what`, with the agent's last lines in its details."""
        return NotReady(await done_in_any_case(partial(self._attempt.beside, what)))

    async def close(self, grace: float) -> None:
        """Let the process end by itself within `grace` seconds, then kill the tree."""
        if self._process and self._writer:
            await self._writer.flush(min(grace, waits.CLOSE_ANSWER))
            self._writer.close()
            await self._process.close(grace)

    @property
    def noise(self) -> str | None:
        """The first line that was no ACP before the answer to `initialize`; None if none was."""
        return next(iter(self._attempt.noise), None)

    def hold_lock(self, lock_fd: int) -> None:
        """Let the guard hold the session's lock, too, until the tree is dead (invariant P12)."""
        if self._process:
            self._process.hold_lock(lock_fd)

    # --- requests ------------------------------------------------------------------------------

    def can(self, *path: str) -> bool:
        """Return True if `agentCapabilities` has this path as a true flag or an object."""
        return has(self.initialized.get("agentCapabilities"), *path)

    @property
    def speaks_v2(self) -> bool:
        """True for an agent whose messages are translated from version 2."""
        return self._translated is not None

    @property
    def activity(self) -> Activity | None:
        """What the agent says that it does in the session; None for one that speaks version 1."""
        translated = self._translated
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
        self._asked_for_session = True
        try:
            return await self.ask_for(origin, method, params)
        finally:
            self._asked_for_session = False

    def note_session(self) -> None:
        """Note that the process has come to a session: what it wrote until then is forgotten."""
        self._has_session = True
        self._attempt.forget()

    # --- parking -------------------------------------------------------------------------------

    def park(self) -> None:
        """Keep messages about sessions until `adopt`, as the agent is about to name its session."""
        self._parked, self.agent_session_id, self.children = True, None, set()
        self._kept, self._parked_bytes = [], 0

    def adopt(self, owner: Owner) -> None:
        """Tell `owner` everything from now on, first the kept messages about its session.

        What the agent says of a fork is kept until `take_fork`.
        """
        changed = owner is not self.owner
        self.owner = owner
        self._hurry.cancel()  # the owner before waits for a client no more
        if self.forked is None:
            self._unpark()
        if changed and self.gone:
            _tell(owner.on_gone, self, self._exit)
            if self.dead.is_set():
                _tell(owner.on_dead, self)

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

    # --- the agent's side of the wire ----------------------------------------------------------

    def on_request(self, call: Call) -> None:
        if call.method.startswith(OWN_PREFIX):
            raise errors.unknown_method(call.method)
        if call.method == SESSION_UPDATE:  # with an id, which some writers put into everything
            self.on_notification(call.method, call.params)
            self.peer.answer(call.id, None)
            return
        call = Call(call.id, call.method, self._as_named(call.params))
        several = self.children or self.forks.some
        call = agent_params.of_request(call, None if several else self.agent_session_id)
        if not self.forks.take_request(self.peer, call):
            self.owner.on_agent_request(self, call)

    def on_notification(self, method: str, params: Any) -> None:
        if method.startswith(OWN_PREFIX):
            event("agent.noise", agent=self.name, what="a notification that only a bridge sends")
            return
        params = self._as_named(params)
        named = isinstance(params, dict) and "sessionId" in params
        updates = method == SESSION_UPDATE and isinstance(params, dict)
        kind = kind_of(params) if updates else None
        if updates and not isinstance(kind, str):
            params = odd_updates.with_kind(params)
        if kind == SAID_UPDATE and self._translated is None:
            event("agent.noise", agent=self.name, what="an update that only a bridge makes")
        elif updates and not self._parked:
            if self._has(params.get("sessionId")):
                self.owner.on_update(self, params)
            elif not self.forks.take_update(params):
                event("agent.noise", agent=self.name, what="an update of another session")
        elif self._parked and method not in CANCEL_REQUESTS and (updates or named):
            self._kept.append((method, params))
            self._parked_bytes += len(encode(params))
        else:
            self._hand_over(method, params)

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

    def on_batch_end(self) -> None:
        self.owner.on_batch_end(self)

    def on_malformed(self, line: Malformed) -> None:
        event("agent.noise", agent=self.name, what=line.error.message)

    def _on_stderr(self, line: str) -> None:
        event("agent.log" if self.command.ours else "agent.stderr", agent=self.name, text=line)
        if not self._has_session:
            self._attempt.note_stderr(line)

    def _send(self, data: bytes) -> None:
        if self._translated:
            self._translated.send(data)
        else:
            self._write(data)

    def _write(self, data: bytes) -> None:
        if self._writer and self._writer.pending > _AGENT_LIMIT:
            event("agent.deaf", agent=self.name)
            self._writer.close()
            self._doomed.set()
        elif self._writer:
            self._writer.write(data)

    def _as_named(self, params: Any) -> Any:
        translated = self._translated is not None
        return agent_params.as_named(params, translated=translated, ours=self.command.ours)
