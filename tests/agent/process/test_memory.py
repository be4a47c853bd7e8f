"""What a provider is sent after a kill and a reload: the bodies of its HTTP requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process.conftest import starter
from tests.support.model_replies import Call, Gate, Text
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.process, pytest.mark.slow]


def said(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(role, text) of each part of the conversation, in either form, without the system prompt."""
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        parts = [content] if isinstance(content, str) else content or []
        for part in parts:
            yield from _part(role, part)
        for call in message.get("tool_calls") or []:
            yield "call", call["function"]["name"]


def _part(role: str, part: Any) -> Iterator[tuple[str, str]]:
    match part:
        case str(text) if role != "system":
            yield role, text
        case {"type": "text", "text": str(text)} if role != "system":
            yield role, text
        case {"type": "tool_use", "name": str(name)}:
            yield "call", name
        case {"type": "tool_result", "content": content}:
            yield "tool", content if isinstance(content, str) else content[0]["text"]


@pytest.mark.hazard("K1", "C17", "R1")
@pytest.mark.parametrize(
    ("module", "model"),
    [("agent", "openai/gpt-4o"), ("acp_bridge", "anthropic/claude-sonnet-4-5")],
)
async def test_killed_in_the_middle_the_provider_is_sent_all_that_was_shown(
    module: str, model: str, tmp_path: Path, cwd: Path, process_env: dict[str, str]
) -> None:
    (cwd / "a.txt").write_text("hi\n")
    start = starter(module, tmp_path, process_env)
    async with ModelServer() as server:
        env = {
            "OPENAI_API_KEY": "sk-made-up-0123456789",
            "OPENAI_BASE_URL": server.openai_url,
            "ANTHROPIC_API_KEY": "sk-made-up-9876543210",
            "ANTHROPIC_BASE_URL": server.anthropic_url,
        }
        server.say(Text("Looking."), Call("read_file", '{"path": "a.txt"}'))
        server.say(Text("It says hi."))
        server.say(Text("Once upon "), Gate("middle"))
        server.say(Text("a time."))
        async with start("", model=model, env=env) as client:
            await client.initialize({}, within=20)
            session_id = await client.new_session(cwd)
            await client.prompt("read it", within=60)
            client.send_prompt("a story")
            await client.until_text("Once upon")
            client.kill()
            await client.wait()
        async with start("", model=model, env=env) as client:
            await client.initialize({}, within=20)
            await client.load_session(session_id, cwd)
            await client.prompt("go on", within=60)
    before, after = server.requests[-2].body, server.requests[-1].body
    assert [(role, text.strip()) for role, text in said(after)] == [
        ("user", "read it"),
        ("assistant", "Looking."),
        ("call", "read_file"),
        ("tool", "1\thi"),
        ("assistant", "It says hi."),
        ("user", "a story"),
        ("assistant", "Once upon"),
        ("user", "go on"),
    ]
    common = len(before["messages"]) - 1  # the last one may be marked as such
    assert after["messages"][:common] == before["messages"][:common]
    assert after.get("system") == before.get("system")
    assert after["tools"] == before["tools"]
