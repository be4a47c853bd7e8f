"""What each agent is put through, alone or behind the bridge: a word for the table a trial."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tests.agents_not_ours.agents import AgentNotOurs
from tests.agents_not_ours.model_server import ModelServer
from tests.support.client import RecordingClient
from tests.support.processes import descendants

OK = "yes"
#: seconds for a slow agent on a busy machine.
PATIENCE = 60


@dataclass
class Stand:
    """One agent in one arrangement, with its folders."""

    agent: AgentNotOurs
    bridged: bool
    home: Path
    server: ModelServer
    results: dict[str, str] = field(default_factory=dict)

    def start(self) -> AbstractAsyncContextManager[RecordingClient]:
        command = self.agent.words()
        if self.bridged:
            command = [sys.executable, "-m", "acp_bridge", "--", *command]
        env = self.agent.env(self.home, self.server.port)
        return RecordingClient.start(
            command, env={**env, "ACP_BRIDGE_HOME": str(self.home / "bridge")}
        )

    async def begin(self, client: RecordingClient) -> str:
        await client.initialize(within=PATIENCE)
        return await client.new_session(self.home, PATIENCE)

    async def load(self, client: RecordingClient, session_id: str) -> None:
        await client.initialize(within=PATIENCE)
        await client.load_session(session_id, self.home, PATIENCE)


def _words(tag: str, count: int) -> str:
    return "".join(f"{tag}{number} " for number in range(count))


def _stop(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"error {answer['error'].get('code')}"
    return str(answer["result"].get("stopReason"))


async def prompt(stand: Stand) -> str:
    """One prompt, streamed and ended."""
    async with stand.start() as client:
        await stand.begin(client)
        answer = await client.prompt("COUNT 20 0 P", within=PATIENCE)
        if _words("P", 20) not in client.text():
            return f"words missing: {client.text()[-60:]!r}"
        return OK if answer["stopReason"] == "end_turn" else str(answer["stopReason"])


async def three(stand: Stand) -> str:
    """Three prompts at once: each answered once, in order, its words before its answer."""
    async with stand.start() as client:
        await stand.begin(client)
        ids = [client.send_prompt(f"COUNT 10 20 {tag}") for tag in ("AA", "BB", "CC")]
        seen = []
        with anyio.move_on_after(20):
            for request in ids:
                seen.append(_stop(await client.answer_to(request, within=PATIENCE)))
        if seen != ["end_turn"] * 3:
            missing = ["no answer"] * (3 - len(seen))
            return ", ".join([*seen, *missing])
        text = client.text()
        at = [text.find(_words(tag, 10)) for tag in ("AA", "BB", "CC")]
        return OK if -1 not in at and at == sorted(at) else "mixed or missing words"


async def cancel(stand: Stand) -> str:
    """Cancelled in the stream; then the next prompt, with nothing of the old one in it."""
    async with stand.start() as client:
        await stand.begin(client)
        running = client.send_prompt("COUNT 1000 20 X")
        await client.until_text("X3", within=PATIENCE)
        client.cancel()
        stopped = _stop(await client.answer_to(running, within=PATIENCE))
        if stopped != "cancelled":
            return stopped
        mark = client.mark()
        answer = await client.prompt("COUNT 5 0 Y", within=PATIENCE)
        if answer["stopReason"] != "end_turn" or _words("Y", 5) not in client.text(since=mark):
            return "next prompt lost"
        return "leaks" if " X" in client.text(since=mark) else OK


async def kill(stand: Stand) -> str:
    """`kill -9` of the agent in a turn, then a fresh process: what is shown, what is known."""
    async with stand.start() as client:
        session_id = await stand.begin(client)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        running = client.send_prompt("COUNT 1000 20 K")
        await client.until_text("K5", within=PATIENCE)
        _kill_agent(client, bridged=stand.bridged)
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
    if _words("H", 5) not in replayed:
        lost.append("first turn not replayed")
    if shown[shown.index("K0") :].strip() not in replayed:
        lost.append("what had streamed not replayed")
    if "COUNT 5 0 H" not in stand.server.given_for("M"):
        lost.append("first turn not remembered")
    return ", ".join(lost) or OK


def _kill_agent(client: RecordingClient, *, bridged: bool) -> None:
    assert client.process is not None
    pid = client.process.pid
    guard = descendants(pid)[0] if bridged else pid
    for victim in descendants(guard) + ([] if bridged else [pid]):
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue


TRIALS: dict[str, Callable[[Stand], Awaitable[str]]] = {
    "a prompt": prompt,
    "three at once, in order": three,
    "cancel, then the next": cancel,
    "`kill -9` in a turn, then load": kill,
}
