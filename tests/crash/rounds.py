"""The rounds: where the kill falls, and what must hold after it."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from tests.support.client import FULL_CAPABILITIES, RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.processes import MARK, all_gone, descendants, kill_marked

CAPABILITIES = {**FULL_CAPABILITIES, "_meta": {"acp_bridge": {"accepted": True}}}
#: what the built-in agent says, and the line that makes it ignore a cancel
DIALOGUE = """
when: ^say
echo

when: ^stream
{deaf}
pace: 1
repeat: 500
text: word{{i}}
"""
#: seconds within which every process of a dead bridge is gone (invariant P1).
GONE_WITHIN = 3


class Lost(AssertionError):
    """Something acknowledged or shown is missing, or somebody waits for ever."""


@dataclass
class Round:
    """One round's folder, processes, and what its clients were told."""

    rng: random.Random
    home: Path
    #: the agent is the built-in one, whose processes are forked; else the fixture agent.
    built_in: bool = False
    mark: str = field(default_factory=lambda: uuid4().hex)
    session_id: str = ""
    #: texts of prompts that the bridge said it had accepted.
    accepted: list[str] = field(default_factory=list)
    #: what the agent was seen to say, in order.
    shown: str = ""

    def bridge(self, *behaviours: str) -> AbstractAsyncContextManager[RecordingClient]:
        env = {
            "ACP_BRIDGE_HOME": str(self.home / "bridge"),
            "ACP_BRIDGE_DRAIN_TIMEOUT": "0.3",
            "ACP_BRIDGE_SLEEP_AFTER": "0.001",
            "FIXTURE_HOME": str(self.home / "agent"),
            MARK: self.mark,
        }
        agent = ["--", *fixture_command(*behaviours)]
        if self.built_in:
            dialogue = self.home / "dialogue"
            dialogue.write_text(DIALOGUE.format(deaf="deaf" if behaviours else ""))
            agent = ["--model", f"scripted:{dialogue}"]
        return RecordingClient.start([sys.executable, "-m", "acp_bridge", *agent], env=env)

    async def begin(self, client: RecordingClient) -> None:
        await client.initialize(CAPABILITIES)
        self.session_id = await client.new_session(self.home)

    async def note(self, client: RecordingClient) -> None:
        """What a client that was cut off had been told: everything up to the end of its pipe."""
        with anyio.fail_after(5):
            await client.closed.wait()
        self.note_so_far(client)

    def note_so_far(self, client: RecordingClient) -> None:
        texts = {
            record.message["id"]: record.message["params"]["prompt"][0]["text"]
            for record in client.recording
            if record.direction == "out" and record.message and _is_prompt(record.message)
        }
        for told in client.recording.requests("_acp_bridge/accepted"):
            text = texts[told["params"]["requestId"]]
            if text not in self.accepted:
                self.accepted.append(text)
        self.shown = agent_text(client)

    async def check(self) -> None:
        """A new bridge loads the session twice: all is there, the same each time."""
        async with self.bridge() as client:
            await client.initialize(CAPABILITIES)
            result = await client.load_session(self.session_id, self.home)
            said, known = agent_text(client), user_texts(client)
            held = [block["text"] for prompt in _held(result) for block in prompt]
            if not said.startswith(self.shown):
                raise Lost(f"shown {self.shown[-300:]!r}, replayed {said[-300:]!r}")
            for text in self.accepted:
                if (known.count(text) + held.count(text)) != 1:
                    raise Lost(f"accepted {text!r}: in the transcript {known}, held {held}")
            mark = client.mark()
            again = await client.load_session(self.session_id, self.home)
            if agent_text(client, mark) != said or _held(again) != _held(result):
                raise Lost("a second load shows something else")
            answer = await client.prompt("say after", within=15)
            if answer != {"stopReason": "end_turn"}:
                raise Lost(f"the session is of no use any more: {answer}")
        await self.nothing_left()

    async def nothing_left(self) -> None:
        try:
            await all_gone(self.mark, GONE_WITHIN)
        except TimeoutError as exc:
            raise Lost(str(exc)) from exc


def agent_text(client: RecordingClient, since: int = 0) -> str:
    """What the agent said to this client, without what the bridge said by itself."""
    return "".join(
        update["content"]["text"]
        for update in client.recording.updates(since=since)
        if update["sessionUpdate"] == "agent_message_chunk"
        and not str(update.get("messageId", "")).startswith(("acp-bridge", "interrupted", "held"))
    )


def user_texts(client: RecordingClient) -> list[str]:
    return [
        update["content"]["text"]
        for update in client.recording.updates()
        if update["sessionUpdate"] == "user_message_chunk"
    ]


def _held(result: dict[str, Any]) -> list[Any]:
    held: list[Any] = result["_meta"]["acp_bridge"].get("held", [])
    return held


def _is_prompt(message: dict[str, Any]) -> bool:
    return bool(message.get("method") == "session/prompt")


# --- the kills -------------------------------------------------------------------------------


def kill_bridge(client: RecordingClient) -> None:
    client.kill()


def kill_agent(it: Round, client: RecordingClient) -> bool:
    """The agent itself, not its guard; False if there is none just now.

    Of the built-in agent, any process behind the bridge: the agent, its guard, or the parent.
    """
    assert client.process is not None
    if it.built_in:
        behind = descendants(client.process.pid)
        return bool(behind) and kill(it.rng.choice(behind))
    for guard in descendants(client.process.pid):
        for agent in descendants(guard):
            if kill(agent):
                return True
    return False


def kill(pid: int) -> bool:
    """SIGKILL it; False if it has ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


async def steps(count: int) -> None:
    """Let the event loop go round: a moment, drawn by the seed, too short to name."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


# --- the phases ------------------------------------------------------------------------------


async def stream(it: Round) -> None:
    """The bridge or the agent is killed while a turn streams, others wait behind it."""
    async with it.bridge() as client:
        await it.begin(client)
        await client.prompt("say first")
        running = client.send_prompt(f"stream {it.rng.choice([20, 200, 5000])}")
        waiting = [client.send_prompt(f"say w{n}") for n in range(it.rng.randrange(3))]
        seen = it.rng.randrange(1, 20)
        await client.until_recorded(lambda: len(client.updates()) > seen or None)
        if it.rng.random() < 0.5:
            kill_bridge(client)
            await it.note(client)
            return
        kill_agent(it, client)
        for request in [running, *waiting]:
            await client.answer_to(request, within=15)
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


async def drain(it: Round) -> None:
    """The bridge or the agent is killed between a cancel and its answer."""
    async with it.bridge("ignores-cancel") as client:
        await it.begin(client)
        running = client.send_prompt("stream 100000")
        await client.until_recorded(lambda: len(client.updates()) > 3 or None)
        waiting = client.send_prompt("say waiting")
        client.cancel()
        await anyio.sleep(it.rng.random() * 0.5)
        if it.rng.random() < 0.5:
            kill_bridge(client)
            await it.note(client)
            return
        kill_agent(it, client)
        if (await client.answer_to(running, within=15)).get("result") != {
            "stopReason": "cancelled"
        }:
            raise Lost("a cancelled prompt was not answered `cancelled`")
        await client.answer_to(waiting, within=15)
        it.note_so_far(client)


async def load(it: Round) -> None:
    """The bridge is killed while it replays."""
    async with it.bridge() as client:
        await it.begin(client)
        await client.prompt("say first")
        await client.prompt(f"stream {it.rng.choice([50, 3000])}", within=15)
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
        await client.prompt("say first")
        kill_agent(it, client)  # the agent is seen to take the session up again
        for n in range(it.rng.randrange(1, 4)):
            await client.answer_to(client.send_prompt(f"say p{n}"), within=15)
            await anyio.sleep(0.04 + it.rng.random() * 0.06)
        client.send_prompt("say last")
        await steps(it.rng.randrange(300))
        kill_bridge(client)
        await it.note(client)


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
        await client.prompt("say first")
        it.note_so_far(client)


PHASES: dict[str, Callable[[Round], Awaitable[None]]] = {
    "stream": stream,
    "accept": accept,
    "drain": drain,
    "load": load,
    "sleep": sleep,
    "migration": migration,
}


async def play(phase: str, seed: str, *, built_in: bool = False) -> None:
    """One round; raises Lost or TimeoutError."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        it = Round(random.Random(seed), Path(folder), built_in)
        try:
            await PHASES[phase](it)
            await it.nothing_left()
            await it.check()
        finally:
            kill_marked(it.mark)
