"""Rounds in which the client that prompts speaks version 2, before an agent of either version."""

from __future__ import annotations

from typing import Final

import anyio

from tests.crash.rounds import Round, kill_agent, kill_bridge, steps
from tests.support.client import RecordingClient
from tests.support.recording import Message

_HELLO: Final[Message] = {
    "protocolVersion": 2,
    "info": {"name": "crash", "version": "1"},
    "capabilities": {"_meta": {"acp_bridge": {"accepted": True}}},
}
#: seconds for what starts a process.
_START: Final = 20


async def keys_v2(it: Round) -> None:
    """The bridge or the agent is killed again and again, and prompts are sent again under keys.

    A prompt that any of the bridges has taken is said once, or held; one whose turn was told to
    have begun is in the transcript.
    """
    it.newer_agent = not it.built_in and it.rng.random() < 0.5
    texts = [f"say k{n}." for n in range(it.rng.randrange(1, 8))]
    if it.rng.random() < 0.5:  # the session works for long enough to be hit
        texts[0] = "say a; " + "; ".join(["tool t", "say b"] * 20)
    for _ in range(3):
        async with it.bridge() as client:
            await _begin(it, client)
            for number, text in enumerate(texts):
                client.send_prompt(text, idempotencyKey=f"key {number}")
            await _moment(it, client)
            if it.rng.random() < 0.3:
                kill_agent(it, client)
                await _moment(it, client)
            kill_bridge(client)
            await it.note(client, version=2)


async def _begin(it: Round, client: RecordingClient) -> None:
    """A session of its own, or the one that was left, with or without its replay."""
    await client.request("initialize", _HELLO, _START)
    if not it.session_id:
        answer = await client.request("session/new", {"cwd": str(it.home)}, _START)
        client.session_id = it.session_id = answer["sessionId"]
        return
    client.session_id = it.session_id
    params: Message = {"sessionId": it.session_id, "cwd": str(it.home)}
    it.of(0).whole = replays = it.rng.random() < 0.5
    if replays:
        params["replayFrom"] = {"type": "start"}
    asked = client.send_request("session/resume", params)
    if replays or it.rng.random() < 0.5:
        await client.answer_to(asked, _START)


async def _moment(it: Round, client: RecordingClient) -> None:
    if it.rng.random() < 0.5:
        with anyio.move_on_after(1):
            await client.until_request("_acp_bridge/accepted", it.rng.randrange(1, 4))
    await steps(it.rng.randrange(400))


VERSION_2 = {"keys_v2": keys_v2}
