"""Rules of whole bridges: from the file to what the agent is told, and what a load shows of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.whole.bridge_support import World

pytestmark = pytest.mark.process

OPTIONS = [
    {"optionId": kind, "name": kind, "kind": kind}
    for kind in ("allow_always", "allow_once", "reject_once")
]


def asks(card: str, command: str) -> str:
    """A prompt in which the agent asks for a permission to run a command."""
    call = {"toolCallId": card, "kind": "execute", "title": "it", "rawInput": {"command": command}}
    return "ask session/request_permission " + json.dumps({"toolCall": call, "options": OPTIONS})


def decided(client: RecordingClient, since: int = 0) -> list[tuple[str, list[str]]]:
    """What the cards that a client was shown tell of decisions."""
    updates = [m for m in client.recording.incoming(since) if m.get("method") == "session/update"]
    own = [each["params"].get("_meta", {}).get("acp_bridge", {}) for each in updates]
    told = [each["decided"] for each in own if "decided" in each]
    return [(each["decision"], each.get("rules", [each["by"]])) for each in told]


def judges(client: RecordingClient) -> bool:
    """True if a client's bridge has loaded the grammar of command lines."""
    assert client.process is not None
    return "tree_sitter" in Path(f"/proc/{client.process.pid}/maps").read_text()


@pytest.mark.hazard("A1", "T2")
async def test_what_rules_decide_is_asked_of_nobody_and_stands_in_the_transcript(
    world: World,
) -> None:
    world.home.mkdir(exist_ok=True)
    (world.home / "permissions.toml").write_text('allow = ["Bash(ls *)"]\ndeny = ["Bash(rm *)"]')
    async with world.inside() as client:
        session = client.session_id
        await client.prompt(asks("one", "ls -l"))
        await client.prompt(asks("two", "ls && rm x"))
        assert client.recording.requests("session/request_permission") == []
        assert decided(client) == [
            ("allow", ["allow Bash(ls *) (permissions.toml, line 1)"]),
            ("deny", ["deny Bash(rm *) (permissions.toml, line 2)"]),
        ]
        await client.prompt(asks("three", "make"))
        assert len(client.recording.requests("session/request_permission")) == 1
        was = decided(client)
        assert was[2:] == [("deny", ["client"])]
    code, listed, _ = await world.command("show", session, "--decisions")
    assert code == 0
    assert [line.split()[:3] for line in listed.splitlines()] == [
        ["DECISION", "BY", "CALL"],
        ["allow", "rule", "it"],
        ["deny", "rule", "it"],
        ["deny", "client", "it"],
    ]
    async with world.inside(session=False) as client:
        since = len(client.recording)
        await client.load_session(session, world.cwd)
        assert decided(client, since) == was


async def test_a_bridge_without_rules_loads_nothing_that_judges(world: World) -> None:
    async with world.bridge() as client:
        await client.prompt(asks("one", "ls -l"))
        assert not judges(client)
        (world.home / "permissions.toml").write_text('allow = ["Bash(ls *)"]')
        await client.prompt(asks("two", "ls -l"))
        assert judges(client)
