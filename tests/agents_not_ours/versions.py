"""Clients and agents of both versions of ACP, in each pairing, behind the bridge.

What the client and the bridge say to each other, and what the bridge says to an agent that is not
ours, is judged by the schema of the version that is spoken there.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

import tests.clients_not_ours.tee
from acp_bridge import __version__
from tests.agents_not_ours import restarts, trials
from tests.agents_not_ours.agents import AGENTS, NODE_MODULES, AgentNotOurs
from tests.agents_not_ours.trials import OK, PATIENCE, Stand
from tests.agents_not_ours.v2_client import V2Client
from tests.built_in.support import agents_below
from tests.clients_not_ours.judge import Connection, Refused, Schema, Side
from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.support.v1_schema import QUOTAS_OF_V1
from tests.support.v2_schema import V2Connection, extended

#: with what is not stable in it: agents of version 1 say some of that.
_V1 = NODE_MODULES / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.unstable.json"
_TEE = tests.clients_not_ours.tee.__file__
_MODEL = "openai/gpt-4o"


@dataclass(frozen=True, slots=True)
class BuiltIn(AgentNotOurs):
    """The agent of the bridge's own."""

    def words(self) -> list[str]:
        return []

    def behind(self, bridge: int) -> list[int]:
        return agents_below(bridge)

    @property
    def version(self) -> str:
        return __version__

    def env(self, home: Path, port: int) -> dict[str, str]:
        return {
            "HOME": str(home),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "ACP_BRIDGE_MODEL": _MODEL,
            "ACP_BRIDGE_MODELS": _MODEL,
        }


@dataclass(frozen=True, slots=True)
class Pairing:
    """The versions of client and agent, and with which `--agent-protocol` they are had."""

    client: int
    agent: int
    choice: str

    def __str__(self) -> str:
        return f"{self.client} and {self.agent}"


_BOTH = (
    *(Pairing(2, 2, "auto"), Pairing(2, 1, "1")),
    *(Pairing(1, 2, "2"), Pairing(1, 1, "auto")),
)
_OLD = (Pairing(2, 1, "auto"),)
_HAVE_BOTH = ("codex", "claude")
BUILT_IN = BuiltIn("built-in", "the built-in agent", "")
TRIED: tuple[AgentNotOurs, ...] = (*AGENTS, BUILT_IN)


def pairings(agent: AgentNotOurs) -> tuple[Pairing, ...]:
    """Those with a version 2 in them, for an agent that has version 1 alone."""
    return _BOTH if agent.name in _HAVE_BOTH else _OLD


@dataclass
class VersionStand(Stand):
    """One agent in one pairing."""

    pairing: Pairing = field(kw_only=True)
    #: what breaks a schema, of the bridge or the client.
    refused: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def start(self, **more: str) -> AsyncIterator[RecordingClient]:
        words = self.agent.words()
        if words:
            words = ["--", sys.executable, "-I", _TEE, str(self._tape), *words]
        command = [sys.executable, "-m", "acp_bridge", *words]
        env = {**self.env, "ACP_BRIDGE_AGENT_PROTOCOL": self.pairing.choice, **more}
        kind = V2Client if self.pairing.client == 2 else RecordingClient
        async with kind.start(command, env=env) as client:
            yield client
        judge = _judge(self.pairing.client)
        for record in client.recording:
            if record.message is None and not record.raw.endswith(b"\n"):
                continue  # cut off by a kill
            sender: Side = "client" if record.direction == "out" else "agent"
            self.refused += _complaints(judge, sender, record.raw.decode())

    @property
    def _tape(self) -> Path:
        return self.home / "tape"

    def judged(self, result: str) -> str:
        """Return the result of a trial, or what was said there that may not be."""
        if result != OK:
            return result
        told = self._complaints() if self.agent.words() else self.refused
        return OK if not told else "; ".join(dict.fromkeys(told))

    def _complaints(self) -> list[str]:
        """Return what the bridge has said to either side that may not be said there.

        What the agent has said in the same words is the agent's own.
        """
        tapes: dict[int, list[tuple[Side, str]]] = {}
        for entry in map(json.loads, self._tape.read_text().splitlines()):
            if entry.get("line", "").endswith("\n"):
                tapes.setdefault(entry["tee"], []).append((entry["from"], entry["line"]))
        found: dict[Side, list[str]] = {"client": [], "agent": []}
        for lines in tapes.values():
            version = next(_agreed(lines), None)
            if version != self.pairing.agent:
                found["client"].append(f"version {version} is spoken with the agent")
                continue
            judge = _judge(version)
            for sender, line in lines:
                found[sender] += _complaints(judge, sender, line)
        same = self.pairing.client == self.pairing.agent
        passed_on = {_what(each) for each in found["agent"]} if same else ()
        return [*found["client"], *(x for x in self.refused if _what(x) not in passed_on)]


def _what(complaint: str) -> str:
    """Return what is wrong, in whichever request or answer: a load becomes a resume."""
    return complaint.partition(": ")[2] or complaint


def _agreed(lines: list[tuple[Side, str]]) -> Iterator[Any]:
    for sender, line in lines:
        if sender == "agent" and '"protocolVersion"' in line:
            yield json.loads(line)["result"]["protocolVersion"]


def _judge(version: int) -> Callable[[Side, str], None]:
    """Return what raises Refused for the next line of a connection that breaks the version."""
    if version == 2:
        newer = V2Connection()
        return lambda sender, line: newer.judge(sender, json.loads(line))
    older = Connection(Schema(extended(_V1, QUOTAS_OF_V1)))
    return lambda sender, line: older.judge(sender, json.dumps(_as_asked(json.loads(line))))


def _as_asked(message: Message) -> Message:
    """Return a message without what `initialize` asks of an agent of version 2."""
    match message:
        case {"method": "initialize", "params": {"protocolVersion": 2, **params}}:
            told = {name: params[name] for name in params if name not in ("info", "capabilities")}
            return {**message, "params": {"protocolVersion": 2, **told}}
    return message


def _complaints(judge: Callable[[Side, str], None], sender: Side, line: str) -> list[str]:
    try:
        judge(sender, line)
    except (Refused, ValueError) as refused:
        return [str(refused)]
    return []


def _send_keyed(client: RecordingClient, text: str, key: str) -> Any:
    if isinstance(client, V2Client):
        return client.send_prompt(text, idempotencyKey=key)
    return client.send_prompt(text, _meta={"acp_bridge": {"promptKey": key}})


async def _raw(client: RecordingClient, request: Any) -> Message:
    """Return the answer to a prompt as it came, without its id."""
    answer = await RecordingClient.answer_to(client, request, PATIENCE)
    return {name: answer[name] for name in ("result", "error") if name in answer}


def _names_shown(client: RecordingClient, answer: Message) -> bool:
    """Return True if an answer of version 2 names a message of the user's that was shown."""
    kinds = ("user_message", "user_message_chunk")
    shown = [each for each in client.updates() if each["sessionUpdate"] in kinds]
    named = answer.get("result", {}).get("messageId")
    return named is not None and named in [each["messageId"] for each in shown]


async def deaf(stand: Stand) -> str:
    """A cancel to an agent that is stopped (SIGSTOP): killed, replaced, and it remembers."""
    async with stand.start() as client:
        await stand.begin(client)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        await stand.settle()
        running = client.send_prompt("COUNT 1000 20 X")
        await client.until_text("X3", within=PATIENCE)
        stand.signal(client, signal.SIGSTOP)
        client.cancel()
        stopped = trials.stop_of(await client.answer_to(running, within=PATIENCE))
        if stopped != "cancelled":
            return stopped
        mark = client.mark()
        if wrong := await trials.next_one(client, "N"):
            return wrong
        if " X" in client.text(since=mark):
            return "leaks"
    return OK if "COUNT 5 0 H" in stand.server.given_for("N") else "first turn not remembered"


async def bridge_killed(stand: Stand) -> str:
    """`kill -9` of the bridge in a turn, then another one: what is shown, what is known."""
    async with stand.start() as client:
        session_id = await stand.begin(client)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        await stand.settle()
        client.send_prompt("COUNT 1000 20 K")
        await client.until_text("K5", within=PATIENCE)
        client.kill()
        await client.wait()
        shown = client.text()
    async with stand.start() as client:
        await stand.load(client, session_id)
        replayed = client.text()
        if wrong := await trials.next_one(client, "M"):
            return wrong
    if shown[shown.index("K0") :].strip() not in replayed:
        return "what had streamed not replayed"
    return OK if "COUNT 5 0 H" in stand.server.given_for("M") else "first turn not remembered"


async def sent_again(stand: Stand) -> str:
    """A prompt is sent again while it runs, when it has ended, and both to another bridge."""
    async with stand.start() as client:
        session_id = await stand.begin(client)
        first = _send_keyed(client, "COUNT 20 20 S", "one")
        await client.until_text("S3", within=PATIENCE)
        again = _send_keyed(client, "COUNT 20 20 S", "one")
        await client.answer_to(first, within=PATIENCE)
        answer = await _raw(client, first)
        if await _raw(client, again) != answer:
            return "another answer while it runs"
        if await _raw(client, _send_keyed(client, "COUNT 20 20 S", "one")) != answer:
            return "another answer when it has ended"
        await stand.settle()
        _send_keyed(client, "COUNT 1000 20 X", "two")
        await client.until_text("X3", within=PATIENCE)
        client.kill()
        await client.wait()
    async with stand.start() as client:
        await stand.load(client, session_id)
        ended = await _raw(client, _send_keyed(client, "COUNT 20 20 S", "one"))
        broken = await _raw(client, _send_keyed(client, "COUNT 1000 20 X", "two"))
        if isinstance(client, V2Client):
            same = _names_shown(client, ended) and _names_shown(client, broken)
        else:
            same = ended == answer and "error" in broken
        if not same:
            return f"other answers of another bridge: {ended}, {broken}"
        if wrong := await trials.next_one(client, "N"):
            return wrong
        shown = client.text().count(trials.counted("S", 20))
    return OK if shown == 1 else f"it ran {shown} times"


TRIALS: dict[str, Callable[[Stand], Awaitable[str]]] = {
    **{
        name: restarts.TRIALS[name]
        for name in (
            "a prompt",
            "three at once, in order",
            "cancel, then the next",
            "a command, allowed and denied",
            "always allowed",
            "cancel while it asks",
            "a denied card, loaded again",
            "ended, then load",
            "`kill -9` in a turn, then load",
        )
    },
    "cancel of a deaf agent": deaf,
    "`kill -9` of the bridge, then load": bridge_killed,
    "sent again under its key": sent_again,
}


Results = dict[tuple[AgentNotOurs, Pairing, str], str]


def run(agents: Sequence[AgentNotOurs]) -> Results:
    """Put each agent through each trial, in each of its pairings."""
    results: Results = {}
    for agent in agents:
        for pairing in pairings(agent):
            for name, trial in TRIALS.items():
                with trials.place() as (home, server):
                    stand = VersionStand(agent, True, home, server, pairing=pairing)
                    result = stand.judged(anyio.run(trials.tried, stand, trial))
                results[agent, pairing, name] = result
                print(f"{agent.name:10} {pairing!s:8} {name:36} {result}", flush=True)
    return results


def table(results: Results) -> str:
    """Return the table in Markdown: a row an agent and pairing."""
    lines = [
        f"| agent | client, agent | {' | '.join(TRIALS)} |",
        "|---|---|" + "---|" * len(TRIALS),
    ]
    for agent, pairing in dict.fromkeys(each[:2] for each in results):
        row = [results[agent, pairing, name] for name in TRIALS]
        lines.append(f"| {agent.package} {agent.version} | {pairing} | {' | '.join(row)} |")
    return "\n".join(lines)
