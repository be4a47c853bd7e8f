"""The client of the bridge that sends one prompt of a page, and leaves when it is on disk."""

from __future__ import annotations

from typing import Any, Final

import anyio

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import ErrorCode, Json, as_object, own_meta
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest
from acp_bridge.sharing.bridge_client.sent import Sent

#: seconds for each answer of the bridge.
_PATIENCE: Final = 30.0
_ABILITIES: Final = {acp.HEARS_ACCEPTED: True, acp.OWN_TURNS_ONLY: True}


class Sender:
    """The listener of the connection over which one prompt is sent."""

    def __init__(self) -> None:
        self._sent: Sent | None = None
        self._done = anyio.Event()
        #: the text of the bridge's notices, its answer to a command such as `/queue`.
        self.said = ""

    def on_notification(self, method: str, params: Any) -> None:
        """Note that the prompt is on disk, or collect the text of a notice."""
        params = as_object(params)
        if self._sent is None:
            return
        if method == acp.ACCEPTED and params.get("requestId") == self._sent.id:
            self._done.set()
        elif method == acp.SESSION_UPDATE and own_meta(params).get(acp.NOTICE) is True:
            content = as_object(as_object(params.get("update")).get("content"))
            self.said += str(content.get("text", ""))

    def on_request(self, request: BridgeRequest) -> None:
        """Refuse a question by raising RpcError: other clients have a person to ask."""
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, "this client only sends a prompt")

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Do nothing: no request is open."""

    async def room(self) -> None:
        """Return at once: there is nothing to wait for."""

    async def send(
        self, connection: Connection, session_id: str, cwd: str, text: str, key: str
    ) -> None:
        """Send a prompt under an idempotency key, and wait until it is on disk or answered.

        Raises RpcError, NoAnswer, ConnectionLost.
        """
        await connection.initialize("acp-bridge page", own=_ABILITIES, within=_PATIENCE)
        resume = {"sessionId": session_id, "cwd": cwd, "mcpServers": []}
        await connection.request(acp.SESSION_RESUME, resume, within=_PATIENCE)
        prompt: Json = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
        params = acp.with_own_meta(prompt, {acp.PROMPT_KEY: key})
        sent = self._sent = connection.send(acp.SESSION_PROMPT, params)
        sent.when_answered(self._done.set)
        with anyio.move_on_after(_PATIENCE):
            await self._done.wait()
        if sent.answered.is_set() or not self._done.is_set():
            await sent.result(within=0)
