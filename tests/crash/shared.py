"""Rounds with several sessions in one process: agents, guards and the bridge are killed while their
sessions move from one process to another.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from tests.crash.rounds import Round, kill, kill_bridge, steps
from tests.crash.told import Told
from tests.support.client import RecordingClient
from tests.support.processes import children, descendants

#: how the agent takes a `session/close`, and a Stop.
_BEHAVIOURS = (
    (),
    (),
    ("ignores-cancel",),
    ("closes-late",),
    ("refuses-close",),
    ("never-closes",),
    ("writer-lock",),
    ("load-only",),
)
_COMMANDS = ((), ("stream 40 1",), ("stream 40 1",), ("stream 2000",))


async def shared(it: Round) -> None:
    """Sessions of one process prompt at once, so that they move, and are closed meanwhile."""
    behaviours = () if it.built_in else it.rng.choice(_BEHAVIOURS)
    async with it.bridge(*behaviours) as client:
        sessions = await _begin(it, client)
        sent = []
        for _ in range(it.rng.randrange(2, 10)):
            sent += _act(it, client, it.rng.choice(sessions))
            await _moment(it)
        end = it.rng.choice(["bridge", "agents", "guards", ""])
        if end == "bridge":
            kill_bridge(client)
            await it.note(client)
            return
        _kill_behind(it, client, guards=end == "guards", agents=end == "agents")
        for request in sent:
            await client.answer_to(request, within=it.patience)
        it.note_so_far(client)


async def _begin(it: Round, client: RecordingClient) -> list[str]:
    """The sessions, of which the first is the one of the round; most have a turn behind them."""
    await it.begin(client)
    it.of(0).session_id = it.session_id
    for _ in range(it.rng.randrange(1, 4)):
        session_id = await client.new_session(it.home)
        it.others[session_id] = Told(session_id=session_id)
    sessions = [it.session_id, *it.others]
    for session_id in sessions if it.rng.random() < 0.8 else ():
        await client.prompt(it.text(), session_id, it.patience)
    return sessions


def _act(it: Round, client: RecordingClient, session_id: str) -> list[Any]:
    """Do one thing in a session; returns the prompts that it has sent."""
    kind = it.rng.random()
    if kind < 0.65:
        return [client.send_prompt(it.text(*it.rng.choice(_COMMANDS)), session_id)]
    if kind < 0.8:
        it.cut = True
        client.cancel(session_id)
    elif kind < 0.9:
        it.cut = True
        client.send_request("session/close", {"sessionId": session_id})
        opened = {"sessionId": session_id, "cwd": str(it.home), "mcpServers": []}
        client.send_request("session/resume", opened)
    else:
        _kill_behind(it, client, guards=it.rng.random() < 0.5, stops=it.rng.random() < 0.5)
    return []


def _kill_behind(
    it: Round,
    client: RecordingClient,
    *,
    guards: bool = False,
    agents: bool = False,
    stops: bool = False,
) -> None:
    """Kill one process behind the bridge, a guard or an agent; `stops`: only stop the guard."""
    assert client.process is not None
    found = children(client.process.pid) if guards else descendants(client.process.pid)
    if not found or not (guards or agents or stops):
        return
    it.cut = True
    chosen = it.rng.choice(found)
    if not (guards and stops):
        kill(chosen)
        return
    try:
        os.kill(chosen, signal.SIGSTOP)
    except ProcessLookupError:
        return


async def _moment(it: Round) -> None:
    if it.rng.random() < 0.5:
        await steps(it.rng.randrange(200))
    else:
        await anyio.sleep(it.rng.random() * 0.1)


SHARED: dict[str, Callable[[Round], Awaitable[None]]] = {"shared": shared}
