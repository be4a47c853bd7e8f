"""Rounds with one client: the bridge or the agent is killed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from tests.crash.rounds import CAPABILITIES, Round, kill_agent, kill_bridge, steps
from tests.crash.told import Lost


async def stream(it: Round) -> None:
    """The bridge or the agent is killed while a turn streams, others wait behind it."""
    async with it.bridge() as client:
        await it.begin(client)
        await client.prompt("say first", within=it.patience)
        running = client.send_prompt(f"stream {it.rng.choice([20, 200, 5000])}")
        waiting = [client.send_prompt(f"say w{n}") for n in range(it.rng.randrange(3))]
        seen = it.rng.randrange(1, 20)
        await client.until_recorded(lambda: len(client.updates()) > seen, it.patience)
        if it.rng.random() < 0.5:
            kill_bridge(client)
            await it.note(client)
            return
        kill_agent(it, client)
        for request in [running, *waiting]:
            await client.answer_to(request, within=it.patience)
        it.note_so_far(client)


async def accept(it: Round) -> None:
    """The bridge is killed while it takes prompts."""
    async with it.bridge() as client:
        await it.begin(client)
        for n in range(it.rng.randrange(1, 6)):
            client.send_prompt(f"say p{n}")
        if it.rng.random() < 0.5:
            wanted = it.rng.randrange(1, 3)
            with anyio.move_on_after(1):
                await client.until_request("_acp_bridge/accepted", wanted)
        await steps(it.rng.randrange(400))
        kill_bridge(client)
        await it.note(client)


async def keys(it: Round) -> None:
    """The bridge is killed again and again, and its client sends the same prompts under their keys.

    A prompt that any of the bridges has taken is said once, or held.
    """
    texts = [f"say k{n}." for n in range(it.rng.randrange(1, 8))]
    for _ in range(3):
        async with it.bridge() as client:
            if it.session_id:
                await client.initialize(CAPABILITIES)
                await client.load_session(it.session_id, it.home)
            else:
                await it.begin(client)
            for text in texts:
                client.send_prompt(text, _meta={"acp_bridge": {"promptKey": text}})
            if it.rng.random() < 0.5:
                with anyio.move_on_after(1):
                    await client.until_request("_acp_bridge/accepted", it.rng.randrange(1, 4))
            await steps(it.rng.randrange(400))
            kill_bridge(client)
            await it.note(client)


async def drain(it: Round) -> None:
    """The bridge or the agent is killed between a cancel and its answer."""
    it.cut = True
    async with it.bridge("ignores-cancel") as client:
        await it.begin(client)
        running = client.send_prompt("stream 100000")
        await client.until_recorded(lambda: len(client.updates()) > 3, it.patience)
        waiting = client.send_prompt("say waiting")
        client.cancel()
        await anyio.sleep(it.rng.random() * 0.5)
        if it.rng.random() < 0.5:
            kill_bridge(client)
            await it.note(client)
            return
        kill_agent(it, client)
        if (await client.answer_to(running, within=it.patience)).get("result") != {
            "stopReason": "cancelled"
        }:
            raise Lost("a cancelled prompt was not answered `cancelled`")
        await client.answer_to(waiting, within=it.patience)
        it.note_so_far(client)


async def load(it: Round) -> None:
    """The bridge is killed while it replays."""
    async with it.bridge() as client:
        await it.begin(client)
        await client.prompt("say first", within=it.patience)
        await client.prompt(f"stream {it.rng.choice([50, 3000])}", within=it.patience)
        it.note_so_far(client)
    async with it.bridge() as client:
        await client.initialize(CAPABILITIES)
        params = {"sessionId": it.session_id, "cwd": str(it.home), "mcpServers": []}
        client.send_request("session/load", params)
        if it.rng.random() < 0.5:
            await client.until_recorded(lambda: len(client.updates()) > 0 or None)
        await steps(it.rng.randrange(300))
        kill_bridge(client)


async def sleep(it: Round) -> None:
    """The bridge is killed while its session sleeps, falls asleep or comes back."""
    async with it.bridge() as client:
        await it.begin(client)
        await client.prompt("say first", within=it.patience)
        kill_agent(it, client)  # the agent is seen to take the session up again
        for n in range(it.rng.randrange(1, 4)):
            await client.answer_to(client.send_prompt(f"say p{n}"), within=it.patience)
            await anyio.sleep(0.04 + it.rng.random() * 0.06)
        client.send_prompt("say last")
        await steps(it.rng.randrange(300))
        kill_bridge(client)
        await it.note(client)


async def work(it: Round) -> None:
    """The bridge or the agent is killed while the agent works outside of a prompt, or is told to
    stop that; the built-in agent never works so.
    """
    deaf = ["ignores-cancel"] if it.rng.random() < 0.5 else []
    async with it.bridge(*deaf, "works-on") as client:
        await it.begin(client)
        await client.prompt("say first", within=it.patience)
        if not it.built_in:
            await client.until_text("[on]")
        if it.rng.random() < 0.5:
            client.cancel()
        await anyio.sleep(it.rng.random() * 0.6)
        if it.rng.random() < 0.5:
            kill_bridge(client)
            await it.note(client)
            return
        kill_agent(it, client)
        await client.answer_to(client.send_prompt("say second"), within=it.patience)
        it.note_so_far(client)


async def migration(it: Round) -> None:
    """The bridge is killed while it makes a session's journal, or brings it up to date."""
    async with it.bridge() as client:
        await client.initialize(CAPABILITIES)
        request = client.send_request("session/new", {"cwd": str(it.home), "mcpServers": []})
        await anyio.sleep(it.rng.random() * 0.05)
        kill_bridge(client)
        with anyio.fail_after(5):
            await client.closed.wait()
        answers = client.recording.answers(request)
    if answers:
        it.session_id = answers[0]["result"]["sessionId"]
        return
    # Not acknowledged: then nothing is promised, but the home must be of use.
    async with it.bridge() as client:
        await it.begin(client)
        await client.prompt("say first", within=it.patience)
        it.note_so_far(client)


async def move(it: Round) -> None:
    """The first session goes from the agent without a model library to one that has it.

    Any process is killed before, while or after it does; prompts may wait for it.
    """
    async with it.bridge() as client:
        await it.begin(client)
        sent = [client.send_prompt(it.text("stream 50")) for _ in range(it.rng.randrange(3))]
        if it.rng.random() < 0.5:
            await client.logged("parent.ready", within=it.patience)
            await anyio.sleep(it.rng.random() ** 2)
        else:
            await anyio.sleep(it.rng.random() * 6)
        if it.rng.random() < 0.3:
            kill_bridge(client)
            await it.note(client)
            return
        kill_agent(it, client)
        sent.append(client.send_prompt(it.text("stream 50")))
        for request in sent:
            await client.answer_to(request, within=it.patience)
        it.note_so_far(client)


ALONE: dict[str, Callable[[Round], Awaitable[None]]] = {
    "stream": stream,
    "accept": accept,
    "keys": keys,
    "drain": drain,
    "load": load,
    "sleep": sleep,
    "work": work,
    "migration": migration,
}
