"""A round with a queue that two clients edit until the bridge is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.crash.rounds import Round, kill_bridge, steps
from tests.support.client import RecordingClient

_LENGTH = 10


@dataclass(slots=True)
class Line:
    """The prompts that wait, as they are to run: their ids, and their words by id."""

    order: list[str] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)

    def texts(self) -> list[str]:
        return [self.words[each] for each in self.order]

    def after(self, method: str, params: dict[str, Any]) -> Line:
        """The line after a change."""
        prompt, order, words = params["promptId"], list(self.order), dict(self.words)
        if method == "edit":
            words[prompt] = params["prompt"][0]["text"]
            return Line(order, words)
        order.remove(prompt)
        if method == "move":
            before = params.get("before")
            order.insert(order.index(before) if before else len(order), prompt)
        return Line(order, words)


async def queue(it: Round) -> None:
    """The bridge is killed while two clients move, edit and drop what waits.

    One change is asked for at a time: the order and the words that were answered are there after
    the load, or those of the change that was on its way.
    """
    it.cut = True  # a dropped prompt, or the old words of one, may be gone without an answer
    async with it.bridge() as first:
        await it.begin(first)
        await first.request("_acp_bridge/hold", {"sessionId": it.session_id})
        for n in range(_LENGTH):
            first.send_prompt(f"say q{n}.")
        await first.until_request("_acp_bridge/accepted", _LENGTH, it.patience)
        async with _second(it, first) as second:
            line = await _listed(it, first)
            with anyio.move_on_after(it.patience), anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_kill_later, it, first, scope)
                    it.held = [line.texts()]
                    for n in range(100):
                        line = await _change(it, it.rng.choice([first, second]), line, n)
        await it.note(first)


@asynccontextmanager
async def _second(it: Round, first: RecordingClient) -> AsyncIterator[RecordingClient]:
    assert first.process is not None
    async with it.joined(first.process.pid) as client:
        await client.request("_acp_bridge/attach", {"sessionId": it.session_id})
        yield client


async def _listed(it: Round, client: RecordingClient) -> Line:
    answer = await client.request("_acp_bridge/queue/list", {"sessionId": it.session_id})
    rows = answer["prompts"]
    words = {row["promptId"]: row["prompt"][0]["text"] for row in rows}
    return Line([row["promptId"] for row in rows], words)


async def _kill_later(it: Round, client: RecordingClient, scope: anyio.CancelScope) -> None:
    await anyio.sleep(it.rng.random() * 0.3)
    await steps(it.rng.randrange(300))
    kill_bridge(client)
    scope.cancel()


async def _change(it: Round, client: RecordingClient, line: Line, n: int) -> Line:
    """Let a client change the line; returns it as it is once that is answered."""
    if not line.order:
        await anyio.sleep_forever()
    method = it.rng.choices(["move", "edit", "drop"], [6, 4, 1])[0]
    params: dict[str, Any] = {"sessionId": it.session_id, "promptId": it.rng.choice(line.order)}
    others = [each for each in line.order if each != params["promptId"]]
    if method == "move" and others and it.rng.random() < 0.8:
        params["before"] = it.rng.choice(others)
    elif method == "edit":
        params["prompt"] = [{"type": "text", "text": f"say e{n}."}]
    then = line.after(method, params)
    it.held = [line.texts(), then.texts()]
    await client.request(f"_acp_bridge/queue/{method}", params)
    it.held = [then.texts()]
    return then


QUEUE = {"queue": queue}
