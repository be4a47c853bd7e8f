"""Sessions whose process was killed, opened again by one with other settings: by the agent alone,
and behind the bridge.

What the provider gets is judged, and what the client is told. One process, which is killed in the
end, has begun all sessions of a way: those that know LiteLLM take seconds to start.
"""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.agent.mcp_servers.support import odd
from tests.built_in.support import (
    ANTHROPIC,
    FIRST,
    OPENAI,
    START,
    Stack,
    choose,
    conversation,
    results,
    stack_in,
    system,
    tool_names,
)
from tests.support.client import RecordingClient
from tests.support.model_replies import Call, Count, Gate, Text
from tests.support.processes import all_gone
from tests.support.recording import Message, RpcError

pytestmark = pytest.mark.process

ALWAYS = {"outcome": {"outcome": "selected", "optionId": "allow_always"}}
COMMAND = Call("shell", '{"command": "echo seven"}')
ECHO = Call("mcp__polite__echo", '{"text": "hello"}')
#: the file of this name is there only while the sessions begin
MINE = "mine.txt"


@dataclass
class Killed:
    """Sessions of a process that was killed in the middle of a turn, and how to open them again."""

    stack: Stack
    module: str
    #: each in a folder of its own, which has its name
    sessions: dict[str, str] = field(default_factory=dict)
    #: what the turn of "decided" cost
    spent: float = 0

    @property
    def mine(self) -> str:
        """The name of a model that is not there any more."""
        return f"scripted:{self.stack.folder / MINE}"

    def cwd(self, session: str) -> Path:
        return self.stack.folder / session

    async def begin(self, client: RecordingClient, session: str, **params: Any) -> None:
        self.cwd(session).mkdir(exist_ok=True)
        self.sessions[session] = await client.new_session(self.cwd(session), **params)

    @asynccontextmanager
    async def loaded(
        self,
        session: str,
        *,
        model: str = OPENAI,
        env: Mapping[str, str] | None = None,
        **params: Any,
    ) -> AsyncIterator[tuple[RecordingClient, Message]]:
        """The client, and the answer to its load."""
        async with self.stack.start(self.module, model=model, env=env) as client:
            result = await client.load_session(self.sessions[session], self.cwd(session), **params)
            yield client, result


@pytest.fixture(scope="module", params=["agent", "acp_bridge"])
async def killed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Killed]:
    async with stack_in(tmp_path_factory.mktemp(request.param)) as stack:
        killed = Killed(stack, request.param)
        (stack.folder / MINE).write_text("turn\ntext: I am mine.")
        offered = {"ACP_BRIDGE_MODELS": f"{OPENAI},{ANTHROPIC},{killed.mine}"}
        env = {**offered, "ACP_BRIDGE_LOG_LEVEL": "info"}
        async with stack.start(request.param, env=env) as client:
            if request.param == "acp_bridge":  # the next ones are forked, and know LiteLLM at once
                for _ in range(2):
                    await client.new_session(stack.cwd)
                await client.logged("parent.ready", within=FIRST)
            await begin_all(client, killed)
            assert client.process is not None
            os.kill(client.process.pid, signal.SIGKILL)
            await client.wait()
        await all_gone(stack.mark)
        (stack.folder / MINE).unlink()
        yield killed


async def begin_all(client: RecordingClient, killed: Killed) -> None:
    stack = killed.stack
    await killed.begin(client, "rights", mcpServers=[odd("polite", mark=stack.mark)])
    await allowing_always(client, stack)
    await killed.begin(client, "scripted")
    await choose(client, "model", killed.mine)
    await client.prompt("Who are you?", within=FIRST)
    assert client.text(client.session_id) == "I am mine."
    await killed.begin(client, "nothing chosen")
    stack.provider.say(Text("Hello, Ann."))
    await client.prompt("I am Ann", within=FIRST)
    assert stack.provider.requests[-1].path == "/v1/chat/completions"
    await killed.begin(client, "keyless")
    await choose(client, "model", ANTHROPIC)
    stack.provider.say(Text("Hello, Ann."))
    await client.prompt("I am Ann", within=FIRST)
    killed.cwd("decided").mkdir()
    (killed.cwd("decided") / "AGENTS.md").write_text("Indent with tabs.")
    await killed.begin(client, "decided", mcpServers=[odd("polite", mark=stack.mark)])
    killed.spent = await allowing_always(client, stack)
    await working(client, stack)


def asked(client: RecordingClient) -> int:
    return len(client.recording.requests("session/request_permission"))


def values(result: Message) -> dict[str, str]:
    return {each["id"]: each["currentValue"] for each in result["configOptions"]}


def cost(client: RecordingClient) -> float:
    """As it was told last."""
    told = [u for u in client.updates() if u["sessionUpdate"] == "usage_update" and "cost" in u]
    return float(told[-1]["cost"]["amount"])


async def refused(client: RecordingClient, text: str) -> RpcError:
    with pytest.raises(RpcError) as error:
        await client.prompt(text, within=FIRST)
    return error.value


async def allowing_always(client: RecordingClient, stack: Stack) -> float:
    """A turn whose calls the user allows for ever; what it cost."""
    client.side.handlers["session/request_permission"] = lambda params: ALWAYS
    before = asked(client)
    await choose(client, "model", ANTHROPIC)
    stack.provider.say(COMMAND, ECHO, Count(100, 10))
    stack.provider.say(Text("Both done."), Count(200, 20))
    await client.prompt("Do both", within=FIRST)
    assert asked(client) - before == 2
    return cost(client)


async def working(client: RecordingClient, stack: Stack) -> None:
    """A turn that goes on."""
    stack.provider.say(Text("Working"), COMMAND, Gate("never"))
    client.send_prompt("Go on")
    await client.until_text("Working", within=START)


@pytest.mark.hazard("R8", "R9", "R13", "C17")
async def test_the_program_s_settings_win_and_the_user_s_decisions_stay(killed: Killed) -> None:
    stack = killed.stack
    (killed.cwd("decided") / "AGENTS.md").write_text("Indent with spaces.")
    env, polite = {"ACP_BRIDGE_MAX_CALLS": "2"}, odd("polite", mark=stack.mark)
    async with killed.loaded("decided", env=env, mcpServers=[polite]) as (client, result):
        assert values(result)["model"] == ANTHROPIC
        for _ in range(2):
            stack.provider.say(COMMAND, ECHO, Count(100, 10))
        answer = await client.prompt("And now?", within=FIRST)
        assert answer["stopReason"] == "max_turn_requests", "the limit is the new one"
        assert asked(client) == 0, "what was always allowed still is"
        assert cost(client) > killed.spent > 0
    last = stack.provider.requests[-1]
    assert last.path == "/v1/messages"
    assert "Indent with spaces." in system(last.body)
    assert "Indent with tabs." not in system(last.body)
    assert conversation(last.body)[:7] == [
        "user: Do both",
        'call: shell {"command": "echo seven"}',
        'call: mcp__polite__echo {"text": "hello"}',
        "result: seven\n",
        'result: ["echo", {"text": "hello"}]',
        "assistant: Both done.",
        "user: Go on",
    ]


@pytest.mark.hazard("R8", "R13")
async def test_another_server_of_the_same_name_has_no_rights_and_one_that_is_gone_is_named(
    killed: Killed,
) -> None:
    stack = killed.stack
    other = odd("polite", "other", mark=stack.mark)
    async with killed.loaded("rights", mcpServers=[other]) as (client, _):
        for reply in (COMMAND, ECHO, Text("Fine.")):
            stack.provider.say(reply)
        await client.prompt("Once more", within=FIRST)
        assert asked(client) == 1
    async with killed.loaded("rights", mcpServers=[]) as (client, _):
        stack.provider.say(Text("I see."))
        await client.prompt("And without?", within=FIRST)
        assert "not there any more: mcp__polite__echo" in client.text()
    body = stack.provider.requests[-1].body
    assert "mcp__polite__echo" not in tool_names(body)
    assert "called before are not there any more" in conversation(body)[-1]


@pytest.mark.hazard("R8")
async def test_a_model_that_is_gone_is_named_and_the_user_chooses_another(killed: Killed) -> None:
    stack, mine, before = killed.stack, killed.mine, len(killed.stack.provider.requests)
    async with killed.loaded("scripted") as (client, result):
        assert values(result)["model"] == mine
        since = client.mark()
        error = await refused(client, "And now?")
        assert mine in f"{error.message} {client.text(since=since)}"
        assert len(stack.provider.requests) == before, "nothing takes its place by itself"
        await choose(client, "model", OPENAI)
        stack.provider.say(Text("I am another."))
        since = client.mark()
        await client.prompt("And now?", within=FIRST)
        assert client.text(since=since).endswith("I am another.")
        everything = client.text()
        assert f"From here on `{OPENAI}` answers, in place of `{mine}`" in everything
    body = stack.provider.requests[-1].body
    assert conversation(body)[:2] == ["user: Who are you?", "assistant: I am mine."]
    async with killed.loaded("scripted", model=ANTHROPIC) as (client, result):
        assert values(result)["model"] == OPENAI


@pytest.mark.hazard("R8")
async def test_a_model_that_nobody_chose_is_the_command_line_s(killed: Killed) -> None:
    stack, before = killed.stack, len(killed.stack.provider.requests)
    async with killed.loaded("nothing chosen", model=ANTHROPIC) as (client, result):
        stack.provider.say(Text("Ann."))
        await client.prompt("Who am I?", within=FIRST)
        updates = [u for u in client.updates() if u["sessionUpdate"] == "config_option_update"]
        assert values((updates or [result])[-1])["model"] == ANTHROPIC
    assert [request.path for request in stack.provider.requests[before:]] == ["/v1/messages"]


async def test_without_a_key_the_session_is_shown_and_a_key_given_later_is_used(
    killed: Killed,
) -> None:
    stack = killed.stack
    none = dict.fromkeys(stack.keys, "")
    async with killed.loaded("keyless", env=none) as (client, _):
        assert "Hello, Ann." in client.text()
        error = await refused(client, "Who am I?")
        assert (error.code, "ANTHROPIC_API_KEY" in error.message) == (-32000, True)
        lines = [f"{name}={value}" for name, value in stack.keys.items()]
        (stack.home / "keys.env").write_text("\n".join(lines))
        stack.provider.say(Text("Ann."))
        await client.prompt("Who am I?", within=FIRST)
    last = stack.provider.requests[-1]
    assert last.path == "/v1/messages"
    assert conversation(last.body)[0] == "user: I am Ann"
    assert results(last.body) == []
