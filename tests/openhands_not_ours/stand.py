"""One arrangement of a test: the adapter alone or behind the bridge, before one agent-server."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.openhands_not_ours.model import ModelServer
from tests.openhands_not_ours.server import KEY, AgentServer, Api
from tests.support.client import RecordingClient
from tests.support.processes import descendants
from tests.support.recording import Message, RpcError

#: seconds for what a slow server on a busy machine does
PATIENCE = 60
ROOT = Path(__file__).parents[2]


def adapter(url: str, profile: str | None = None) -> list[str]:
    words = [sys.executable, "-I", "-m", "agent.openhands", "--url", url]
    return [*words, "--profile", profile] if profile else words


def bridge(url: str, profile: str | None = None) -> list[str]:
    words = [sys.executable, "-m", "acp_bridge", "--openhands", url]
    return [*words, "--openhands-profile", profile] if profile else words


@dataclass
class Stand:
    server: AgentServer
    model: ModelServer
    api: Api
    bridged: bool
    #: the folder of the bridge's journal, and what else a run keeps
    home: Path
    #: the sessions' working directory
    cwd: Path
    env: dict[str, str]
    #: the conversations that there were before the test
    before: set[str] = field(default_factory=set)

    @asynccontextmanager
    async def client(
        self,
        *,
        url: str | None = None,
        key: str = KEY,
        profile: str | None = None,
        loads: str = "",
    ) -> AsyncIterator[RecordingClient]:
        """Started and initialized, with a new session, or with this one loaded."""
        async with self.started(url=url, key=key, profile=profile) as client:
            await client.initialize(within=PATIENCE)
            if loads:
                await client.load_session(loads, self.cwd, PATIENCE)
            else:
                await client.new_session(self.cwd, PATIENCE)
            yield client

    @asynccontextmanager
    async def started(
        self, *, url: str | None = None, key: str = KEY, profile: str | None = None
    ) -> AsyncIterator[RecordingClient]:
        """Started, no more. The adapter's exit is bounded by 5 s, the bridge's by 3."""
        env = {**self.env, "OPENHANDS_SESSION_API_KEY": key, "ACP_BRIDGE_HOME": str(self.home)}
        make = bridge if self.bridged else adapter
        command = make(url or self.server.url, profile)
        async with RecordingClient.start(command, env=env, exit_within=6) as client:
            yield client

    async def conversation(self) -> str:
        """The id of the one that the test made."""
        (made,) = set(await self.api.conversations()) - self.before
        return made

    def agent_pids(self, client: RecordingClient) -> list[int]:
        """The adapter's processes, without bridge and guards."""
        assert client.process
        pid = client.process.pid
        if not self.bridged:
            return [pid]
        return [below for guard in descendants(pid) for below in descendants(guard)]


def numbers(text: str, tag: str) -> list[int]:
    """The words of SAY that are in it, in their order."""
    return [int(number) for number in re.findall(rf"\b{tag}(\d+)\b", text)]


def thoughts(client: RecordingClient, since: int = 0) -> str:
    return "".join(_texts(client, "agent_thought_chunk", since))


def user_texts(client: RecordingClient, since: int = 0) -> str:
    """What is shown as the user's."""
    return "\n".join(_texts(client, "user_message_chunk", since))


def _texts(client: RecordingClient, kind: str, since: int) -> list[str]:
    return [
        update["content"]["text"]
        for update in client.updates(since=since)
        if update["sessionUpdate"] == kind and update["content"]["type"] == "text"
    ]


@dataclass
class Card:
    """A tool call as the client has it, its updates merged."""

    fields: dict[str, Any]
    #: in their order
    statuses: list[str]
    #: how often it began: `tool_call`
    begun: int = 0

    @property
    def ends(self) -> list[str]:
        return [status for status in self.statuses if status in ("completed", "failed")]


def cards(client: RecordingClient, since: int = 0) -> list[Card]:
    """In the order of their first being seen."""
    found: dict[str, Card] = {}
    for update in client.updates(since=since):
        if update["sessionUpdate"] not in ("tool_call", "tool_call_update"):
            continue
        card = found.setdefault(update["toolCallId"], Card({}, []))
        card.begun += update["sessionUpdate"] == "tool_call"
        card.fields.update(update)
        if "status" in update:
            card.statuses.append(update["status"])
    return list(found.values())


def stop_reason(answer: Message) -> str:
    """Or "error CODE"."""
    if "error" in answer:
        return f"error {answer['error']['code']}"
    return str(answer["result"]["stopReason"])


def run_command(command: str) -> str:
    """The prompt that makes the model call the terminal."""
    return "TOOL terminal " + json.dumps({"command": command, "security_risk": "LOW"})


def edit(**arguments: str) -> str:
    """The prompt that makes the model call the file editor."""
    return "TOOL file_editor " + json.dumps({**arguments, "security_risk": "LOW"})


async def set_policy(stand: Stand, client: RecordingClient, kind: str) -> str:
    """Sets the mode whose confirmation policy on the server is this; returns the mode's id."""
    conversation = await stand.conversation()
    opened = client.recording.answers(1)[0]["result"]
    offered = [mode["id"] for mode in opened["modes"]["availableModes"]]
    for mode in offered:
        params = {"sessionId": client.session_id, "modeId": mode}
        await client.request("session/set_mode", params, PATIENCE)
        if (await stand.api.conversation(conversation))["confirmation_policy"]["kind"] == kind:
            return str(mode)
    raise AssertionError(f"none of the modes {offered} is {kind}")


async def error_of(client: RecordingClient, method: str, params: Any) -> RpcError:
    """The error that a request is answered with."""
    try:
        result = await client.request(method, params, PATIENCE)
    except RpcError as error:
        return error
    raise AssertionError(f"{method} was answered {result}")
