"""The user's rules in front of the built-in agent: commands, edits and tools of MCP servers."""

import json

import pytest

from tests.agent.mcp_servers.support import odd
from tests.built_in.support import FIRST, Stack

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.hazard("A1")]

ASK, TOLD = "session/request_permission", "The result: "
RULES = """\
allow = ["Bash(echo *)", "Edit(out/**)", "mcp__bench__echo"]
deny = ["Bash(rm *)", "mcp__other__*"]
ask = ["Bash(echo * asked)"]
"""


#: A tool, its arguments, what the model must be told of its result, how often the user is asked.
USES: tuple[tuple[str, dict[str, str], str, int], ...] = (
    ("shell", {"command": "echo said"}, "said", 0),
    ("shell", {"command": "echo said; rm x"}, "", 0),
    ("shell", {"command": "echo said asked"}, "", 1),
    ("shell", {"command": "echo said && ls"}, "", 1),
    ("shell", {"command": "echo said > conf"}, "", 1),
    ("write_file", {"path": "out/x", "content": "it"}, "", 0),
    ("write_file", {"path": "conf", "content": "it"}, "", 1),
    ("mcp__bench__echo", {"text": "said"}, "said", 0),
    ("mcp__other__echo", {"text": "said"}, "", 0),
)


async def test_rules_decide_about_commands_and_tools_of_mcp_servers(stack: Stack) -> None:
    (stack.home / "permissions.toml").write_text(RULES)
    dialogue = stack.folder / "dialogue.txt"
    turns = (f"turn\ncall: {tool} {json.dumps(given)}\n---" for tool, given, *_ in USES)
    dialogue.write_text("\n".join(f"{turn}\ntext: {TOLD}{{result}}" for turn in turns))
    async with stack.start(model=f"scripted:{dialogue}") as client:
        servers = [odd(name, mark=stack.mark) for name in ("bench", "other")]
        await client.new_session(stack.cwd, mcpServers=servers)
        client.side.permission = "reject"
        for tool, given, runs, asks in USES:
            asked, since = len(client.recording.requests(ASK)), client.mark()
            await client.prompt(f"use {tool}", within=FIRST)
            told = client.text(since=since).rpartition(TOLD)[2]
            assert len(client.recording.requests(ASK)) - asked == asks, (given, told)
            assert runs in told, (given, told)
            if not runs:
                assert "said" not in told, (given, told)
        assert (stack.cwd / "out" / "x").read_text() == "it"
        assert not (stack.cwd / "conf").exists()
