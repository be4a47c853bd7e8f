"""A bridge's peers without processes: what it sends is kept, what comes is fed by hand."""

from typing import Any

import anyio

from acp_bridge.core.agents.connection import AgentCommand, Connection
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.clients.client import Client, ClientRequest, Stage
from acp_bridge.core.wire.jsonrpc import Decoder, Malformed, encode
from acp_bridge.core.wire.peer import Call
from tests.core import plugged

Json = dict[str, Any]


class Sent:
    """What was written, as messages."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self.messages: list[Json] = []

    def write(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            assert not isinstance(message, Malformed)
            self.messages.append(message)

    def take(self) -> list[Json]:
        """Those since the last call."""
        taken, self.messages = self.messages, []
        return taken


class Outgoing(Sent):
    """A way to a client that takes everything, or, while `stuck`, nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = 0
        self.reads = anyio.Event()

    @property
    def pending(self) -> int:
        return self.stuck

    @property
    def taken(self) -> int:
        """How much was taken: what stuck was not."""
        return -self.stuck

    def take_all(self) -> None:
        """The client reads again."""
        self.stuck = 0
        self.reads.set()

    async def run(self) -> None:
        await anyio.sleep_forever()

    async def drain_below(self, limit: int) -> None:
        while self.stuck >= limit:
            self.reads = anyio.Event()
            await self.reads.wait()

    async def flush(self, seconds: float) -> bool:
        return not self.stuck

    def close(self) -> None:
        """Nothing is open."""


class Incoming:
    """A client whose messages are fed by hand; it stays until `leave`."""

    def __init__(self) -> None:
        self._left = anyio.Event()

    def leave(self) -> None:
        self._left.set()

    async def read(self) -> bytes:
        await self._left.wait()
        return b""

    def close(self) -> None:
        """Nothing is open."""


class ClientEnd:
    """A client in memory; what it asks and tells is kept."""

    def __init__(self, capabilities: Json | None = None, sent: Outgoing | None = None) -> None:
        self.sent = sent or Outgoing()
        self.incoming = Incoming()
        self.client = Client(self, self.incoming, self.sent, ends=plugged.PLUGGED.ends)
        self.client.stage = Stage.READY
        self.client.abilities = ClientAbilities(capabilities)
        self.requests: list[ClientRequest] = []
        self.notifications: list[tuple[str, Any]] = []

    def on_client_request(self, request: ClientRequest) -> None:
        self.requests.append(request)

    def on_client_notification(self, client: Client, method: str, params: Any) -> None:
        self.notifications.append((method, params))

    def asks(self, method: str, params: Any, request_id: Any = 0) -> ClientRequest:
        """The client sends a request, which is left open."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.client.peer.feed(encode(message))
        return self.requests[-1]

    def answers(self, request_id: Any, result: Any) -> None:
        """The client answers a request of the bridge."""
        self.client.peer.feed(encode({"jsonrpc": "2.0", "id": request_id, "result": result}))

    def refuses(self, request_id: Any, code: int) -> None:
        error = {"code": code, "message": "no", "data": {"kept": 1}}
        self.client.peer.feed(encode({"jsonrpc": "2.0", "id": request_id, "error": error}))


class _Played(Connection):
    """A connection whose messages go to a `MemoryLink`."""

    link: "MemoryLink"

    def _send(self, data: bytes) -> None:
        self.link._send(data)


class MemoryLink(Link):
    """A link to an agent that is no process. Its requests are made by `asks`.

    Without an owner they are left open, and it says nothing else.
    """

    def __init__(self, name: str = "agent", owner: Any = None) -> None:
        played = _Played(AgentCommand(("agent",), {}), name)
        super().__init__(played, owner, name)
        played.link = self
        self.sent = Sent()
        self.calls: list[Call] = []
        self.agent_session_id = "0"

    def on_request(self, call: Call) -> None:
        self.calls.append(call)
        if self.owner:
            super().on_request(call)

    def on_batch_end(self) -> None:
        if self.owner:
            super().on_batch_end()

    def asks(self, method: str, params: Any, request_id: Any = 0) -> Call:
        """The agent sends a request."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.peer.feed(encode(message))
        return self.calls[-1]

    def says(self, message: Json) -> None:
        self.peer.feed(encode({"jsonrpc": "2.0", **message}))

    def _send(self, data: bytes) -> None:
        self.sent.write(data)
