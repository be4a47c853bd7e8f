"""A whole bridge in memory, the client that it serves, and the agent behind it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from acp_bridge.core.bridge.bridge import Bridge
from acp_bridge.core.runtime import signals
from acp_bridge.core.wire.jsonrpc import encode
from tests.core import plugged
from tests.core.clients.streams import Bytes, Way
from tests.core.sessions.agent import Agent, Json, until
from tests.core.sessions.editor import Editor
from tests.core.sessions.world import BOUND, SETUP, MemoryContext, settings

HELLO: Json = {"protocolVersion": 1, "clientCapabilities": {}}


class Served(Editor):
    """A client whose bytes go through the streams that the bridge serves."""

    def __init__(self) -> None:
        """It has sent nothing yet."""
        self.read, self.way = Bytes(), Way()
        self.out = self.way
        self._last_id = 0
        #: the bridge has no such client any more.
        self.parted = anyio.Event()

    def says(self, message: Json) -> None:
        self.read.give(encode({"jsonrpc": "2.0", **message}))

    def answers_with(self, asked: Json, result: Json) -> None:
        """Answer a request of the bridge."""
        self.says({"id": asked["id"], "result": result})

    def answers_with_error(self, asked: Json, code: int) -> None:
        self.says({"id": asked["id"], "error": {"code": code, "message": "no"}})

    async def got(self, method: str, count: int = 1) -> list[Json]:
        """Return the messages of a method, waited for; there are no more of them than that."""
        await until(lambda: len(self.asked(method)) >= count)
        return self.asked(method)

    async def handled(self) -> None:
        """Return when all that it sent has been handled."""
        await self.refused("session/fork", {"sessionId": "nobody's"})

    def leaves(self) -> None:
        self.read.give(b"")


class Bench:
    """A bridge, the client that it serves, and the agent behind it."""

    def __init__(self, context: MemoryContext, editor: Served) -> None:
        self.context, self.agent = context, context.agent
        self.bridge = Bridge(context, elsewhere=plugged.PLUGGED.elsewhere)
        self.editor = editor
        self.ended = anyio.Event()

    async def serve(self) -> None:
        with signals.Received() as received:
            await self.bridge.serve(self.editor.read, self.editor.way, received)
        self.ended.set()
        self.context.tasks.cancel_scope.cancel()

    async def new(self, editor: Editor | None = None) -> str:
        answer = await (editor or self.editor).ask("session/new", SETUP)
        return str(answer["sessionId"])

    def another(self) -> Editor:
        """Return another client of the same bridge, which has initialized."""
        return Editor(self.bridge)

    async def joined(self, **own: Any) -> Served:
        """Let one more client join on a socket; `own`: its abilities in `_meta.acp_bridge`."""
        return await self.joined_with({"_meta": {"acp_bridge": own}})

    async def joined_with(self, capabilities: Json) -> Served:
        """Let one more client join on a socket, with these capabilities."""
        client = Served()
        self.context.tasks.start_soon(self._join, client)
        await client.ask("initialize", {**HELLO, "clientCapabilities": capabilities})
        return client

    async def attached(self, session_id: str, **own: Any) -> Served:
        """Let one more client join that has the session."""
        client = await self.joined(**own)
        await client.ask("_acp_bridge/attach", {"sessionId": session_id})
        return client

    async def _join(self, client: Served) -> None:
        await self.bridge.join(client.read, client.way)
        client.parted.set()

    @property
    def passages(self) -> Any:
        """The bridge's passages to other bridges, where they are plugged in."""
        return self.bridge._sessions.passages

    async def settled(self) -> None:
        """Return when all that was sent has been handled."""
        await self.editor.handled()


@asynccontextmanager
async def bench(
    home: Path,
    agent: Agent | None = None,
    *,
    initialized: bool = True,
    editor: Served | None = None,
    **more: Any,
) -> AsyncIterator[Bench]:
    """A bridge that serves until the block ends, or before; no process is left behind."""
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            context = MemoryContext(agent or Agent(), settings(home, **more), tasks)
            it = Bench(context, editor or Served())
            tasks.start_soon(it.serve)
            if initialized:
                await it.editor.ask("initialize", HELLO)
            yield it
            it.editor.leaves()
    assert it.ended.is_set()
    assert it.agent.living == []
