"""`initialize` at the bridge that holds a session, as one more client of it."""

from __future__ import annotations

import anyio

from acp_bridge import __version__
from acp_bridge.protocol import HEARS_STATE, INITIALIZE, VERSION, Json, own_meta, with_own_meta
from acp_bridge.wire.jsonrpc import Answer, Err, Ok
from acp_bridge.wire.peer import Peer


class NotLive(Exception):
    """The bridge at the other end does not have the session, or does not answer; says why."""


async def introduce(peer: Peer, capabilities: Json) -> Json:
    """Introduce a client with these capabilities; returns what the bridge says of itself.

    It is also told where its sessions stand, whatever its quiet is: one may be closed. Raises
    NotLive.
    """
    hello: Json = {
        "protocolVersion": VERSION,
        "clientCapabilities": with_own_meta(
            capabilities, {**own_meta(capabilities), HEARS_STATE: True}
        ),
        "clientInfo": {"name": "acp-bridge", "version": __version__},
    }
    match await answer_to(peer, INITIALIZE, hello):
        case Ok({"agentCapabilities": dict(agent)}):
            return own_meta(agent)
        case Err(error):
            raise NotLive(error.message)
        case _:
            raise NotLive("it does not speak as an acp-bridge")


async def answer_to(peer: Peer, method: str, params: Json) -> Answer:
    """Return the answer to a request; the caller bounds the wait."""
    answers: list[Answer] = []
    answered = anyio.Event()

    def take(answer: Answer) -> None:
        answers.append(answer)
        answered.set()

    peer.request(method, params, take)
    await answered.wait()
    return answers[0]
