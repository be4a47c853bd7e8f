"""Rounds with `--keep`: the waiter or the bridge behind it is killed, at any moment.

The end of the waiter is the client's: the turn and the queue go on, and whoever loads the session
later sees every word of them. The end of the bridge ends the waiter, and all that the bridge had.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import anyio

from tests.crash.rounds import CAPABILITIES, GONE_WITHIN, Round, kill, kill_agent, steps
from tests.crash.together import attach, moment, talk
from tests.crash.told import Lost, turns, words
from tests.support.client import RecordingClient
from tests.support.joined import listening
from tests.support.processes import children, command_line, gone, marked

#: the waiter's exit code when its bridge has left it none.
_LEFT_NONE = 1


def kill_waiter(it: Round, client: RecordingClient) -> None:
    """The waiter alone, or with its process group, as an editor that ends may do it."""
    assert client.process is not None
    if it.rng.random() < 0.5:
        client.kill()
    else:
        os.killpg(client.process.pid, signal.SIGKILL)


async def let_go(client: RecordingClient) -> None:
    """The client sees the end of all its streams, and of the process that it started."""
    try:
        with anyio.fail_after(GONE_WITHIN):
            await client.closed.wait()
        await client.stderr_ended(GONE_WITHIN)
        await client.wait(GONE_WITHIN)
        with anyio.fail_after(GONE_WITHIN), suppress(BrokenPipeError):
            while True:  # a process that is killed closes one after the other
                client.send_raw(b"\n")
                await anyio.sleep(0.01)
    except TimeoutError as exc:
        raise Lost(f"the client waits for ever: {client.situation()}") from exc


async def waiter(it: Round) -> None:
    """The waiter is killed while turns run and prompts wait: all of it goes on."""
    async with it.bridge(keep=True) as client:
        await it.begin(client)
        bridge = (await listening(it.bridge_home)).pid
        client.send_prompt(it.text("stream 300 1"))
        for _ in range(it.rng.randrange(3)):
            client.send_prompt(it.text())
        await client.until_request("_acp_bridge/accepted")
        await moment(it, client)
        kill_waiter(it, client)
        await let_go(client)
        await it.note(client)
        if it.rng.random() < 0.5:
            await moment(it, client)
        async with it.bridge() as other:
            await other.initialize(CAPABILITIES)
            await other.load_session(it.session_id, it.home)
            if it.spoken:
                await _said(it, other)
            answer = await other.prompt(it.text(), within=it.patience)
            if answer != {"stopReason": "end_turn"}:
                raise Lost(f"a prompt of the next client was answered {answer}")
            it.note_so_far(other, 1)
            # All that was accepted before has run now; `Round.check` looks if it is there.
            if stopped := [t.prompt for t in turns(other.recording.updates()) if t.interrupted]:
                raise Lost(f"the end of the waiter has interrupted {stopped}")
        await _ended(bridge, it.rng.choice([signal.SIGTERM, signal.SIGKILL]))


async def _said(it: Round, client: RecordingClient) -> None:
    """Until all that was accepted has run, to its last word, before the eyes of this client."""
    accepted = it.of(0).accepted

    def all_is_said() -> bool:
        shown = {turn.prompt: turn for turn in turns(client.recording.updates())}
        return all(text in shown and shown[text].said == words(text) for text in accepted)

    try:
        await client.until_recorded(all_is_said, within=it.patience)
    except TimeoutError as exc:
        raise Lost(f"{accepted} have not all run after the waiter's end: {exc}") from exc


async def _ended(bridge: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(bridge, number)
    await gone(bridge, GONE_WITHIN)


async def kept(it: Round) -> None:
    """The kept bridge is killed, with its client or without; others may have joined."""
    async with it.bridge(keep=True) as client, AsyncExitStack() as stack:
        await it.begin(client)
        bridge = (await listening(it.bridge_home)).pid
        clients = [client]
        if it.rng.random() < 0.5:
            clients.append(await stack.enter_async_context(it.joined(bridge)))
            attach(it, clients[-1], 1)
        await talk(it, clients, it.rng.randrange(1, 5))
        if unattended := it.rng.random() < 0.4:
            kill_waiter(it, client)
            await moment(it, client)
        elif it.rng.random() < 0.3:
            it.cut |= kill_agent(it, client, bridge)
        await steps(it.rng.randrange(300))
        kill(bridge)
        await let_go(client)
        for number, each in enumerate(clients):
            await it.note(each, number)
        if not unattended and await client.wait() != _LEFT_NONE:
            raise Lost(f"the waiter's exit code is {await client.wait()}")


async def start(it: Round) -> None:
    """The waiter or the bridge is killed while the bridge starts."""
    async with it.bridge(keep=True) as client:
        with suppress(BrokenPipeError):
            initialize = {"protocolVersion": 1, "clientCapabilities": CAPABILITIES}
            client.send_request("initialize", initialize)
            new = {"cwd": str(it.home), "mcpServers": []}
            request = client.send_request("session/new", new)
        await anyio.sleep(it.rng.random() * 0.6)
        bridge = _bridge_behind(it, client)
        # What was taken for it may have been between two forks, and be gone.
        if not (bridge and it.rng.random() < 0.5 and kill(bridge)):
            kill_waiter(it, client)
        await let_go(client)
        answers = client.recording.answers(request)
        # A bridge that nobody has asked for work ends by itself, after a while.
        while bridge := _bridge_behind(it, client):
            await _ended(bridge, signal.SIGTERM)
    await it.nothing_left()
    if answers and "result" in answers[0]:
        it.session_id = answers[0]["result"]["sessionId"]
        return
    async with it.bridge() as client:  # the home must be of use
        await it.begin(client)
        await client.prompt(it.text(), within=it.patience)
        it.note_so_far(client)


def _bridge_behind(it: Round, client: RecordingClient) -> int | None:
    """The process that has been detached, if there is one already.

    What has its command line and is a child of another one is between two forks, or to be a guard.
    """
    assert client.process is not None
    alike = [pid for pid in marked(it.mark) if "--keep" in command_line(pid)]
    below = {child for pid in alike for child in children(pid)}
    return next((pid for pid in alike if pid not in {client.process.pid, *below}), None)


KEPT: dict[str, Callable[[Round], Awaitable[None]]] = {
    "waiter": waiter,
    "kept": kept,
    "start": start,
}
