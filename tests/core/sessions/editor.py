"""A client in memory: its requests go to a handler, and all that it gets is kept."""

from typing import Any

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.clients.client import Client, ClientHandler, Stage
from acp_bridge.core.wire.jsonrpc import RpcError, encode
from tests.core.session.memory import Incoming, Outgoing
from tests.core.sessions.agent import Json, until


class Editor:
    """Sends, and waits for answers; `client` is the bridge's end of it."""

    def __init__(self, handler: ClientHandler, capabilities: Json | None = None) -> None:
        """It has initialized, with these capabilities."""
        self.out = Outgoing()
        self.incoming = Incoming()
        self.client = Client(handler, self.incoming, self.out)
        self.client.stage = Stage.READY
        self.client.abilities = ClientAbilities(capabilities)
        self._last_id = 0

    # --- what it sends -------------------------------------------------------------------------

    def says(self, message: Json) -> None:
        self.client.peer.feed(encode({"jsonrpc": "2.0", **message}))

    def send(self, method: str, params: Any, request_id: Any = None) -> Any:
        """Send a request; returns its id."""
        if request_id is None:
            self._last_id += 1
            request_id = self._last_id
        self.says({"id": request_id, "method": method, "params": params})
        return request_id

    def notify(self, method: str, params: Any) -> None:
        self.says({"method": method, "params": params})

    def cancel_request(self, request_id: Any) -> None:
        self.notify("$/cancel_request", {"requestId": request_id})

    def prompt(self, session_id: str, text: str) -> Any:
        """Send a prompt; returns the request's id."""
        block = {"type": "text", "text": text}
        return self.send("session/prompt", {"sessionId": session_id, "prompt": [block]})

    # --- what it got ---------------------------------------------------------------------------

    @property
    def messages(self) -> list[Json]:
        return self.out.messages

    def answers(self, request_id: Any) -> list[Json]:
        """Return every answer to a request: one, or none as yet."""
        got = [m for m in self.messages if "method" not in m and m["id"] == request_id]
        return [message for message in got if type(message["id"]) is type(request_id)]

    async def result(self, request_id: Any) -> Any:
        """Return the result of a request; raises the error that it was answered with."""
        await until(lambda: self.answers(request_id))
        (answer,) = self.answers(request_id)
        if error := answer.get("error"):
            raise RpcError(error["code"], error["message"])
        return answer["result"]

    async def ask(self, method: str, params: Any) -> Any:
        """Send a request and return its result; raises RpcError."""
        return await self.result(self.send(method, params))

    async def refusal(self, request_id: Any) -> RpcError:
        """Return the error with which a request is answered."""
        try:
            result = await self.result(request_id)
        except RpcError as error:
            return error
        raise AssertionError(f"not refused: {result}")

    async def refused(self, method: str, params: Any) -> RpcError:
        """Send a request and return the error with which it is answered."""
        return await self.refusal(self.send(method, params))

    async def stop_reason(self, request_id: Any) -> Any:
        return (await self.result(request_id))["stopReason"]

    def asked(self, method: str) -> list[Json]:
        """Return the requests and notifications of a method that it got."""
        return [message for message in self.messages if message.get("method") == method]

    def texts(self, session_id: str) -> list[str]:
        """Return what was said in a session, the user's words included."""
        params = [message["params"] for message in self.asked("session/update")]
        updates = [each["update"] for each in params if each["sessionId"] == session_id]
        return [each["content"]["text"] for each in updates if "text" in each.get("content", {})]
