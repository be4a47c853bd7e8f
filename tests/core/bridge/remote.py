"""A bridge in memory without a client on stdin, and clients that come to it from elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from acp_bridge.core.clients.rights import May, Rights
from acp_bridge.core.runtime import signals
from tests.core.sessions.agent import Agent, Json
from tests.core.sessions.bench import HELLO, Bench, Served
from tests.core.sessions.world import BOUND, MemoryContext, settings

HOUR = 3600.0


class RemoteBench(Bench):
    """A bridge without a client on stdin; `root` is the folder that bounds its remote clients."""

    root: Path

    async def serve(self) -> None:
        with signals.Received() as received:
            await self.bridge.serve_remote(received)
        self.ended.set()
        self.context.tasks.cancel_scope.cancel()

    def setup(self, folder: str = "") -> Json:
        """The parameters of a session in a folder below the root."""
        return {"cwd": str(self.root / folder), "mcpServers": []}

    async def new(self, editor: Any = None) -> str:
        """Let a remote client make a session; without one, a client that leaves again does."""
        client = editor or await self.remote()
        answer = await client.ask("session/new", self.setup())
        if editor is None:
            client.leaves()
            await client.parted.wait()
        return str(answer["sessionId"])

    async def remote(
        self, may: str = "all", name: str = "laptop", roots: Any = None, **own: Any
    ) -> Served:
        """Let a remote client in; `own`: its abilities in `_meta.acp_bridge`."""
        client = self.unknown(may, name, roots)
        capabilities = {"_meta": {"acp_bridge": own}}
        await client.ask("initialize", {**HELLO, "clientCapabilities": capabilities})
        return client

    def unknown(self, may: str = "all", name: str = "laptop", roots: Any = None) -> Served:
        """Let a remote client in that has not initialized yet."""
        client = Served()
        bounds = (str(self.root),) if roots is None else roots
        login = Rights(May(may), name, bounds, f"token of {name}")
        self.context.tasks.start_soon(self._join_remote, client, login)
        return client

    async def _join_remote(self, client: Served, login: Rights) -> None:
        await self.bridge.join_remote(client.read, client.way, login)
        client.parted.set()

    async def holding(self, may: str, session_id: str, **own: Any) -> Served:
        """Let a remote client in that has the session."""
        client = await self.remote(may, **own)
        await client.ask("session/load", {**self.setup(), "sessionId": session_id})
        return client


@asynccontextmanager
async def remote_bench(
    home: Path, agent: Agent | None = None, **more: Any
) -> AsyncIterator[RemoteBench]:
    """A bridge without a client on stdin, until the block ends; no process is left behind."""
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            chosen = settings(home / "home", **{"keep": HOUR, **more})
            context = MemoryContext(agent or Agent(), chosen, tasks)
            it = RemoteBench(context, Served())
            it.root = home / "root"
            it.root.mkdir(exist_ok=True)
            tasks.start_soon(it.serve)
            yield it
            it.bridge._ended.set()
    assert it.ended.is_set()
    assert it.agent.living == []
