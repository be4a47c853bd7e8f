"""A server of the page on a port of this machine, with a bridge and an agent in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketListener

from acp_bridge.core.clients.rights import Rights
from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.streams import Incoming, Outgoing
from acp_bridge.remote.page.client import Visit, come_in
from acp_bridge.remote.page.codes import Codes
from acp_bridge.remote.page.files import page_file
from acp_bridge.remote.page.logins import PageLogins
from acp_bridge.remote.serve import address, tokens
from acp_bridge.remote.serve.door import Door
from acp_bridge.remote.serve.server import Proof, Server
from acp_bridge.remote.serve.tokens import Token, Tokens
from acp_bridge.remote.serve.websocket import WebSocket
from acp_bridge.sharing.bridge_client.tasks import beside
from tests.core.bridge.remote import RemoteBench, remote_bench
from tests.core.sessions.agent import Agent, Process, until
from tests.support.wire import Wire, wire

EVIL = (
    "<script>document.body.textContent='owned'</script><img src=x onerror=\"owned()\">"
    "<svg onload=owned()> [x](javascript:owned()) ![i](https://images.example/i.png)"
)
PERMISSION: Json = {
    "toolCall": {
        "toolCallId": "t",
        "title": f"Edit parser.py {EVIL}",
        "content": [{"type": "diff", "path": "parser.py", "oldText": "a\n", "newText": "b\n"}],
    },
    "options": [
        {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
        {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    ],
}
MARKDOWN = f"""Some **words** about `code`, {EVIL}

- a list
- of two

| case | result |
|---|--:|
| one | 1 |

```python
print("hello")
```

See [the docs](https://docs.example/)."""


@dataclass
class Working:
    """An agent that works on each prompt until the test lets it go on."""

    agent: Agent = field(default_factory=Agent)
    go_on: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        modes = {
            "currentModeId": "ask",
            "availableModes": [
                {"id": "ask", "name": "Ask first"},
                {"id": "auto", "name": "Edit freely"},
            ],
        }

        async def new(process: Process, params: Json) -> Json:
            number = self.agent.processes.index(process) + 1
            return {"sessionId": f"agent-{number}", "modes": modes}

        self.agent.script |= {
            "session/new": new,
            "session/set_mode": {},
            "session/prompt": self._prompt,
        }

    async def _prompt(self, process: Process, params: Json) -> Json:
        session, said = params["sessionId"], params["prompt"][0]["text"]

        def say(text: str, kind: str = "agent_message_chunk", of: str = "") -> None:
            content = {"type": "text", "text": text}
            process.shows(
                session, {"sessionUpdate": kind, "content": content, "messageId": of + said}
            )

        say("Let me think.", "agent_thought_chunk", "thought ")
        half = len(MARKDOWN) // 2
        say(MARKDOWN[:half])
        say(MARKDOWN[half:])
        steps = [
            {"content": f"step {EVIL}", "status": "completed"},
            {"content": "another", "status": "in_progress"},
        ]
        process.shows(session, {"sessionUpdate": "plan", "entries": steps})
        if "ask" in said:
            asked = {**PERMISSION, "sessionId": session}
            process.says({"id": 77, "method": "session/request_permission", "params": asked})
            (answer,) = await until(
                lambda: (
                    [each for each in process.received if each.get("id") == 77]
                    or process.params("session/cancel")
                )
            )
            outcome = answer.get("result", {}).get("outcome", {})
            say(f"It was {outcome.get('optionId', 'cancelled')}.", of="then ")
        elif "wait" in said:
            await until(lambda: self.go_on.is_set() or process.params("session/cancel"))
        say(f"Done with {said}.", of="end ")
        cancelled = process.params("session/cancel")
        return {"stopReason": "cancelled" if cancelled else "end_turn"}


@dataclass
class Site:
    """A server that runs, over the bridge `it`."""

    url: str
    it: RemoteBench
    tokens: Tokens
    server: Server
    #: the port on which it listens.
    port: int
    codes: Codes = field(default_factory=Codes)
    _made: int = 0

    def at(self, fragment: str = "") -> str:
        """The address that a phone opens."""
        return f"{self.url}/{fragment}"

    def code(self, may: str = "all") -> str:
        """A code for a login of its own."""
        self._made += 1
        return self.codes.make(f"phone-{self._made}", may, anyio.current_time())


@asynccontextmanager
async def site(
    home: Path, working: Working | Agent, port: int = 0, *, public: int = 0
) -> AsyncIterator[Site]:
    """Serve until the block ends, which cuts every connection.

    `public`: the port under which browsers reach it, over a wire; 0: the same.
    """
    await anyio.Path(home).mkdir(exist_ok=True)
    agent = working if isinstance(working, Agent) else working.agent
    async with remote_bench(home, agent) as it:
        with tokens.held(home) as mine:
            async with (
                await anyio.create_tcp_listener(
                    local_host="127.0.0.1", local_port=port, reuse_port=True
                ) as both,
                beside() as tasks,
            ):
                bound = both.extra(SocketAttribute.local_port)
                there = _site(it, mine, bound, public or bound)
                for listener in both.listeners:
                    assert isinstance(listener, SocketListener)
                    tasks.start_soon(there.server.serve, listener)
                yield there


@dataclass
class Wired:
    """A server at the other end of a wire, on which browsers come."""

    wire: Wire
    home: Path
    site: Site | None = None

    async def _dial(self) -> ByteStream:
        if self.site is None:
            raise OSError("no server runs")
        return await anyio.connect_tcp("127.0.0.1", self.site.port)

    @asynccontextmanager
    async def serving(self, working: Working) -> AsyncIterator[Site]:
        """Serve until the block ends, as often as it is asked for."""
        async with site(self.home, working, public=self.wire.port) as self.site:
            try:
                yield self.site
            finally:
                self.site = None

    async def cut(self) -> None:
        """Break every line, and let nobody through until `mend`."""
        self.wire.down = True
        await self.wire.cut()

    def fall_silent(self) -> None:
        """Carry nothing, and break nothing, until `mend`."""
        self.wire.hold()

    def mend(self) -> None:
        """Carry what was held up, and let everybody through."""
        self.wire.mend()


@asynccontextmanager
async def wired(home: Path) -> AsyncIterator[Wired]:
    """Lay a wire to a server in the data folder `home`; none runs yet."""

    async def dial() -> ByteStream:
        return await there._dial()

    async with wire(dial) as it:
        there = Wired(it, home)
        yield there
        await there.cut()


def _site(it: RemoteBench, mine: Tokens, bound: int, port: int) -> Site:
    async def join_as(token: Token, incoming: Incoming, outgoing: Outgoing) -> None:
        rights = Rights(token.may, token.name, (str(it.root),), token.hash)
        await it.bridge.join_remote(incoming, outgoing, rights)

    async def join(socket: WebSocket, token: Token) -> None:
        await join_as(token, socket, socket)

    codes = Codes()
    pages = PageLogins(mine, codes, join_as)

    async def visit(socket: WebSocket) -> Visit | None:
        return await come_in(socket, socket, pages)

    names = address.names(address.Address("127.0.0.1", port), frozenset[str](), None)
    door = Door(names, mine.find, page_file)
    server = Server(door, join, Proof(local=True, proxied=False), None, visit)
    return Site(f"http://127.0.0.1:{port}", it, mine, server, bound, codes)
