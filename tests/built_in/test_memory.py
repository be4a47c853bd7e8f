"""Nothing is forgotten, whoever is killed: judged by the HTTP body that the provider gets."""

import os
import signal
from typing import Any

import pytest

from tests.built_in.support import (
    ANTHROPIC,
    FIRST,
    OPENAI,
    START,
    Stack,
    agent_pid,
    choose,
    conversation,
)
from tests.support.client import RecordingClient
from tests.support.model_replies import Call, Gate, More, Step, Text, Think
from tests.support.processes import all_gone

pytestmark = [pytest.mark.process, pytest.mark.slow]

THOUGHT = {"type": "thinking", "thinking": "The other file.", "signature": "signed"}
BEFORE_THE_AGENT_WAS_KILLED = [
    "user: What is in a.txt?",
    "assistant: I look.",
    'call: read_file {"path": "a.txt"}',
    "result:      1\tseven",
    "assistant: It says seven.",
    "user: A story",
    "assistant: Once upon",
]
BEFORE_THE_BRIDGE_WAS_KILLED = [
    "user: Who am I?",
    "assistant: Ann.",
    "user: And b.txt?",
    'call: read_file {"path": "b.txt"}',
    "result:      1\teight",
    "assistant: Twice upon",
]
EVERYTHING = [*BEFORE_THE_AGENT_WAS_KILLED, *BEFORE_THE_BRIDGE_WAS_KILLED]


def reading(path: str) -> list[Step]:
    """A tool call in pieces."""
    return [Call("read_file", '{"path": '), More(0, f'"{path}"}}')]


async def begun(stack: Stack, client: RecordingClient, prompt: str, said: str) -> Any:
    """Asks, and comes back when the user has seen `said` and the answer goes on; the request."""
    stack.provider.say(Text(said), Gate("never"), Text("never said"))
    request = client.send_prompt(prompt)
    await client.until_text(said, within=START)
    return request


async def sent(stack: Stack, client: RecordingClient, prompt: str, said: str) -> list[str]:
    """Asks; the conversation that the provider got for it."""
    stack.provider.say(Text(said))
    await client.prompt(prompt, within=FIRST)
    return conversation(stack.provider.requests[-1].body)


@pytest.mark.hazard("K1", "R1", "C17")
async def test_after_kill_9_of_the_agent_and_of_the_bridge_the_model_is_given_all_that_was_said(
    stack: Stack,
) -> None:
    (stack.cwd / "a.txt").write_text("seven\n")
    (stack.cwd / "b.txt").write_text("eight\n")
    async with stack.start() as client:
        session_id = await client.new_session(stack.cwd)
        await the_agent_is_killed(stack, client)
        told = await sent(stack, client, "Who am I?", "Ann.")
        assert told == [*BEFORE_THE_AGENT_WAS_KILLED, "user: Who am I?"]
        await the_bridge_is_killed(stack, client)
    async with stack.start(model=ANTHROPIC) as client:
        await client.load_session(session_id, stack.cwd)
        assert "It says seven." in client.text()
        assert client.text().count("Twice upon") == 1
        told = await sent(stack, client, "And now?", "Still Ann.")
        assert told == [*EVERYTHING, "user: And now?"]
        assert THOUGHT in calling(stack.provider.requests[-1].body, "b.txt")["content"]
        await choose(client, "model", OPENAI)
        told = await sent(stack, client, "And then?", "Ann for ever.")
        more = ["user: And now?", "assistant: Still Ann.", "user: And then?"]
        assert told == [*EVERYTHING, *more]
    chat, messages = "/v1/chat/completions", "/v1/messages"
    paths = [request.path for request in stack.provider.requests]
    assert paths == [*[chat] * 4, *[messages] * 3, chat]


async def the_agent_is_killed(stack: Stack, client: RecordingClient) -> None:
    """After a turn with a tool call, in the middle of another."""
    stack.provider.say(Text("I look."), *reading("a.txt"))
    stack.provider.say(Text("It says seven."))
    await client.prompt("What is in a.txt?", within=FIRST)
    prompt = await begun(stack, client, "A story", "Once upon")
    os.kill(agent_pid(client), signal.SIGKILL)
    assert "SIGKILL" in (await client.answer_to(prompt))["error"]["message"]


async def the_bridge_is_killed(stack: Stack, client: RecordingClient) -> None:
    """When another provider's model has gone on with the conversation, and thought and read."""
    await choose(client, "model", ANTHROPIC)
    stack.provider.say(Think(THOUGHT["thinking"], THOUGHT["signature"]), *reading("b.txt"))
    await begun(stack, client, "And b.txt?", "Twice upon")
    assert conversation(stack.provider.requests[-1].body) == EVERYTHING[:-1]
    client.kill()
    await client.wait()
    await all_gone(stack.mark)


def calling(body: dict[str, Any], path: str) -> dict[str, Any]:
    """The model's message that asked for the file."""
    messages: list[dict[str, Any]] = body["messages"]
    return next(m for m in messages if m["role"] == "assistant" and path in str(m))
