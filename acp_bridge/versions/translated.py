"""The wire to an agent that speaks version 2, behind which the bridge's peer speaks version 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from secrets import token_hex

from acp_bridge.core import errors
from acp_bridge.core.agents.activity import Activity
from acp_bridge.core.protocol import without_own_meta
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Decoder, Heard, Malformed, Message, encode, read_object
from acp_bridge.core.wire.peer import Peer
from acp_bridge.versions.agent_end import AgentEnd, Out


class Translated:
    """Translates the messages of both directions into the other version, and hands them on."""

    def __init__(
        self, peer: Peer, send: Callable[[bytes], None], heard: Callable[[], None]
    ) -> None:
        """`send` takes the bytes for the agent; `heard` is called when `activity` may have changed
        and the peer gets nothing that tells it."""
        self._heard = heard
        self._end = AgentEnd(token_hex(3))
        self._peer = peer
        self._write = send
        self.decoder = Decoder(joins=True)

    @property
    def agreed(self) -> bool:
        """True once the agent has answered `initialize` as version 2 has it."""
        return self._end.agreed

    def activity(self, session_id: str | None) -> Activity:
        """Return what the agent says that it does in a session."""
        return self._end.activity(session_id)

    def send(self, line: bytes) -> None:
        """Translate one message of the peer, a line, and send it to the agent."""
        if message := read_object(line):
            self._hand_on(self._end.take_from_bridge(message))

    def tell_lines(self, heard: Heard) -> None:
        """Have `heard` told of every line of the agent, as `Peer.tell_lines` does."""
        self.decoder.heard = heard

    def feed(self, data: bytes) -> None:
        """Translate bytes from the agent, in pieces of any length, for the peer."""
        self._take(self.decoder.feed(data))

    def eof(self) -> None:
        """Translate what is left of the agent's output at its end, and tell the peer of the end."""
        self._take(self.decoder.eof())
        self._peer.eof()

    def _take(self, messages: Iterable[Message | Malformed]) -> None:
        all_, came = Out(), False
        for message in messages:
            came = True
            out = self._translated(message)
            if out.tells_activity:
                self._hand_on(all_)
                self._heard()
                all_ = Out()
            all_.to_agent += out.to_agent
            all_.to_bridge += out.to_bridge
        self._hand_on(all_)
        if came and not all_.to_bridge:
            self._heard()

    def _translated(self, message: Message | Malformed) -> Out:
        """Return the translation of an agent's message, or an error if it fails and has an id."""
        try:
            return self._end.take_from_agent(_without_own_marks(message))
        except Exception as exc:
            error = errors.internal(exc, "a message of the agent could not be translated")
        if isinstance(message, Malformed) or "id" not in message:
            return Out()
        failed: list[Message] = [jsonrpc.error(message["id"], error)]
        return Out(to_agent=failed) if "method" in message else Out(to_bridge=[*failed])

    def _hand_on(self, out: Out) -> None:
        for message in out.to_agent:
            self._write(encode(message))
        if out.to_bridge:
            self._peer.feed_messages(out.to_bridge)


def _without_own_marks(message: Message | Malformed) -> Message | Malformed:
    """Return a message of the agent without marks that are the bridge's alone (invariant V6)."""
    if isinstance(message, Malformed) or not isinstance(message.get("params"), dict):
        return message
    params = without_own_meta(message["params"])
    return message if params is message["params"] else {**message, "params": params}
