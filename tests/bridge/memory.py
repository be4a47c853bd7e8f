"""A bridge's peers without processes: what it sends is kept, what comes is fed by hand."""

from typing import Any

from acp_bridge.agents.link import AgentCommand, Link
from acp_bridge.wire.jsonrpc import Decoder, Malformed, encode
from acp_bridge.wire.peer import Call, Peer

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


class Nobody:
    """A handler that answers nothing."""

    def on_request(self, call: Call) -> None:
        """Left open."""

    def on_notification(self, method: str, params: Any) -> None:
        """Not heard."""

    def on_malformed(self, line: Malformed) -> None:
        raise AssertionError(line)

    def on_batch_end(self) -> None:
        """Nothing is collected."""


class ClientEnd:
    """The bridge's end of the line to a client."""

    def __init__(self) -> None:
        self.sent = Sent()
        self.peer = Peer(Nobody(), self.sent.write, answer_malformed=True)

    def answers(self, request_id: Any, result: Any) -> None:
        """The client answers a request of the bridge."""
        self.peer.feed(encode({"jsonrpc": "2.0", "id": request_id, "result": result}))

    def refuses(self, request_id: Any, code: int) -> None:
        error = {"code": code, "message": "no", "data": {"kept": 1}}
        self.peer.feed(encode({"jsonrpc": "2.0", "id": request_id, "error": error}))


class MemoryLink(Link):
    """A link to an agent that is no process. Its requests are made by `asks`."""

    def __init__(self, name: str = "agent") -> None:
        nobody: Any = None
        super().__init__(AgentCommand(("agent",), None, {}), nobody, name)
        self.sent = Sent()
        self.calls: list[Call] = []
        self.agent_session_id = "0"

    def on_request(self, call: Call) -> None:
        self.calls.append(call)

    def on_batch_end(self) -> None:
        """It has no owner."""

    def asks(self, method: str, params: Any, request_id: Any = 0) -> Call:
        """The agent sends a request."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.peer.feed(encode(message))
        return self.calls[-1]

    def says(self, message: Json) -> None:
        self.peer.feed(encode({"jsonrpc": "2.0", **message}))

    def _send(self, data: bytes) -> None:
        self.sent.write(data)
