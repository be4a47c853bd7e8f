"""Attempts, Stops, drops, runs and restarts in any order: a key is one prompt."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.core.bridge.keyed import keyed
from tests.core.sessions.agent import Agent, Json, Process
from tests.core.sessions.bench import Bench, bench
from tests.core.sessions.world import SETUP

KEYS = "abcd"
STEPS = 14
BRIDGES = 3


class Played:
    """One session over several bridges, and all that two clients do there."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.agent, self.session_id = rng, Agent(), ""
        self.agent.script["session/prompt"] = self._prompt
        self.goes_on = anyio.Event()
        #: the open requests of the bridge that is there, with their clients.
        self.asked: list[tuple[Any, Any]] = []
        self.clients: list[Any] = []

    async def _prompt(self, process: Process, params: Json) -> Json:
        await self.goes_on.wait()
        return {"stopReason": "end_turn", "text": params["prompt"][0]["text"]}

    @property
    def prompted(self) -> Counter[str]:
        sent = self.agent.params("session/prompt")
        return Counter(each["prompt"][0]["text"] for each in sent)

    async def begin(self, it: Bench) -> None:
        if self.session_id:
            await it.editor.ask("session/load", {**SETUP, "sessionId": self.session_id})
        else:
            self.session_id = await it.new()
        self.asked, self.clients = [], [it.editor, await it.attached(self.session_id)]

    def send(self, client: Any, key: str) -> None:
        params = keyed(self.session_id, f"words of {key}", key)
        self.asked.append((client, client.send("session/prompt", params)))

    def step(self) -> None:
        client = self.rng.choice(self.clients)
        match self.rng.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                self.send(client, self.rng.choice(KEYS))
            case 5 if self.asked:
                client, asked = self.rng.choice(self.asked)
                client.cancel_request(asked)
            case 6:
                client.notify("session/cancel", {"sessionId": self.session_id})
            case 7:
                word = self.rng.choice(["run", "drop", "drop 2", "edit 3 better", "move 4 last"])
                self.asked.append((client, client.prompt(self.session_id, f"/queue {word}")))
            case _:
                self.goes_on.set()
                self.goes_on = anyio.Event()

    async def settle(self, it: Bench) -> None:
        """Let all of it end; each request has one answer then."""
        self.goes_on.set()
        last = it.editor.prompt(self.session_id, "/queue run")
        await it.editor.result(last)
        for client, asked in self.asked:
            answer = await _answered(client, asked)
            assert len(client.answers(asked)) == 1, answer


async def _answered(client: Any, asked: Any) -> Json:
    try:
        return dict(await client.result(asked))
    except Exception as error:
        return {"error": str(error)}


@pytest.mark.hazard("X2.1", "Q9.1", "R12")
@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_a_key_is_run_once_at_most_and_each_attempt_is_answered_once(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    here = Played(rng)
    for number in range(BRIDGES):
        async with bench(tmp_path, here.agent) as it:
            await here.begin(it)
            for _ in range(STEPS):
                here.step()
                if rng.random() < 0.5:
                    await it.settled()
            if number + 1 < BRIDGES:
                continue
            await here.settle(it)
            before = here.prompted
            first: list[Json] = []
            second: list[Json] = []
            for key in KEYS:
                for answers in (first, second):
                    params = keyed(here.session_id, f"words of {key}", key)
                    answers.append(
                        await _answered(it.editor, it.editor.send("session/prompt", params))
                    )
            assert first == second
            again = here.prompted - before
            known = [key for key in KEYS if before[f"words of {key}"]]
            assert not [key for key in known if again[f"words of {key}"]]
    assert set(here.prompted.values()) <= {1}
