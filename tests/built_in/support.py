"""The whole stack: a recording client, the bridge with its agent or the agent alone, and a provider
of models on the loopback.

Nothing in between is a stand-in: real processes, LiteLLM, HTTP.
"""

import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream

from tests.core.agents.guard_support import parent_of
from tests.support.client import RecordingClient
from tests.support.model_replies import Json, Status, Step
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.processes import MARK, all_gone, command_line, descendants, kill_marked
from tests.support.recording import Message

ROOT = Path(__file__).parents[2]
OPENAI, ANTHROPIC = "openai/gpt-4o", "anthropic/claude-sonnet-4-5"
KEY = "sk-made-up-0123456789"
FORK_PARENT = "agent.fork_parent"
#: seconds for a process to start on a busy machine, and to its first answer if it has LiteLLM to
#: import
START, FIRST = 20, 40


class Provider(ModelServer):
    """As strict as the real ones: a conversation that is not well formed is refused."""

    def __init__(self) -> None:
        super().__init__()
        #: from now on requests are taken and nothing is said
        self.mute = False
        self.hung_up = 0

    async def until_hung_up(self, count: int) -> None:
        """Until so many connections were closed by the client."""
        await self._until(lambda: self.hung_up >= count)

    async def until_gone(self, request: ModelRequest) -> None:
        """Until its connection was closed before it was answered."""
        with anyio.fail_after(5):
            await request.gone.wait()

    async def _serve_connection(self, stream: SocketStream) -> None:
        await super()._serve_connection(stream)
        self.hung_up += 1
        self._tell()

    async def _reply(self, connection: Any, request: ModelRequest) -> None:
        if self.mute:
            await anyio.sleep_forever()
        await super()._reply(connection, request)

    def _reply_to(self, request: ModelRequest) -> Sequence[Step]:
        if problem := "; ".join(problems(request.body)):
            return [Status(400, problem)]
        return super()._reply_to(request)


@dataclass
class Stack:
    """A folder of its own, and what is started there."""

    folder: Path
    provider: Provider
    mark: str
    #: the session's
    cwd: Path = field(init=False)
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        self.cwd, self.home = self.folder / "project", self.folder / "home"
        self.cwd.mkdir()
        self.home.mkdir()

    @property
    def keys(self) -> dict[str, str]:
        """The variables that lead to the provider."""
        return {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": self.provider.openai_url,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.provider.anthropic_url,
        }

    @asynccontextmanager
    async def start(
        self,
        module: str = "acp_bridge",
        *,
        model: str = OPENAI,
        capabilities: Message | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncIterator[RecordingClient]:
        """Initialized. `capabilities`: the client's, none by default; `env`: added."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        own = {
            MARK: self.mark,
            "ACP_BRIDGE_HOME": str(self.home),
            "ACP_BRIDGE_MODELS": f"{OPENAI},{ANTHROPIC}",
            "PYTHONPATH": path,
        }
        command = [sys.executable, "-m", module, "--model", model]
        given = {**self.keys, **own, **(env or {})}
        async with RecordingClient.start(command, env=given, exit_within=5) as client:
            await client.initialize(capabilities or {}, within=START)
            yield client


@asynccontextmanager
async def stack_in(folder: Path) -> AsyncIterator[Stack]:
    """At the end no process of it lives."""
    mark = uuid.uuid4().hex
    try:
        async with Provider() as provider:
            yield Stack(folder, provider, mark)
            await all_gone(mark)
    finally:
        kill_marked(mark)


def agent_pid(client: RecordingClient) -> int:
    """Of the only agent behind the client's bridge."""
    [pid] = agent_pids(client)
    return pid


def agent_pids(client: RecordingClient) -> list[int]:
    """Of all agents behind the client's bridge."""
    assert client.process is not None
    return agents_below(client.process.pid)


def agents_below(bridge: int) -> list[int]:
    """Of all agents behind a bridge, executed or forked.

    A forked one has the command line of the parent, and so has its guard, also one that waits for
    an agent. What is below a guard is told by the guard's folder: with its agent it goes to `/`.
    """
    return sorted(
        pid
        for pid in descendants(bridge)
        if "-m agent" in (line := command_line(pid)) and "guard" not in line and _is_guarded(pid)
    )


def _is_guarded(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{parent_of(pid)}/cwd") == "/"
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return False


# what a provider was sent


def conversation(body: Json) -> list[str]:
    """It without the system prompt, in the same words for both forms: `user: ...`."""
    messages = [m for m in body["messages"] if m["role"] != "system"]
    return [line for message in messages for line in _lines(message)]


def system(body: Json) -> str:
    """The system prompt, in either form."""
    first = body["messages"][0]
    content = first["content"] if first["role"] == "system" else body["system"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def tool_names(body: Json) -> set[str]:
    return {tool.get("function", tool)["name"] for tool in body["tools"]}


def results(body: Json) -> list[str]:
    """Of its tool calls."""
    lines = conversation(body)
    return [line.removeprefix("result: ") for line in lines if line.startswith("result: ")]


def _lines(message: Json) -> Iterator[str]:
    role = message["role"]
    for part in _parts(message):
        match part:
            case {"type": "text", "text": text} if text:
                yield f"{'result' if role == 'tool' else role}: {text}"
            case {"type": "tool_use", "name": name, "input": arguments}:
                yield f"call: {name} {json.dumps(arguments)}"
            case {"type": "tool_result"}:
                yield f"result: {''.join(p['text'] for p in _parts(part))}"
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield f"call: {function['name']} {json.dumps(json.loads(function['arguments']))}"


def _parts(message: Json) -> list[Json]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def problems(body: Json) -> Iterator[str]:
    """Why a provider would refuse the messages."""
    waiting: list[str] = []
    for message in body["messages"]:
        answered = _answered(message)
        if sorted(answered) != sorted(waiting[: len(answered)]):
            yield f"results {answered} for the calls {waiting}"
        waiting = waiting[len(answered) :]
        if waiting and message["role"] != "tool":
            yield f"calls without results: {waiting}"
            waiting = []
        waiting += _called(message)
        if not answered and not list(_lines(message)):
            yield f"an empty message of {message['role']}"
    if waiting or not body["messages"] or body["messages"][-1]["role"] == "assistant":
        yield f"the end: {waiting}"


def _called(message: Json) -> list[str]:
    uses = [part["id"] for part in _parts(message) if part.get("type") == "tool_use"]
    return uses + [call["id"] for call in message.get("tool_calls") or ()]


def _answered(message: Json) -> list[str]:
    if message["role"] == "tool":
        return [message["tool_call_id"]]
    return [p["tool_use_id"] for p in _parts(message) if p.get("type") == "tool_result"]


# what a client asks for


async def choose(client: RecordingClient, option: str, value: str) -> None:
    params = {"sessionId": client.session_id, "configId": option, "value": value}
    await client.request("session/set_config_option", params)
