"""The sessions of a bridge without the bridge: a real registry, journal and client, in memory."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.agents import lease
from acp_bridge.core.agents.connection import AgentCommand
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.clients.client import Client, ClientRequest, Work
from acp_bridge.core.journal import Journal
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions import params as check
from acp_bridge.core.sessions.elsewhere import Elsewhere
from acp_bridge.core.sessions.pool import Pool
from acp_bridge.core.sessions.registry import Sessions
from acp_bridge.core.settings import Settings
from tests.core import plugged
from tests.core.sessions.agent import Agent, Json, Process, until
from tests.core.sessions.editor import Editor

CWD = "/w"
SETUP: Json = {"cwd": CWD, "mcpServers": []}
#: seconds that a test, or one step of a long one, may take; each wait in it has a bound of its own
BOUND = 60


class MemoryContext(SessionContext):
    """Its processes are those of an agent in memory."""

    def __init__(self, agent: Agent, settings: Settings, tasks: TaskGroup) -> None:
        plugs = plugged.PLUGGED
        command = AgentCommand(settings.command, {"protocolVersion": 1}, ends=plugs.ends)
        super().__init__(settings, Journal(settings.home), tasks, command)
        self.plugins = plugs.plugins
        self.capabilities = agent.script["initialize"].get("agentCapabilities")
        self.agent = agent

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        return self.agent.new_link(self.command, owner, name, self.processes, parked=parked)


def settings(home: Path, agent_name: str = "agent", **more: Any) -> Settings:
    """Return settings of which the waits are over at once: for another bridge's lock, for an agent
    that may end by itself, for one that may heed a cancel."""
    fast = {"close_grace": 0, "lease_timeout": 0, "drain_timeout": 0, "process_per_session": False}
    return Settings((agent_name,), agent_name, home, **{**fast, **more})


class World:
    """A registry that is asked by one client, `editor`."""

    def __init__(self, context: MemoryContext, bound: anyio.CancelScope) -> None:
        """`bound`: ends the test when its time is up."""
        self.bound = bound
        self.agent, self.context, self.journal = context.agent, context, context.journal
        self.editor = Editor(self)
        self.pool = Pool(context, lambda: self.editor.client, 60)
        self.sessions = Sessions(context, self.pool, Elsewhere)
        #: changes how a request is answered: by default not at all.
        self.around: Callable[[Work], Work] = lambda work: work

    @property
    def in_use(self) -> list[Process]:
        """The processes that live and don't wait in the pool."""
        waits = self.pool.link.connection if self.pool.link else None
        return [process for process in self.agent.living if process is not waits]

    # --- clients.client.ClientHandler ----------------------------------------------------------

    def on_client_request(self, request: ClientRequest) -> None:
        of_session, what = request.method.split("/")
        assert of_session == "session"
        if what == "prompt":
            session = self.sessions.live[check.session_id(request.params)]
            session.on_prompt(request, request.params)
        elif what == "set_mode":
            self.sessions.live[request.params["sessionId"]].to_agent.pass_on(request)
        else:
            ends = what in ("close", "delete")
            work = self.around(getattr(self.sessions.ending if ends else self.sessions, what))
            request.client.run(self.context.tasks, request, work, request.params)

    def on_client_notification(self, client: Client, method: str, params: Any) -> None:
        assert method == "$/cancel_request"
        client.cancel_request(params["requestId"])

    # --- what tests do with sessions -----------------------------------------------------------

    async def new(self) -> str:
        """Make a session; returns its id."""
        session_id: str = (await self.editor.ask("session/new", SETUP))["sessionId"]
        return session_id

    async def stored(self, *prompts: str) -> str:
        """Make a session, let these prompts run, and close it; returns its id."""
        session_id = await self.new()
        for text in prompts:
            await self.says(session_id, text)
        await self.editor.ask("session/close", {"sessionId": session_id})
        self.editor.out.take()
        return session_id

    async def says(self, session_id: str, text: str) -> None:
        """Let a prompt run to its end, which is a good one."""
        assert await self.editor.stop_reason(self.editor.prompt(session_id, text)) == "end_turn"

    async def load(self, session_id: str, how: str = "load") -> Any:
        return await self.editor.ask(f"session/{how}", {**SETUP, "sessionId": session_id})

    def moments(self) -> Iterator[int]:
        """Count without end; what is done with each number has the time of a test of its own."""
        for number in count():
            self.bound.deadline = anyio.current_time() + BOUND
            yield number

    async def cancelled(self, at: int, method: str, params: Json) -> tuple[Json, bool]:
        """Send a request and cancel it when its work waits for the `at`th time.

        Returns the one answer, and False if the work had ended before.
        """
        reached: list[ClientRequest] = []

        def cancel(request: ClientRequest) -> None:
            reached.append(request)
            self.editor.cancel_request(request.call.id)

        self.around = interrupted(at, cancel)
        request_id = self.editor.send(method, params)
        await until(lambda: self.editor.answers(request_id))
        self.around = lambda work: work
        (answer,) = self.editor.answers(request_id)
        assert "result" in answer or answer["error"]["code"] == -32800
        return answer, bool(reached)

    async def listed(self) -> list[str]:
        rows, _ = await self.journal.list()
        return [row.session_id for row in rows]

    async def is_free(self, session_id: str) -> bool:
        """Return True when nobody holds the session's lock."""
        path = self.journal.lock_path(session_id)
        if not path.exists():
            return True
        try:
            os.close(await lease.acquire(path, 0))
        except lease.Busy:
            return False
        return True


@asynccontextmanager
async def world(home: Path, agent: Agent | None = None, **more: Any) -> AsyncIterator[World]:
    """A world in `home`; `more`: settings. When it ends, no process is left."""
    with anyio.fail_after(BOUND) as bound:
        async with anyio.create_task_group() as tasks:
            context = MemoryContext(agent or Agent(), settings(home, **more), tasks)
            try:
                yield World(context, bound)
            finally:
                context.agent.dying.open()
                with anyio.CancelScope(shield=True):
                    await context.journal.close()
                tasks.cancel_scope.cancel()
    assert context.agent.living == []


class Stepped:
    """Runs a coroutine; calls `then` when it waits for the `at`th time."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, then: Callable[[], object]) -> None:
        self._work = work
        self._at = at
        self._then = then

    def __await__(self) -> Generator[Any, Any, Any]:
        step, value = self._work.send, None
        for number in count():
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
            if number == self._at:
                self._then()
            try:
                step, value = self._work.send, (yield awaited)
            except BaseException as exc:
                step, value = self._work.throw, exc
        raise AssertionError


def interrupted(at: int, then: Callable[[ClientRequest], object]) -> Callable[[Work], Work]:
    """Call `then` while the work of a request waits for the `at`th time."""

    def around(work: Work) -> Work:
        def run(request: ClientRequest, params: Json) -> Awaitable[Any]:
            async def inner() -> Any:
                return await work(request, params)

            return Stepped(inner(), at, lambda: then(request))

        return run

    return around
