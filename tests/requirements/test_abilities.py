"""What `initialize` offers works, whatever model the built-in agent has."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.agent.mcp_servers.support import SDK_SERVER
from tests.built_in.support import KEY, Provider
from tests.requirements.subjects import BUILT_IN, START, Bench, Subject
from tests.support.client import RecordingClient
from tests.support.mcp_offers import PIXEL
from tests.support.model_replies import Text
from tests.support.recording import Message, RpcError

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: The one that runs without a key; one that nobody has heard of, and one that takes images. Those
#: of a line share a process, because LiteLLM takes seconds to import. The bridge
#: offers what its agent does, whatever the model: behind it one line is enough.
MODELS = (("demo",), ("openai/nobody-knows-it-1", "openai/gpt-4o"))


@dataclass
class Trial:
    """A session in which an ability is used."""

    bench: Bench
    client: RecordingClient
    #: of an MCP server, over HTTP.
    address: str
    model: str

    async def open(self, **extra: Any) -> None:
        await self.client.new_session(self.bench.cwd, START, **extra)
        await self.ask("session/set_config_option", configId="model", value=self.model)

    async def prompt(self, *blocks: Message) -> None:
        text = {"type": "text", "text": "What is this?"}
        about = {"sessionId": self.client.session_id, "prompt": [text, *blocks]}
        answer = await self.client.request("session/prompt", about, within=START)
        assert answer["stopReason"] == "end_turn"

    async def ask(self, method: str, **params: Any) -> Any:
        about = {"sessionId": self.client.session_id, **params}
        return await self.client.request(method, about, within=START)

    @property
    def place(self) -> Message:
        return {"cwd": str(self.bench.cwd), "mcpServers": []}

    async def listed(self) -> set[str]:
        page = await self.client.request("session/list", {}, within=START)
        return {row["sessionId"] for row in page["sessions"]}


async def image(trial: Trial) -> None:
    data = PIXEL if isinstance(PIXEL, str) else base64.b64encode(PIXEL).decode()
    await trial.prompt({"type": "image", "mimeType": "image/png", "data": data})


async def embedded(trial: Trial) -> None:
    resource = {"uri": "file:///w/a.txt", "mimeType": "text/plain", "text": "embedded words"}
    await trial.prompt({"type": "resource", "resource": resource})


async def close(trial: Trial) -> None:
    await trial.ask("session/close")
    with pytest.raises(RpcError):
        await trial.prompt()
    await trial.ask("session/load", **trial.place)


async def load(trial: Trial) -> None:
    seen = trial.client.mark()
    await trial.ask("session/load", **trial.place)
    kinds = {update["sessionUpdate"] for update in trial.client.updates(since=seen)}
    assert {"user_message_chunk", "agent_message_chunk"} <= kinds


async def resume(trial: Trial) -> None:
    seen = trial.client.mark()
    await trial.ask("session/resume", **trial.place)
    kinds = {update["sessionUpdate"] for update in trial.client.updates(since=seen)}
    assert "user_message_chunk" not in kinds


async def listing(trial: Trial) -> None:
    assert trial.client.session_id in await trial.listed()


async def roots(trial: Trial) -> None:
    other = str(trial.bench.folder)
    await trial.open(additionalDirectories=[other])
    await trial.prompt()


async def override(trial: Trial) -> None:
    content = [{"type": "text", "text": "You are a poet."}]
    await trial.open(systemPrompt={"mode": "override", "content": content})
    await trial.prompt()


async def fork(trial: Trial) -> None:
    forked = await trial.ask("session/fork", **trial.place)
    assert forked["sessionId"] != trial.client.session_id
    trial.client.session_id = forked["sessionId"]
    await trial.prompt()


async def title(trial: Trial) -> None:
    assert await trial.ask("session/set_title", title="Named") == {"title": "Named"}


async def delete(trial: Trial) -> None:
    gone = trial.client.session_id
    await trial.ask("session/delete")
    assert gone not in await trial.listed()
    await trial.open()
    await trial.prompt()


def server(kind: str, path: str) -> Callable[[Trial], Awaitable[None]]:
    async def use(trial: Trial) -> None:
        spec = {"type": kind, "name": kind, "url": f"{trial.address}/{path}", "headers": []}
        await trial.open(mcpServers=[spec])
        seen = trial.client.mark()
        await trial.prompt()
        assert kind not in trial.client.text(since=seen)  # where a server that fails is named

    return use


#: Every ability, in the order in which they are used: what is offered and not here fails.
ABILITIES: dict[str, Callable[[Trial], Awaitable[None]]] = {
    "promptCapabilities.image": image,
    "promptCapabilities.embeddedContext": embedded,
    "loadSession": load,
    "sessionCapabilities.list": listing,
    "sessionCapabilities.resume": resume,
    "sessionCapabilities.close": close,
    "sessionCapabilities.title": title,
    "sessionCapabilities.fork": fork,
    "sessionCapabilities.additionalDirectories": roots,
    "sessionCapabilities.systemPrompt.mode.override": override,
    "sessionCapabilities.delete": delete,
    "mcpCapabilities.http": server("http", "mcp"),
    "mcpCapabilities.sse": server("sse", "sse"),
}


def offered(capabilities: Message, prefix: str = "") -> Iterator[str]:
    """The names of all that is true, or an empty object."""
    for name, value in capabilities.items():
        if name == "_meta" or value is None or value is False:
            continue
        if isinstance(value, dict) and value:
            yield from offered(value, f"{prefix}{name}.")
        elif isinstance(value, dict) or value is True:
            yield prefix + name


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [*SDK_SERVER, "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


@pytest.fixture
async def keys() -> AsyncIterator[dict[str, str]]:
    """What leads to a provider that says something to everything."""
    async with Provider() as provider:
        provider.answer = lambda body: [Text("A thing.")]
        yield {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": provider.openai_url}


@pytest.mark.parametrize(
    ("subject", "models"),
    [(BUILT_IN[0], MODELS[1]), (BUILT_IN[1], MODELS[0])],
    ids=["the agent alone, with a key", "behind the bridge, without one"],
)
async def test_each_ability_that_is_offered_works_with_every_model(
    bench: Bench, subject: Subject, models: Sequence[str], address: str, keys: dict[str, str]
) -> None:
    env = {} if "demo" in models else {**keys, "ACP_BRIDGE_MODELS": ",".join(models)}
    async with bench.start(subject, model=models[0], initialized=False, env=env) as client:
        answer = await client.initialize(within=START)
        names = set(offered(answer["agentCapabilities"]))
        assert names <= ABILITIES.keys()
        for model in models:
            trial = Trial(bench, client, address, model)
            await trial.open()
            await trial.prompt({"type": "resource_link", "uri": "file:///w/b.txt", "name": "b"})
            for name, use in ABILITIES.items():
                if name in names:
                    await use(trial)


def test_the_abilities_are_read_however_they_are_written() -> None:
    given = {"a": True, "b": {"c": {}, "d": None, "e": False}, "_meta": {"x": True}, "f": {}}
    assert list(offered(given)) == ["a", "b.c", "f"]
