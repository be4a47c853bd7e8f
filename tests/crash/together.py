"""Rounds with two clients of one session: over the bridge's socket, or through another bridge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio

from tests.crash.rounds import CAPABILITIES, Round, kill_agent, kill_bridge, steps
from tests.crash.told import Lost
from tests.support.client import RecordingClient

#: requests that a client has sent.
Sent = list[tuple[RecordingClient, Any]]
#: what turns do: words, a question to whoever is there, a stream that is long enough to be hit.
_COMMANDS = ((), (), ("permission 1",), ("stream 40 1",), ("stream 2000",))


def attach(it: Round, client: RecordingClient, number: int) -> Any:
    """Let a client have the session, with or without what was said before; returns the request."""
    client.session_id = it.session_id
    about = {"sessionId": it.session_id}
    opened = {**about, "cwd": str(it.home), "mcpServers": []}
    method, params, replays = it.rng.choice(
        [
            ("session/load", opened, True),
            ("_acp_bridge/attach", about, True),
            ("session/resume", opened, False),
            ("_acp_bridge/attach", {**about, "history": "pending"}, False),
            ("_acp_bridge/attach", {**about, "history": "none"}, False),
        ]
    )
    if client.process:  # it comes through a bridge of its own, which has nothing to attach to
        method, params, replays = ("session/load", opened, True)
    it.of(number).whole = replays
    return client.send_request(method, params)


async def moment(it: Round, client: RecordingClient) -> None:
    """A while, drawn by the seed: none, a few rounds of the event loop, some words."""
    kind = it.rng.random()
    if kind < 0.4:
        await steps(it.rng.randrange(300))
    elif kind < 0.7:
        mark, wanted = client.mark(), it.rng.randrange(1, 20)
        with anyio.move_on_after(0.2), suppress(ConnectionError):  # its bridge may be gone
            await client.until_recorded(lambda: client.mark() > mark + wanted or None)


async def talk(it: Round, clients: list[RecordingClient], rounds: int) -> Sent:
    """The clients prompt, answer, and stop what they asked; returns the prompts."""
    sent: Sent = []
    for _ in range(rounds):
        client = it.rng.choice(clients)
        client.side.permission = it.rng.choice(["allow", "reject", "cancel"])
        kind = it.rng.random()
        if kind < 0.7:
            sent.append((client, client.send_prompt(it.text(*it.rng.choice(_COMMANDS)))))
        elif kind < 0.85:
            it.cut = True
            client.cancel()
        elif own := [request for who, request in sent if who is client]:
            it.cut = True
            client.notify("$/cancel_request", {"requestId": it.rng.choice(own)})
        await moment(it, client)
    return sent


async def answers(it: Round, clients: list[RecordingClient], sent: Sent) -> None:
    """Until everything that these clients have prompted is answered."""
    for client, request in sent:
        if client in clients:
            await client.answer_to(request, within=it.patience)


async def joined(it: Round) -> None:
    """A client joins over the socket; its connection, the agent or the bridge is cut."""
    async with it.bridge() as first:
        await it.begin(first)
        await first.prompt(it.text(), within=it.patience)
        assert first.process is not None
        sent = await talk(it, [first], it.rng.randrange(2))
        async with AsyncExitStack() as stack:
            second = await stack.enter_async_context(it.joined(first.process.pid))
            attached = attach(it, second, 1)
            if it.rng.random() < 0.6:
                await second.answer_to(attached, within=it.patience)
            sent += await talk(it, [first, second], it.rng.randrange(1, 6))
            victim = it.rng.choice(["client", "client", "agent", "bridge", "bridge"])
            if victim == "bridge":
                kill_bridge(first)
                await it.note(first)
                await it.note(second, 1)
                return
            if victim == "agent":
                kill_agent(it, first)
                await answers(it, [first, second], sent)
            it.note_so_far(second, 1)
        await answers(it, [first], sent)
        await _all_has_run(it, first)


async def _all_has_run(it: Round, client: RecordingClient) -> None:
    """What a client that is gone has prompted is run like anything else: before this prompt."""
    answer = await client.answer_to(client.send_prompt(it.text()), within=it.patience)
    if "SIGKILL" in str(answer.get("error")):  # it was sent before the agent's end was seen
        answer = await client.answer_to(client.send_prompt(it.text()), within=it.patience)
    if answer.get("result") != {"stopReason": "end_turn"}:
        raise Lost(f"the last prompt was answered {answer}")
    it.note_so_far(client)


async def passed(it: Round) -> None:
    """A client has the session through a second bridge; one of the two bridges is killed."""
    async with it.bridge() as second:
        await second.initialize(CAPABILITIES)
        async with it.bridge() as first:
            await it.begin(first)
            await first.prompt(it.text(), within=it.patience)
            sent = await talk(it, [first], it.rng.randrange(2))
            attached = attach(it, second, 1)
            if it.rng.random() < 0.6:
                await second.answer_to(attached, within=it.patience)
            sent += await talk(it, [first, second], it.rng.randrange(1, 6))
            victim = it.rng.choice(["holder", "holder", "passer", "agent"])
            if victim == "passer":
                kill_bridge(second)
                await it.note(second, 1)
                await answers(it, [first], sent)
                await _all_has_run(it, first)
                return
            if victim == "agent":
                kill_agent(it, first)
                await answers(it, [first, second], sent)
                it.note_so_far(first)
            else:
                kill_bridge(first)
                await it.note(first)
        await answers(it, [second], [*sent, (second, attached)])
        await _goes_on(it, second)


async def _goes_on(it: Round, client: RecordingClient) -> None:
    """The session is opened in the bridge of the client, now that its holder is gone."""
    answer = await client.answer_to(client.send_prompt(it.text()), within=it.patience)
    it.note_so_far(client, 1)
    if answer.get("result") == {"stopReason": "end_turn"}:
        return
    # A load that the holder's end broke off was answered with an error: the client has nothing.
    result = await client.load_session(it.session_id, it.home)
    if not result:
        raise Lost("the session can not be loaded when its holder is gone")


TOGETHER: dict[str, Callable[[Round], Awaitable[None]]] = {"joined": joined, "passed": passed}
