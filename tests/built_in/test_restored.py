"""Sessions whose bridge was killed, opened again by one with other settings.

What the provider gets is judged, and what the client is told. One bridge, which is killed in the
end, has begun all sessions, and another one opens them: processes that know LiteLLM take seconds to
start. The agent alone is in tests/agent/session/test_restored.py, and its process in
tests/agent/process.
"""

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.agent.mcp_servers.support import odd
from tests.built_in.support import (
    ANTHROPIC,
    FIRST,
    KEY,
    OPENAI,
    START,
    Stack,
    agent_pids,
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

pytestmark = [pytest.mark.process, pytest.mark.slow]

ALWAYS = {"outcome": {"outcome": "selected", "optionId": "allow_always"}}
#: what the user has chosen in the first process
CHOSEN = "anthropic/claude-opus-4-5"
OF_OPENAI, OF_ANTHROPIC = "/v1/chat/completions", "/v1/messages"
OFFERED = f"{OPENAI},{ANTHROPIC},{CHOSEN}"
COMMAND = Call("shell", '{"command": "echo seven"}')
ECHO = Call("mcp__polite__echo", '{"text": "hello"}')
#: what a scripted model says, where nothing is about the provider: LiteLLM takes seconds to import
SAID = """
when: ^Hello
text: Hello.

when: ^Do it
call: shell {"command": "echo seven"}
---
text: Done.
"""
#: the file of this name is there only while the sessions begin
MINE = "mine.txt"


@dataclass
class Killed:
    """Sessions of a process that was killed in the middle of a turn."""

    stack: Stack
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


@dataclass
class Reopened:
    """The process that opens them: its model is OPENAI, and it has no key for ANTHROPIC's models
    when it starts."""

    killed: Killed
    client: RecordingClient
    #: what "keyless" showed and how its prompt was refused, before there was a key
    shown: str = ""
    refusal: RpcError = field(init=False)

    @property
    def stack(self) -> Stack:
        return self.killed.stack

    async def load(self, session: str, **params: Any) -> Message:
        """Loads it, and is in it; the answer."""
        session_id, cwd = self.killed.sessions[session], self.killed.cwd(session)
        answer: Message = await self.client.load_session(session_id, cwd, **params)
        return answer

    async def close(self) -> None:
        await self.client.request("session/close", {"sessionId": self.client.session_id})

    def text(self, since: int = 0) -> str:
        """What the session that it is in was shown."""
        return self.client.text(self.client.session_id, since)


@pytest.fixture(scope="module")
async def killed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Killed]:
    async with stack_in(tmp_path_factory.mktemp("restored")) as stack:
        killed = Killed(stack)
        (stack.folder / MINE).write_text("turn\ntext: I am mine.")
        offered = {"ACP_BRIDGE_MODELS": f"{OFFERED},{killed.mine}"}
        env = {**offered, "ACP_BRIDGE_LOG_LEVEL": "info"}
        async with stack.start(model=ANTHROPIC, env=env) as client:
            await begin_all(client, killed)
            assert client.process is not None
            os.kill(client.process.pid, signal.SIGKILL)
            await client.wait()
        await all_gone(stack.mark)
        (stack.folder / MINE).unlink()
        yield killed


@pytest.fixture(scope="module")
async def reopened(killed: Killed) -> AsyncIterator[Reopened]:
    stack = killed.stack
    given = {name: value for name, value in stack.keys.items() if name.startswith("ANTHROPIC")}
    settings = {"ACP_BRIDGE_MODELS": OFFERED, "ACP_BRIDGE_MAX_CALLS": "2"}
    env = {**settings, **dict.fromkeys(given, ""), "ACP_BRIDGE_LOG_LEVEL": "info"}
    async with stack.start(model=OPENAI, env=env) as client:
        it = Reopened(killed, client)
        await it.load("keyless")
        it.shown = it.text()
        it.refusal = await refused(client, "Who am I?")
        lines = [f"{name}={value}" for name, value in given.items()]
        (stack.home / "keys.env").write_text("\n".join(lines))
        await all_loaded(client)
        yield it


async def all_loaded(client: RecordingClient) -> None:
    """Until a bridge forks its agents: they know LiteLLM at once, and need not load it again."""
    await client.logged("parent.ready", within=FIRST)


async def begin_all(client: RecordingClient, killed: Killed) -> None:
    stack = killed.stack
    await killed.begin(client, "rights", mcpServers=[odd("polite", mark=stack.mark)])
    await all_loaded(client)
    await allowing_always(client, stack)
    await killed.begin(client, "scripted")
    await choose(client, "model", killed.mine)
    await client.prompt("Who are you?", within=FIRST)
    assert client.text(client.session_id) == "I am mine."
    await killed.begin(client, "nothing chosen")
    stack.provider.say(Text("Hello, Ann."))
    await client.prompt("I am Ann", within=FIRST)
    assert stack.provider.requests[-1].path == OF_ANTHROPIC
    await killed.begin(client, "keyless")
    await choose(client, "model", CHOSEN)
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
    updates = client.updates(client.session_id)
    told = [u for u in updates if u["sessionUpdate"] == "usage_update" and "cost" in u]
    return float(told[-1]["cost"]["amount"])


async def refused(client: RecordingClient, text: str) -> RpcError:
    with pytest.raises(RpcError) as error:
        await client.prompt(text, within=FIRST)
    return error.value


async def allowing_always(client: RecordingClient, stack: Stack) -> float:
    """A turn whose calls the user allows for ever; what it cost."""
    client.side.handlers["session/request_permission"] = lambda params: ALWAYS
    before = asked(client)
    await choose(client, "model", CHOSEN)
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
async def test_the_program_s_settings_win_and_the_user_s_decisions_stay(reopened: Reopened) -> None:
    stack, client, killed = reopened.stack, reopened.client, reopened.killed
    (killed.cwd("decided") / "AGENTS.md").write_text("Indent with spaces.")
    before = asked(client)
    result = await reopened.load("decided", mcpServers=[odd("polite", mark=stack.mark)])
    assert values(result)["model"] == CHOSEN
    for _ in range(2):
        stack.provider.say(COMMAND, ECHO, Count(100, 10))
    answer = await client.prompt("And now?", within=FIRST)
    assert answer["stopReason"] == "max_turn_requests", "the limit is the new one"
    assert asked(client) == before, "what was always allowed still is"
    assert cost(client) > killed.spent > 0
    last = stack.provider.requests[-1]
    assert f"anthropic/{last.body['model']}" == CHOSEN
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
    reopened: Reopened,
) -> None:
    stack, client = reopened.stack, reopened.client
    before = asked(client)
    await reopened.load("rights", mcpServers=[odd("polite", "other", mark=stack.mark)])
    for reply in ((COMMAND, ECHO), (Text("Fine."),)):
        stack.provider.say(*reply)
    await client.prompt("Once more", within=FIRST)
    assert asked(client) == before + 1
    await reopened.close()
    since = client.mark()
    await reopened.load("rights", mcpServers=[])
    stack.provider.say(Text("I see."))
    await client.prompt("And without?", within=FIRST)
    assert "not there any more: mcp__polite__echo" in reopened.text(since)
    body = stack.provider.requests[-1].body
    assert "mcp__polite__echo" not in tool_names(body)
    assert "called before are not there any more" in conversation(body)[-1]


@pytest.mark.hazard("R8")
async def test_a_model_that_is_gone_is_named_and_the_user_chooses_another(
    reopened: Reopened,
) -> None:
    stack, client, mine = reopened.stack, reopened.client, reopened.killed.mine
    before = len(stack.provider.requests)
    assert values(await reopened.load("scripted"))["model"] == mine
    since = client.mark()
    error = await refused(client, "And now?")
    assert mine in f"{error.message} {reopened.text(since)}"
    assert len(stack.provider.requests) == before, "nothing takes its place by itself"
    await choose(client, "model", ANTHROPIC)
    stack.provider.say(Text("I am another."))
    since = client.mark()
    await client.prompt("And now?", within=FIRST)
    assert reopened.text(since).endswith("I am another.")
    assert f"From here on `{ANTHROPIC}` answers, in place of `{mine}`" in reopened.text()
    body = stack.provider.requests[-1].body
    assert conversation(body)[:2] == ["user: Who are you?", "assistant: I am mine."]
    await reopened.close()
    assert values(await reopened.load("scripted"))["model"] == ANTHROPIC


@pytest.mark.hazard("R8")
async def test_a_model_that_nobody_chose_is_the_command_line_s(reopened: Reopened) -> None:
    stack, client = reopened.stack, reopened.client
    before = len(stack.provider.requests)
    since = client.mark()
    result = await reopened.load("nothing chosen")
    stack.provider.say(Text("Ann."))
    await client.prompt("Who am I?", within=FIRST)
    updates = client.updates(client.session_id, since)
    told = [update for update in updates if update["sessionUpdate"] == "config_option_update"]
    assert values((told or [result])[-1])["model"] == OPENAI
    assert [request.path for request in stack.provider.requests[before:]] == [OF_OPENAI]


async def test_without_a_key_the_session_is_shown_and_a_key_given_later_is_used(
    reopened: Reopened,
) -> None:
    assert "Hello, Ann." in reopened.shown
    refusal = reopened.refusal
    assert (refusal.code, "ANTHROPIC_API_KEY" in refusal.message) == (-32000, True)
    reopened.client.session_id = reopened.killed.sessions["keyless"]
    reopened.stack.provider.say(Text("Ann."))
    await reopened.client.prompt("Who am I?", within=FIRST)
    last = reopened.stack.provider.requests[-1]
    assert f"anthropic/{last.body['model']}" == CHOSEN
    assert last.headers["x-api-key"] == KEY
    assert conversation(last.body)[0] == "user: I am Ann"
    assert results(last.body) == []


@pytest.mark.hazard("R13.5")
async def test_a_mode_that_asks_less_comes_back_by_the_user_s_word_and_not_by_the_record(
    stack: Stack,
) -> None:
    """The record is a file of the user's, so what the agent runs can write into it."""
    reject = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}
    dialogue = stack.folder / "dialogue.txt"
    dialogue.write_text(SAID)
    model = f"scripted:{dialogue}"
    sessions: dict[bool, str] = {}
    async with stack.start(model=model, env={"ACP_BRIDGE_LOG_LEVEL": "info"}) as client:
        client.side.handlers["session/request_permission"] = lambda params: reject
        for chosen in (False, True):
            others = {*agent_pids(client), *(stack.home / "agent").glob("*.jsonl")}
            sessions[chosen] = await client.new_session(stack.cwd)
            await client.prompt("Hello", within=FIRST)
            if chosen:
                await choose(client, "mode", "auto")
            [record] = {*(stack.home / "agent").glob("*.jsonl")} - others
            with record.open("a") as file:
                file.write('{"t": "chosen", "option": "mode", "value": "auto"}\n')
            if not chosen:
                await all_loaded(client)
            before = client.stderr.count(b"agent.exited")
            [agent] = {*agent_pids(client)} - others
            os.kill(agent, signal.SIGKILL)
            await client.logged("agent.exited", before + 1)
            mark = asked(client)
            await client.prompt("Do it", within=FIRST)
            assert asked(client) - mark == (0 if chosen else 1)
    async with stack.start(model=model) as client:
        client.side.handlers["session/request_permission"] = lambda params: reject
        for chosen, session in sessions.items():
            answer = await client.load_session(session, stack.cwd)
            mark = asked(client)
            await client.prompt("Do it again", within=FIRST)
            assert asked(client) - mark == (0 if chosen else 1)
            assert values(answer)["mode"] == ("auto" if chosen else "ask")
