"""Rounds with an editor behind `acp-bridge connect`: the server, or connect itself, is killed."""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio

from tests.crash.rounds import CAPABILITIES, Round, kill_bridge, steps
from tests.crash.told import Lost
from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.support.served import Served

#: seconds for a line to be there again, and what was asked over it to be done.
_AGAIN: Final = 30


@asynccontextmanager
async def _served(it: Round) -> AsyncIterator[Served]:
    """A server of the round's home, and the wire to it, which hands over pieces in some rounds."""
    there = Served(it.bridge_home, it.home / "laptop", it.home, *it.agent())
    async with there.wired() as wire:
        wire.pieces = random.Random(it.rng.random()) if it.rng.random() < 0.5 else None
        there.start()
        yield there
        await there.end(signal.SIGTERM)


async def served(it: Round) -> None:
    """The server is killed once or twice before an editor that connects, its wire cut too.

    The editor sends each prompt once. What it was told to be accepted is said once, or held, and
    what it was shown is what the session has.
    """
    async with _served(it) as there, RecordingClient.start(there.connect) as client:
        await it.begin(client)
        sent = [client.send_prompt(it.text()) for _ in range(it.rng.randrange(4))]
        for _ in range(it.rng.choice([1, 2])):
            sent.append(client.send_prompt(it.text(f"stream {it.rng.choice([20, 200, 5000])}")))
            await _moment(it, client)
            if it.rng.random() < 0.3:
                await there.wire.cut()
                await _moment(it, client)
            await there.end(signal.SIGKILL)
            there.start()
        await _all_answered(it, client, sent)
        it.note_so_far(client)


async def connect(it: Round) -> None:
    """Connect is killed, and the editor's next one sends the same prompts under their keys."""
    texts = [it.text(*it.rng.choice([(), ("stream 200",)])) for _ in range(it.rng.randrange(1, 6))]
    async with _served(it) as there:
        for number in range(3):
            async with RecordingClient.start(there.connect) as client:
                if it.session_id:
                    await client.initialize(CAPABILITIES)
                    await client.load_session(it.session_id, it.home)
                else:
                    await it.begin(client)
                sent = [
                    client.send_prompt(text, _meta={"acp_bridge": {"promptKey": text}})
                    for text in texts
                ]
                await _moment(it, client)
                if number == 2:
                    await _all_answered(it, client, sent)
                    it.note_so_far(client, number)
                else:
                    kill_bridge(client)
                    await it.note(client, number)


async def _moment(it: Round, client: RecordingClient) -> None:
    """A while: some words, or a few rounds of the event loop."""
    if it.rng.random() < 0.7:
        mark, wanted = client.mark(), it.rng.randrange(1, 20)
        with anyio.move_on_after(3), suppress(ConnectionError):
            await client.until_recorded(lambda: client.mark() > mark + wanted)
    await steps(it.rng.randrange(300))


async def _all_answered(it: Round, client: RecordingClient, sent: list[Any]) -> None:
    """Until all has its one answer; what an end of the server has left over is run."""
    answer: Message = {"error": ""}
    while "error" in answer:  # the line may drop between the two
        await client.answer_to(client.send_request("session/list", {}), _AGAIN)
        answer = await client.answer_to(client.send_prompt("/queue run"), _AGAIN)
    for request in sent:
        answer = await client.answer_to(request, _AGAIN + it.patience)
        if "no line" in str(answer) or "the line" in str(answer):
            raise Lost(f"a prompt is answered {answer}")


FAR: dict[str, Callable[[Round], Awaitable[None]]] = {"served": served, "connect": connect}
