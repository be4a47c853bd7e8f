"""The user's rules in front of the built-in agent: commands, edits and tools of MCP servers."""

import json

import pytest

from tests.agent.mcp_servers.support import odd
from tests.built_in.support import FIRST, Stack, results
from tests.support.client import RecordingClient
from tests.support.model_replies import Call, Text

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.hazard("A1")]

RULES = """\
allow = ["Bash(echo *)", "Edit(out/**)", "mcp__bench__echo"]
deny = ["Bash(rm *)", "mcp__other__*"]
ask = ["Bash(echo * asked)"]
"""


async def _uses(stack: Stack, client: RecordingClient, name: str, **given: str) -> tuple[str, int]:
    """What the model is told of a tool's result, and how often the client was asked."""
    asked = len(client.recording.requests("session/request_permission"))
    stack.provider.say(Call(name, json.dumps(given)))
    stack.provider.say(Text("done"))
    await client.prompt(f"use {name}", within=FIRST)
    told = results(stack.provider.requests[-1].body)[-1]
    return told, len(client.recording.requests("session/request_permission")) - asked


async def test_rules_decide_about_commands_and_tools_of_mcp_servers(stack: Stack) -> None:
    (stack.home / "permissions.toml").write_text(RULES)
    async with stack.start() as client:
        servers = [odd(name, mark=stack.mark) for name in ("bench", "other")]
        await client.new_session(stack.cwd, mcpServers=servers)
        client.side.permission = "reject"
        for name, given, runs, asks in (
            ("shell", {"command": "echo said"}, "said", 0),
            ("shell", {"command": "echo said; rm x"}, "", 0),
            ("shell", {"command": "echo said asked"}, "", 1),
            ("shell", {"command": "echo said && ls"}, "", 1),
            ("shell", {"command": "echo said > conf"}, "", 1),
            ("write_file", {"path": "out/x", "content": "it"}, "", 0),
            ("write_file", {"path": "conf", "content": "it"}, "", 1),
            ("mcp__bench__echo", {"text": "said"}, "said", 0),
            ("mcp__other__echo", {"text": "said"}, "", 0),
        ):
            told, asked = await _uses(stack, client, name, **given)
            assert (asked, runs in told) == (asks, True), (given, told)
            if not runs:
                assert "said" not in told, (given, told)
        assert (stack.cwd / "out" / "x").read_text() == "it"
        assert not (stack.cwd / "conf").exists()
