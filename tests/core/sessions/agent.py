"""An agent in memory: the test scripts its answers, and decides when its processes end."""

import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from acp_bridge.core.agents.connection import AgentCommand, Connection, OfSession
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.agents.process_pool import ProcessPool
from acp_bridge.core.protocol import VERSION, VERSION_2
from acp_bridge.core.wire.jsonrpc import Decoder, Malformed, RpcError, encode
from tests.support.waiting import until as until

Json = dict[str, Any]
KILLED = Exit(None, 9)
ABLE: Json = {"list": {}, "resume": {}, "close": {}, "delete": {}}


class Gate:
    """A place at which the agent stops until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = 0
        self._opened = anyio.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> None:
        self.reached += 1
        await self._opened.wait()


class Process(Connection):
    """One process of the agent; each of its requests is answered by a task of its own."""

    def __init__(
        self,
        agent: "Agent",
        command: AgentCommand,
        name: str,
        processes: ProcessPool[OfSession] | None,
    ) -> None:
        super().__init__(command, name, processes)
        self.agent = agent
        #: everything that it was sent, in order.
        self.received: list[Json] = []
        #: seconds that it was given to end by itself, if it was closed.
        self.grace: float | None = None
        self._decoder = Decoder()
        self._spawned = False
        self._tasks: TaskGroup | None = None
        self._ended = anyio.Event()
        self._locks: list[int] = []
        #: the number of the session that it made last.
        self.opened = 0

    # --- life ----------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        return self._spawned

    @property
    def link(self) -> Link:
        """That of the session that it got last."""
        return self.places[-1]

    @property
    def places(self) -> list[Link]:
        """The links of all its sessions, in the order in which they came."""
        return [link for link in self.links if isinstance(link, Link)]

    @property
    def agent_session_id(self) -> str | None:
        return self.link.agent_session_id

    @property
    def owner(self) -> Owner:
        return self.link.owner

    @property
    def lives(self) -> bool:
        return self._spawned and not self.dead.is_set()

    async def start(self, tasks: TaskGroup, *, lock_fd: int | None, patient: bool) -> None:
        await anyio.lowlevel.checkpoint()
        if self.agent.unstartable:
            raise self.agent.unstartable
        self._spawned = True
        self.note_spawned()
        if lock_fd is not None:
            self.hold_lock(lock_fd)
        try:
            await tasks.start(self._run)
            if self.agent.version == VERSION_2:
                self.command.version.asks = VERSION_2
                initialized = await self._initialize()
            else:
                initialized = await self.ask("initialize", dict(self.command.initialize))
            await self.command.standing.repeat(self)
            self.note_initialized(initialized)
        except BaseException:
            await self.end_start()
            raise

    async def _run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await self._ended.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            self.dies()

    def exits(self, how: Exit = KILLED) -> None:
        """End the main process; the rest of its tree lives on."""
        if not self.gone:
            self.exit = how
            self.over()

    def dies(self, how: Exit = KILLED) -> None:
        """End the whole tree."""
        self.exits(how)
        self._ended.set()
        while self._locks:
            os.close(self._locks.pop())
        if not self.dead.is_set():
            self.is_dead()

    async def kill(self) -> bool:
        await anyio.lowlevel.checkpoint()
        if self._spawned:
            await self.agent.dying.passed()
            self.dies()
        return True

    async def close(self, grace: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.grace = grace
        self.dies(Exit(0, None))

    def hold_lock(self, lock_fd: int) -> None:
        """Hold the lock as a guard does, with a descriptor of its own."""
        if not self.dead.is_set():
            self._locks.append(os.dup(lock_fd))

    async def return_lock(self, lock_fd: int) -> bool:
        """Let go of the lock as a guard does."""
        await anyio.lowlevel.checkpoint()
        file = os.fstat(lock_fd)
        for held in [held for held in self._locks if os.path.samestat(os.fstat(held), file)]:
            self._locks.remove(held)
            os.close(held)
        return True

    # --- what it says --------------------------------------------------------------------------

    def says(self, *messages: Json) -> None:
        """Send messages, all in one read."""
        self._lines.feed(b"".join(encode({"jsonrpc": "2.0", **message}) for message in messages))

    def update(self, session_id: str, text: str) -> None:
        """Say a message of its own in a session."""
        content = {"type": "text", "text": text}
        self.shows(
            session_id,
            {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": text},
        )

    def shows(self, session_id: str | None, update: Json) -> None:
        """Send an update of a session."""
        params = {"sessionId": session_id, "update": update}
        self.says({"method": "session/update", "params": params})

    def params(self, method: str) -> list[Any]:
        """Return the parameters of everything that it was sent of this method."""
        sent = [message for message in self.received if message.get("method") == method]
        return [message.get("params") for message in sent]

    def methods(self) -> list[str]:
        """Return the methods of everything that it was sent, in order."""
        return [message["method"] for message in self.received if "method" in message]

    def _write(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            assert not isinstance(message, Malformed)
            self.received.append(message)
            if "method" in message and "id" in message and self._tasks and not self.gone:
                self._tasks.start_soon(self._answer, message)

    async def _answer(self, message: Json) -> None:
        answer = self.agent.script[message["method"]]
        try:
            result = await answer(self, message.get("params")) if callable(answer) else answer
            if isinstance(result, RpcError):
                raise result
        except RpcError as exc:
            self.says({"id": message["id"], "error": exc.to_wire()})
        else:
            about = (message.get("params") or {}).get("sessionId")
            link = next((link for link in self.places if link.is_about(about)), None)
            updates = getattr(link and link.owner, "_updates", None)
            if message["method"] == "session/prompt" and updates and not self.agent.mute:
                updates.spoke = True  # a word about which no test asks
            self.says({"id": message["id"], "result": result})


Script: TypeAlias = Callable[[Process, Json], Awaitable[Any]]


class Agent:
    """All processes of one agent. `script` has, by method, an answer or what gives it."""

    def __init__(self, *, loads: bool = True, able: Json | None = None) -> None:
        """`able`: its `sessionCapabilities`, by default all that the bridge knows."""
        self.processes: list[Process] = []
        #: the version of ACP that it speaks.
        self.version = VERSION
        #: it ends turns without a word, unless the test lets it say some.
        self.mute = False
        #: raised instead of a start.
        self.unstartable: Exception | None = None
        #: passed by every process that is killed; open at first.
        self.dying = Gate()
        self.dying.open()
        #: the rows that it lists.
        self.rows: list[Json] = []
        #: what it replays of each session when it loads it.
        self.history: list[str] = []
        can = {"loadSession": loads, "sessionCapabilities": ABLE if able is None else able}
        self.script: dict[str, Any] = {
            "initialize": {"protocolVersion": 1, "agentCapabilities": can},
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": {},
            "session/prompt": self._prompt,
            "session/list": self._list,
            "session/close": {},
            "session/delete": {},
            "authenticate": {},
            "logout": {},
        }

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if process.lives]

    def new_link(
        self,
        command: AgentCommand,
        owner: Owner,
        name: str,
        processes: ProcessPool[OfSession] | None = None,
        *,
        parked: bool = False,
    ) -> Link:
        self.processes.append(Process(self, command, name, processes))
        return Link(self.processes[-1], owner, name, parked=parked)

    def params(self, method: str) -> list[Any]:
        """Return the parameters of everything that all processes were sent of this method."""
        return [params for process in self.processes for params in process.params(method)]

    def stops_at(self, method: str) -> Gate:
        """Let the agent stop before it answers this method as it would have."""
        gate, before = Gate(), self.script[method]

        async def stop(process: Process, params: Json) -> Any:
            await gate.passed()
            return await before(process, params) if callable(before) else before

        self.script[method] = stop
        return gate

    async def _new(self, process: Process, params: Json) -> Json:
        taken = {link.agent_session_id for link in process.places}
        session_id = ""
        while session_id in taken | {""}:
            process.opened += 1
            further = f"-{process.opened}" if process.opened > 1 else ""
            session_id = f"agent-{self.processes.index(process) + 1}{further}"
        return {"sessionId": session_id}

    async def _load(self, process: Process, params: Json) -> Json:
        for text in self.history:
            process.update(params["sessionId"], text)
        return {}

    async def _prompt(self, process: Process, params: Json) -> Json:
        process.update(params["sessionId"], f"echo {params['prompt'][0]['text']}")
        return {"stopReason": "end_turn"}

    async def _list(self, process: Process, params: Json) -> Json:
        return {"sessions": self.rows}
