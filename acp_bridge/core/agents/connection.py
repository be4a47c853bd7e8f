"""The connection to one agent process: started, initialized, read until its tree is dead.

- A connection is one process; it is never started a second time.
- It has a `Link` for each session that the process has, or is about to have. What the agent says
  of a session goes to that session's link.
- The agent's stdout is read to its end before owners are told of the exit, so an answer written
  just before it counts (invariant P3).
- A process that has closed a pipe and lives on can serve nobody, so it is killed (invariant P3).
- An agent can't speak in the bridge's name: the bridge's own methods are refused, and its marks are
  dropped from what the agent says (invariant V6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents import agent_params
from acp_bridge.core.agents.birth import Newborn
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.descendants import bytes_moved
from acp_bridge.core.agents.failed_start import FETCH, FETCHES, OPENS, Attempt, NotReady, fetches
from acp_bridge.core.agents.parent import AgentParent
from acp_bridge.core.agents.process import AgentProcess, Exit, StartFailed
from acp_bridge.core.agents.process_pool import PooledProcess, ProcessPool
from acp_bridge.core.agents.requests import AtClients, Login, Requests, agent_peer
from acp_bridge.core.agents.spoken_version import SpokenVersion, is_of_version_1
from acp_bridge.core.agents.standing import StandingRequests
from acp_bridge.core.ends import AgentOfVersion2, Ends
from acp_bridge.core.protocol import (
    CANCEL_REQUESTS,
    INITIALIZE,
    OWN_PREFIX,
    SESSION_UPDATE,
    VERSION,
    ErrorCode,
    has,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, done_in_any_case, in_thread
from acp_bridge.core.updates import odd_updates
from acp_bridge.core.updates.odd_answers import numbered
from acp_bridge.core.wire.jsonrpc import Heard, Malformed, RequestId, RpcError, withdrawn
from acp_bridge.core.wire.peer import Call
from acp_bridge.core.wire.runs import Run
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.core.wire.streams import Incoming, Lines, Outgoing, next_bytes

#: bytes of one read, and so of one transaction of the journal: what a pipe holds.
_READ_BYTES = 64 * 1024
#: bytes that may wait for an agent that doesn't read; with more than that it is killed.
_AGENT_LIMIT = 64 * 1024 * 1024
#: bytes that an agent may say while its links are parked; with more it is killed.
_PARKED_LIMIT = 16 * 1024 * 1024
#: calls an owner; its exception is logged, and does not stop the clean-up.
tell_owner: Final = partial(errors.contained, what="the owner of an agent failed")


class OfSession(Protocol):
    """One session's place in the process (`link.Link`)."""

    at_clients: AtClients
    #: the session's id at the agent, once it has one.
    agent_session_id: str | None
    #: the requests of the session's clients, by the agent's ids.
    on_behalf: Mapping[RequestId, object]
    #: bytes that the agent has said of sessions while the place is parked.
    parked_bytes: int
    #: the agent has a request that opens the session, and has not answered it.
    opening: bool

    @property
    def awaits_its_id(self) -> bool:
        """True while the agent is about to name the session."""

    def is_about(self, session_id: object) -> bool:
        """Return True if the agent means this session, or what belongs to it, by the id."""

    def on_request(self, call: Call) -> None:
        """Handle a request of the agent's."""

    def on_notification(self, method: str, params: Any) -> None:
        """Handle a notification of the agent's."""

    def on_run(self, run: Run) -> None:
        """Handle a run of text updates."""

    def on_batch_end(self) -> None:
        """Note that everything of one read has been handed over."""

    async def room(self) -> None:
        """Wait until more of the agent's output may be read."""

    def note_occupied(self) -> None:
        """Note that the process works for another session now, or not any more."""

    def is_gone(self) -> None:
        """Note that the process has ended and was read to its end; its tree may be alive."""

    def is_dead(self) -> None:
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
    #: processes that were started already, each for one start that begins without a lock.
    early: list[Newborn] = field(default_factory=list)

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
            newborn=self.early.pop() if self.early and lock_fd is None else None,
        )

    async def end_early(self) -> None:
        """Kill the processes that no start has taken."""
        while self.early:
            event("agent.unwanted", agent=self.name)
            await AgentProcess(None, newborn=self.early.pop()).discard()


def can_share(capabilities: object) -> bool:
    """Return True if an agent can give a session up to another process, and take it up there."""
    takes_up = has(capabilities, "loadSession") or has(
        capabilities, "sessionCapabilities", "resume"
    )
    return takes_up and has(capabilities, "sessionCapabilities", "close")


class Connection:
    """One agent process, started by `start` and ended by `kill` or `close`."""

    #: stands between the peer and an agent that speaks version 2.
    translated: AgentOfVersion2 | None = None
    #: reads the agent's lines.
    _lines: Lines
    #: is told of the agent's lines, for a trace.
    _heard: Heard | None = None
    #: why it ended before it answered the request for a session; None if it did not.
    why_ended: RpcError | None = None
    _has_session = _was_cut_off = False

    def __init__(
        self, command: AgentCommand, name: str, processes: ProcessPool[OfSession] | None = None
    ) -> None:
        """`name` is for the log. `processes`: those that the process is one of while it lives."""
        self.command = command
        self.name = name
        self.peer = self._lines = agent_peer(self, self._send)
        self.peer.take_runs(odd_updates.TEXT, odd_updates.is_words, self.on_run)
        #: the sessions that the process has or is about to have, and which of them work.
        self.links: PooledProcess[OfSession] = PooledProcess()
        self._processes = processes
        #: the result of `initialize`; empty until the process was sent the `StandingRequests`.
        self.initialized: dict[str, Any] = {}
        #: the id of the main process, once it is started.
        self.pid = 0
        #: the process is to be replaced before a prompt (`agents.parent`).
        self.light = False
        #: the process has ended: answers to its requests are the bridge's own from now on.
        self.gone = False
        #: set when no process of the tree is left, just before the owners are told.
        self.dead = anyio.Event()
        #: how the main process has ended; None while it lives.
        self.exit: Exit | None = None
        #: it is killed because it could not be initialized: `start` raises the reason.
        self._unfit = False
        self._process: AgentProcess | None = None
        self._writer: Outgoing | None = None
        self.login = Login()
        self._requests = Requests(self.peer, self.login)
        self._hurry = anyio.CancelScope()
        #: what was seen of it until a session has the process.
        self._attempt = command.attempt()
        self._closed = anyio.Event()
        self._read_all, self._doomed, self._cut_off = (anyio.Event() for _ in range(3))

    # --- life ----------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """True once a process was spawned."""
        return self._process is not None

    async def start(self, tasks: TaskGroup, *, lock_fd: int | None, patient: bool) -> None:
        """Start the process and initialize it; the caller sets the deadline.

        Raises StartFailed, OSError or RpcError. Then, and when cancelled, the process is killed.
        """
        process = await self.command.start(tasks, lock_fd, self._on_stderr, patient=patient)
        self._process, self.pid, self.light = process, process.pid, process.light
        self.note_spawned()
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
        self.note_initialized(result)

    def note_spawned(self) -> None:
        """Note that there is a process now."""
        if self._processes:
            self._processes.add(self.links)

    def note_initialized(self, result: dict[str, Any]) -> None:
        """Note that the process is ready for a session; `result` is that of `initialize`."""
        self.initialized = result
        self.links.note_initialized()

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Return the agent's result for a request that is about no session; raises RpcError."""
        return await self._requests.ask(None, method, params)

    async def _initialize(self) -> dict[str, Any]:
        """Return the agent's answer to `initialize`, as version 1 has it; raises as `start`."""
        version = self.command.version
        if (asked := version.asks) != VERSION and (translated := self.command.ends.agent):
            heard = partial(tell_owner, self.on_batch_end)
            self.translated = self._lines = translated(self.peer, self._write, heard)
            if self._heard:
                self.translated.tell_lines(self._heard)
        try:
            result = numbered(await self.ask(INITIALIZE, dict(self.command.initialize)))
        except errors.AgentEnded:
            raise
        except RpcError as refusal:
            raise version.refused(asked, refusal) from refusal
        if self.translated and not self.translated.agreed and is_of_version_1(result):
            self.translated, self._lines = None, self.peer
            result = {**result, "protocolVersion": VERSION}
        agreed = self.translated is None or self.translated.agreed
        if not agreed or not isinstance(result, dict) or result.get("protocolVersion") != VERSION:
            raise version.refused(asked, None)
        version.settle(asked if self.translated else VERSION)
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
                for link in self.links:
                    link.at_clients.begin_anew()
            before = moved or before
            await anyio.sleep(1)

    async def end_start(self) -> None:
        """Kill a process that could not be initialized; no owner gets `on_gone` for that."""
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
                self.exit = await process.wait_exit()
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
                    self.over()
                    killed = await self.kill()
                if killed or await process.wait_dead():  # a tree may outlive the kill for a while
                    self.is_dead()
            finally:
                with anyio.CancelScope(shield=True):
                    await process.close(0)
                    writer.close()
                    reader.close()
                self._closed.set()

    async def _explain_end(self, process: AgentProcess) -> None:
        """Find out why the process ended, if it has not answered a request for a session."""
        if self.exit and any(link.opening for link in self.links):
            with anyio.move_on_after(waits.LAST_STDERR):
                await process.wait_stderr()
            self.why_ended = await self.why_not(errors.AgentEnded("", killed=False), OPENS)

    def over(self) -> None:
        """Tell the owners that the process has ended and was read to its end."""
        if self.exit:
            event("agent.exited", agent=self.name, how=self.exit.describe())
        self._lines.eof()
        self.gone = True
        if self._processes:
            self._processes.remove(self.links)
        for link in () if self._unfit else tuple(self.links):
            link.is_gone()
        how = self.exit.describe() if self.exit else ""
        killed = self.exit is not None and self.exit.by_others
        self.peer.close(errors.AgentEnded(how, killed=killed))

    def is_dead(self) -> None:
        """Tell the owners that no process of the tree is left."""
        self.dead.set()
        for link in tuple(self.links):
            link.is_dead()

    async def _next_bytes(self, reader: Incoming) -> bytes:
        lines, bound = self._lines, waits.REST_OF_MESSAGE
        return await next_bytes(reader, lines.decoder, lines.feed, bound)

    async def _read(self, reader: Incoming) -> None:
        while data := await self._next_bytes(reader):
            if not self.initialized:
                self._attempt.note_stdout(data)
            self._lines.feed(data)
            if sum(link.parked_bytes for link in self.links) > _PARKED_LIMIT:
                event("agent.floods", agent=self.name)
                self._doomed.set()
                break
            if self.exit is None:
                with anyio.CancelScope() as self._hurry:
                    for link in self.links.paced:
                        await link.room()
        self._read_all.set()
        self._cut_off.set()

    def hurry(self) -> None:
        """Read on, whatever owners have waited for."""
        self._hurry.cancel()

    async def _kill_doomed(self) -> None:
        await self._doomed.wait()
        self.doom()
        await self.kill()

    async def _doom_cut_off(self) -> None:
        await self._cut_off.wait()
        await anyio.sleep(waits.CUT_OFF_GRACE)
        event("agent.cut_off", agent=self.name)
        self._was_cut_off = True
        self._doomed.set()

    def doom(self) -> None:
        """Note that the process is to be killed, or to end: no session at rest prompts it, and none
        comes to it.
        """
        for link in self.links.doom():
            link.note_occupied()

    async def kill(self) -> bool:
        """Kill the whole tree; returns False if it is not dead after `waits.KILL`."""
        return self._process is None or await self._process.kill()

    async def why_not(
        self, failure: Exception, method: str = INITIALIZE, within: float = 0.0
    ) -> RpcError:
        """Return the error that says why the process has come to no session; see `Link.why_not`."""
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
                explain = partial(attempt.ended, self.exit, method, cut_off=self._was_cut_off)
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

    def note_session(self) -> None:
        """Note that the process has come to a session: what it wrote until then is forgotten."""
        self._has_session = True
        self._attempt.forget()

    def hold_lock(self, lock_fd: int) -> None:
        """Let the guard hold a session's lock, too, until the tree is dead (invariant P12)."""
        if self._process:
            self._process.hold_lock(lock_fd)

    async def return_lock(self, lock_fd: int) -> bool:
        """Let the guard let go of a session's lock; returns False if it has not done so in time."""
        return self._process is None or await self._process.return_lock(lock_fd)

    def can(self, *path: str) -> bool:
        """Return True if `agentCapabilities` has this path as a true flag or an object."""
        return has(self.initialized.get("agentCapabilities"), *path)

    # --- the agent's side of the wire ----------------------------------------------------------

    def on_request(self, call: Call) -> None:
        if call.method.startswith(OWN_PREFIX):
            raise errors.unknown_method(call.method)
        if call.method == SESSION_UPDATE:  # with an id, which some writers put into everything
            self.on_notification(call.method, call.params)
            self.peer.answer(call.id, None)
            return
        call = Call(call.id, call.method, self._as_named(call.params))
        if links := self._links_of(call.params):
            links[0].on_request(call)
        else:
            event("agent.noise", agent=self.name, what="a request about another session")
            self.peer.fail(call.id, errors.cancelled())

    def on_run(self, run: Run) -> None:
        """Pass a run of text updates to the session that it is about."""
        links = self._links_of(run.message["params"])
        for link in links:
            link.on_run(run)
        if not links:
            event("agent.noise", agent=self.name, what="a message about another session")

    def on_notification(self, method: str, params: Any) -> None:
        if method.startswith(OWN_PREFIX):
            event("agent.noise", agent=self.name, what="a notification that only a bridge sends")
            return
        if isinstance(params, dict) and ("_meta" in params or "session_id" in params):
            params = self._as_named(params)
        if (only := self.links.only) is not None:
            only.on_notification(method, params)
            return
        if method in CANCEL_REQUESTS:
            links = [link for link in self.links if link.at_clients.has_id(withdrawn(params))]
        else:
            links = self._links_of(params)
        for link in links:
            link.on_notification(method, params)
        if not links:
            event("agent.noise", agent=self.name, what="a message about another session")

    def _links_of(self, params: Any) -> list[OfSession]:
        """Return the link of the session that a message is about.

        The only link gets everything. There are several if any of the sessions may be meant that
        the agent has not named yet, and none if none of the process's sessions is meant.
        """
        if (only := self.links.only) is not None:
            return [only]
        about = params if isinstance(params, dict) else {}
        session_id, origin = about.get("sessionId"), about.get("requestId")
        for link in self.links:
            if link.is_about(session_id) or (origin is not None and origin in link.on_behalf):
                return [link]
        unnamed = [link for link in self.links if link.awaits_its_id]
        if session_id is not None:
            return unnamed
        return [self.links.only_working or next(iter(unnamed or self.links))] if self.links else []

    def on_batch_end(self) -> None:
        for link in tuple(self.links):
            link.on_batch_end()

    def on_malformed(self, line: Malformed) -> None:
        event("agent.noise", agent=self.name, what=line.error.message)

    def _on_stderr(self, line: str) -> None:
        event("agent.log" if self.command.ours else "agent.stderr", agent=self.name, text=line)
        if not self._has_session:
            self._attempt.note_stderr(line)

    def _send(self, data: bytes) -> None:
        if self.translated:
            self.translated.send(data)
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
        translated = self.translated is not None
        return agent_params.as_named(params, translated=translated, ours=self.command.ours)
