"""Rounds in which the server of the sessions' database is killed, alone or with the bridge, or in
which two machines have a session in turn.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from tests.crash.rounds import CAPABILITIES, Round, kill_bridge, steps
from tests.crash.together import moment
from tests.crash.told import Lost
from tests.support.client import RecordingClient

_COMMANDS: Final = ((), ("stream 300 5",), ("stream 40 1",), ("stream 2000",), ("permission 1",))
#: seconds after which a server has on its disk what it did not wait for.
_LATE: Final = 1.0
#: seconds without a server after which no turn of a bridge runs any more.
_OVER: Final = 10.0


def _sent(it: Round, client: RecordingClient, least: int) -> list[Any]:
    """Prompts, sent at once, at least so many."""
    count = it.rng.randrange(least, least + 3)
    return [client.send_prompt(it.text(*it.rng.choice(_COMMANDS))) for _ in range(count)]


async def database(it: Round) -> None:
    """The server is killed while turns run and prompts wait, and started again.

    The bridge has all that is lost with it. What it takes is run; it says of what it refuses that
    it was not taken.
    """
    assert it.database
    async with it.bridge() as client:
        await it.begin(client)
        sent = []
        for _ in range(it.rng.choice([1, 1, 2])):
            sent += _sent(it, client, 1)
            await moment(it, client)
            async with it.database.dead():
                sent += _sent(it, client, 0)
                long = it.rng.random() < 0.1
                await anyio.sleep(_OVER if long else it.rng.random() * it.rng.choice([0.1, 2]))
        for request in sent:
            await client.answer_to(request, within=it.patience)
        await _goes_on(it, client)
        it.note_so_far(client)


async def _goes_on(it: Round, client: RecordingClient) -> None:
    """Until a prompt is taken again, and run."""
    answer: dict[str, Any] = {"error": "not taken"}
    with anyio.move_on_after(it.patience):
        while "not taken" in str(answer.get("error")):
            await anyio.sleep(0.05)
            answer = await client.answer_to(client.send_prompt(it.text()), within=it.patience)
    if answer.get("result") != {"stopReason": "end_turn"}:
        raise Lost(f"the last prompt was answered {answer}")


async def both(it: Round) -> None:
    """The server and the bridge are killed, one after the other.

    Of what was shown the last moment may be gone: nobody is left who has it.
    """
    assert it.database
    async with it.bridge() as client:
        await it.begin(client)
        await client.prompt(it.text(), within=it.patience)
        _sent(it, client, 1)
        await moment(it, client)
        if it.rng.random() < 0.5:
            kill_bridge(client)
            await steps(it.rng.randrange(300))
        it.of(0).until = time.monotonic() - _LATE
        async with it.database.dead():
            await moment(it, client)
            kill_bridge(client)
            await it.note(client)


async def machines(it: Round) -> None:
    """Bridges of two machines have the session in turn, each until it is killed.

    They are sent the same prompts under their keys: each is said once, or held.
    """
    assert it.database
    texts = [
        it.text(*it.rng.choice([(), ("stream 200 5",)])) for _ in range(it.rng.randrange(1, 6))
    ]
    for number in range(4):
        if number:
            await it.nothing_left()
            it.move(it.database)
        async with it.bridge() as client:
            if number:
                await client.initialize(CAPABILITIES)
                await client.load_session(it.session_id, it.home)
            else:
                await it.begin(client)
            for text in texts:
                client.send_prompt(text, _meta={"acp_bridge": {"promptKey": text}})
            await moment(it, client)
            await steps(it.rng.randrange(400))
            kill_bridge(client)
            await it.note(client)


DATABASE: dict[str, Callable[[Round], Awaitable[None]]] = {
    "database": database,
    "both": both,
    "machines": machines,
}
