"""What agents are put through that lose their process, and the list of all trials."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from tests.agents_not_ours.trials import (
    OK,
    PATIENCE,
    SKIPPED,
    Stand,
    always,
    asked,
    cancel,
    counted,
    denied,
    fork,
    join,
    limit,
    next_one,
    prompt,
    ruled,
    steer,
    stop_asking,
    three,
)
from tests.support.recording import RpcError


async def introduced(stand: Stand) -> str:
    """A system prompt of the client's: the model has it, also after `kill -9` and a load.

    Alone, the client gives it again with the load; behind the bridge it need not.
    """
    prompt = {"mode": "append", "content": [{"type": "text", "text": "Be as kind as BENCH."}]}
    more = {"systemPrompt": prompt}
    async with stand.start() as client:
        told = await client.initialize(within=PATIENCE)
        able = told["agentCapabilities"].get("sessionCapabilities") or {}
        if "systemPrompt" not in able:
            return f"{SKIPPED}takes none"
        session_id = await client.new_session(stand.home, PATIENCE, **more)
        if wrong := await next_one(client, "S"):
            return wrong
        await stand.settle()
        stand.signal(client, signal.SIGKILL)
        if stand.bridged:
            with suppress(RpcError):  # it may meet the process that has just been killed
                await next_one(client, "K")
            if wrong := await next_one(client, "T"):
                return wrong
    async with stand.start() as client:
        await client.initialize(within=PATIENCE)
        again = {} if stand.bridged else more
        await client.load_session(session_id, stand.home, PATIENCE, **again)
        if wrong := await next_one(client, "U"):
            return wrong
    tags = "STU" if stand.bridged else "SU"
    missing = [tag for tag in tags if not stand.server.was_told("as kind as BENCH", tag)]
    return f"not told in {', '.join(missing)}" if missing else OK


async def kill(stand: Stand) -> str:
    """`kill -9` of the agent in a turn, then a fresh process: what is shown, what is known."""
    async with stand.start() as client:
        session_id = await stand.begin(client)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        await stand.settle()
        running = client.send_prompt("COUNT 1000 20 K")
        await client.until_text("K5", within=PATIENCE)
        stand.signal(client, signal.SIGKILL)
        if stand.bridged and "error" not in await client.answer_to(running, within=PATIENCE):
            return "no error"
        if not stand.bridged:
            with anyio.fail_after(PATIENCE):
                await client.closed.wait()
        shown = client.text()
    async with stand.start() as client:
        await stand.load(client, session_id)
        await anyio.sleep(0.5)  # some agents replay after their answer
        replayed = client.text()
        answer = await client.prompt("COUNT 3 0 M", within=PATIENCE)
        if answer["stopReason"] != "end_turn":
            return "next prompt lost"
    lost = []
    if counted("H", 5).strip() not in replayed:
        lost.append("first turn not replayed")
    if shown[shown.index("K0") :].strip() not in replayed:
        lost.append("what had streamed not replayed")
    if "COUNT 5 0 H" not in stand.server.given_for("M"):
        lost.append("first turn not remembered")
    return ", ".join(lost) or OK


async def restart(stand: Stand) -> str:
    """Ended at rest, then loaded by a fresh process."""
    async with stand.start() as client:
        session_id = await stand.begin(client)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
    await stand.settle()
    async with stand.start() as client:
        await stand.load(client, session_id)
        await client.until_text(counted("H", 5).strip(), within=PATIENCE)
        if wrong := await next_one(client, "M"):
            return wrong
    remembered = "COUNT 5 0 H" in stand.server.given_for("M")
    return OK if remembered else "first turn not remembered"


TRIALS: dict[str, Callable[[Stand], Awaitable[str]]] = {
    "a prompt": prompt,
    "three at once, in order": three,
    "cancel, then the next": cancel,
    "a command, allowed and denied": asked,
    "always allowed": always,
    "your rules": ruled,
    "cancel while it asks": stop_asking,
    "steering after a cancel": steer,
    "words while a turn runs": join,
    "a fork, prompted at once": fork,
    "a usage limit": limit,
    "a denied card, loaded again": denied,
    "a system prompt": introduced,
    "ended, then load": restart,
    "`kill -9` in a turn, then load": kill,
}
