"""ACP to one agent process: started, initialized, listened to until its tree is dead.

- One link is one process and one epoch; it never comes back.
- The agent's pipe is read to its end before the owner is told of the exit, so an answer written
  just before it counts (HAZARDS P3).
- A process that has closed a pipe and lives on is as good as dead, and ended (P3).
- Until a session owns the link, what the agent says of sessions is kept in order (P8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup

from acp_bridge import errors
from acp_bridge.agents.owner import Owner
from acp_bridge.agents.process import AgentProcess, Exit, StartFailed
from acp_bridge.log import event
from acp_bridge.wire.jsonrpc import Answer, Err, Malformed, Ok, RequestId
from acp_bridge.wire.peer import Call, Peer
from acp_bridge.wire.stdio import Reader, Writer

#: seconds for the rest of a dead agent's output; its pipe has ended unless it was handed on.
_LAST_WORDS = 0.2
#: seconds for a process that has closed its stdin or stdout to end by itself.
_CUT_OFF_GRACE = 1.0
#: bytes of one read, and so of one transaction: what a pipe holds.
_READ_BYTES = 64 * 1024
#: bytes that may wait for an agent that doesn't read; more and it is ended.
_AGENT_LIMIT = 64 * 1024 * 1024
#: bytes that an agent may say before its session has a name; more and it is ended.
_EARLY_LIMIT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """How agents are started: the words, the environment, what `initialize` tells them."""

    words: tuple[str, ...]
    env: Mapping[str, str] | None
    initialize: Mapping[str, Any]


class Link:
    """One agent process. Made by `start`, ended by `kill` or `close`."""

    def __init__(
        self, command: AgentCommand, owner: Owner, name: str, *, parked: bool = False
    ) -> None:
        """`parked`: what the agent says of sessions is kept until `adopt`."""
        self.command = command
        self.owner = owner
        self.name = name  # for the log
        self.peer = Peer(self, self._send, answer_malformed=False, internal_error=errors.internal)
        #: the result of `initialize`.
        self.initialized: dict[str, Any] = {}
        #: which process of its session this is.
        self.epoch = 0
        #: the session's id at the agent, once it has one.
        self.agent_session_id: str | None = None
        #: requests that were sent for the client: our id -> the client's.
        self.on_behalf: dict[object, RequestId] = {}
        #: `authenticate` was repeated for it.
        self.authenticated = False
        #: the process has ended: what its requests get now is no answer of the agent.
        self.gone = False
        self.dead = anyio.Event()
        self._process: AgentProcess | None = None
        self._writer: Writer | None = None
        self._parked = parked
        self._early: list[tuple[str, Any]] = []
        self._early_bytes = 0
        self._read_all = anyio.Event()
        self._hurry = anyio.CancelScope()
        self._doomed = anyio.Event()
        self._cut_off = anyio.Event()

    # --- life ----------------------------------------------------------------------------------

    async def start(
        self, tasks: TaskGroup, *, cwd: str | None = None, lock_fd: int | None = None
    ) -> None:
        """Start the process and initialize it. Unbounded: the caller sets the deadline.

        Raises StartFailed or RpcError (the agent's answer to `initialize`); then, and when
        cancelled, the process is ended.
        """
        process = await AgentProcess.start(
            tasks,
            self.command.words,
            cwd=cwd,
            env=self.command.env,
            lock_fd=lock_fd,
            on_stderr=self._on_stderr,
        )
        self._process = process
        event("agent.started", agent=self.name, pid=process.pid)
        stdin, stdout = process.take_pipes()
        writer = self._writer = Writer(stdin, on_broken=self._cut_off.set)
        reader = Reader(stdout, _READ_BYTES)
        tasks.start_soon(self._live, process, writer, reader)
        try:
            result = await self.ask("initialize", dict(self.command.initialize))
            if not isinstance(result, dict) or result.get("protocolVersion") != 1:
                raise StartFailed("the agent does not speak ACP version 1", permanent=True)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.kill()
            raise
        self.initialized = result

    async def _live(self, process: AgentProcess, writer: Writer, reader: Reader) -> None:
        exit_: Exit | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer.run)
                tasks.start_soon(self._read, reader)
                tasks.start_soon(self._kill_doomed)
                tasks.start_soon(self._doom_cut_off)
                exit_ = await process.wait_exit()
                self._hurry.cancel()  # what is left is one pipe at most
                with anyio.move_on_after(_LAST_WORDS):
                    await process.wait_dead()
                    await self._read_all.wait()
                tasks.cancel_scope.cancel()
        except Exception as exc:  # no other process's trouble (HAZARDS P6)
            errors.internal(exc, "an agent's pipe failed")
        finally:
            with anyio.CancelScope(shield=True):
                self._over(exit_)
                if await self.kill():
                    _contained(self.owner.on_dead, self)
                await process.close(0)
                writer.close()
                reader.close()
                self.dead.set()

    def _over(self, exit_: Exit | None) -> None:
        if exit_:
            event("agent.exited", agent=self.name, how=exit_.describe())
        self.peer.eof()
        self.gone = True
        _contained(self.owner.on_gone, self, exit_)
        how = f" ({exit_.describe()})" if exit_ else ""
        self.peer.close(errors.agent_trouble(f"the agent's process has ended{how}"))

    async def _read(self, reader: Reader) -> None:
        while data := await reader.read():
            self.peer.feed(data)
            self._early_bytes += len(data) if self._parked else 0
            if self._early_bytes > _EARLY_LIMIT:
                event("agent.floods", agent=self.name)
                self._doomed.set()
                break
            if not self._hurry.cancel_called:
                with anyio.CancelScope() as self._hurry:
                    await self.owner.room(self)
        self._read_all.set()
        self._cut_off.set()

    async def _kill_doomed(self) -> None:
        await self._doomed.wait()
        await self.kill()

    async def _doom_cut_off(self) -> None:
        await self._cut_off.wait()
        await anyio.sleep(_CUT_OFF_GRACE)
        event("agent.cut_off", agent=self.name)
        self._doomed.set()

    async def kill(self) -> bool:
        """Kill the whole tree; True when it is dead, False when it isn't after a bound."""
        return self._process is None or await self._process.kill()

    async def close(self, grace: float) -> None:
        """Let the process end by itself within `grace` seconds, then kill the tree."""
        if self._process and self._writer:
            await self._writer.flush(grace)
            self._writer.close()
            await self._process.close(grace)

    def hold_lock(self, lock_fd: int) -> None:
        """Let the guard hold the session's lock until the tree is dead (P12)."""
        if self._process:
            self._process.hold_lock(lock_fd)

    # --- capabilities --------------------------------------------------------------------------

    def can(self, *path: str) -> bool:
        """Whether `agentCapabilities` has this: a true flag or an object (null means no)."""
        at: Any = self.initialized.get("agentCapabilities")
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        return at is not None and at is not False

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The agent's answer; raises RpcError."""
        return await self.ask_for(None, method, params)

    def request_for(
        self, call: Call | None, method: str, params: Any, on_answer: Callable[[Answer], None]
    ) -> int:
        """Send a request, on behalf of the client's `call` if there is one; returns its id."""

        def settled(answer: Answer) -> None:
            self.on_behalf.pop(request_id, None)
            on_answer(answer)

        request_id = 0
        request_id = self.peer.request(method, params, settled)
        if call and not self.dead.is_set():
            self.on_behalf[request_id] = call.id
        return request_id

    async def ask_for(self, call: Call | None, method: str, params: Any) -> Any:
        """The agent's answer to a request on behalf of the client's `call`; raises RpcError."""
        answers: list[Answer] = []
        settled = anyio.Event()

        def on_answer(answer: Answer) -> None:
            answers.append(answer)
            settled.set()

        request_id = self.request_for(call, method, params, on_answer)
        try:
            await settled.wait()
        except BaseException:
            self.peer.cancel(request_id)
            raise
        match answers[0]:
            case Ok(result):
                return result
            case Err(error):
                raise error

    def park(self) -> None:
        """The agent is about to name its session anew: keep what it says until `adopt`."""
        self._parked, self.agent_session_id = True, None

    # --- the agent's side of the wire ----------------------------------------------------------

    def adopt(self, owner: Owner) -> None:
        """A session takes the process over, and with it what the agent said so far."""
        self.owner, self._parked = owner, False
        early, self._early = self._early, []
        for method, params in early:
            if params["sessionId"] == self.agent_session_id:  # else of one that came to nothing
                self._hand_over(method, params)
        owner.on_batch_end(self)

    def on_request(self, call: Call) -> None:
        self.owner.on_agent_request(self, call)

    def on_notification(self, method: str, params: Any) -> None:
        if method == "session/update" and not self._parked and isinstance(params, dict):
            if params.get("sessionId") == self.agent_session_id:
                self.owner.on_update(self, params)
            else:
                event("agent.noise", agent=self.name, what="an update of another session")
        elif self._parked and isinstance(params, dict) and "sessionId" in params:
            self._early.append((method, params))
        else:
            self._hand_over(method, params)

    def _hand_over(self, method: str, params: Any) -> None:
        if method == "session/update":
            if isinstance(params, dict):
                self.owner.on_update(self, params)
        else:
            self.owner.on_agent_notification(self, method, params)

    def on_batch_end(self) -> None:
        self.owner.on_batch_end(self)

    def on_malformed(self, line: Malformed) -> None:
        event("agent.noise", agent=self.name, what=line.error.message)

    def _on_stderr(self, line: str) -> None:
        event("agent.stderr", agent=self.name, text=line)

    def _send(self, data: bytes) -> None:
        if self._writer is None:
            return
        if self._writer.pending > _AGENT_LIMIT:
            event("agent.deaf", agent=self.name)
            self._writer.close()
            self._doomed.set()
            return
        self._writer.write(data)


def _contained(tell: Callable[..., None], *what: object) -> None:
    try:
        tell(*what)
    except Exception as exc:
        errors.internal(exc, "the owner of an agent failed")
