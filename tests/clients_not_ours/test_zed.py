"""Zed 1.31's handshake (zed.json), played by a client of ours: it declares `plan` and `subagents`.

What claude-agent-acp says to a client that declares both is played, too: names and shapes are those
of its version 0.101.0 (exit-plan.js, native-subagents.js).
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import STATES, USER_MESSAGE
from tests.clients_not_ours.conftest import HERE
from tests.clients_not_ours.judge import Schema
from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.whole.bridge_support import World, joined
from tests.whole.conftest import world
from tests.whole.test_bridge_v2_agent import v2_agent
from tests.whole.tiny_agent import tiny_agent

__all__ = ["world"]
pytestmark = pytest.mark.process

HELLO = {
    name: value
    for name, value in json.loads((HERE / "zed.json").read_text("utf-8")).items()
    if name != "_comment"
}
#: a client that declares neither `plan` nor `subagents`.
OLDER = {
    **HELLO,
    "clientCapabilities": {
        name: value
        for name, value in HELLO["clientCapabilities"].items()
        if name not in ("plan", "subagents")
    },
}
#: claude-agent-acp: a checklist, an approved plan, a subagent that is asked, works and answers.
CLAUDE = """
CAN = {"loadSession": True, "promptCapabilities": {}}
TOLD = []

def initialize(id, params):
    TOLD.append(params["clientCapabilities"])
    return {"protocolVersion": 1, "agentCapabilities": CAN}

def session_load(id, params):
    return {}

def sent(session, id, sender, recipient, words, **more):
    update(session, sessionUpdate="session_message", messageId=id, senderSessionId=sender,
           recipientSessionId=recipient, content=[{"type": "text", "text": words}], **more)

def session_prompt(id, params):
    told = TOLD[0]
    update("s", sessionUpdate="plan", entries=[
        {"content": "Look", "status": "in_progress", "priority": "medium"}])
    if told.get("plan") is not None:
        update("s", sessionUpdate="plan_update",
               plan={"type": "markdown", "planId": "plan-mode", "content": "# First\\n\\n- look"})
        update("s", sessionUpdate="plan_update",
               plan={"type": "markdown", "planId": "plan-mode", "content": "# Then\\n\\n- mend"})
    if told.get("subagents") is not None:
        update("s", sessionUpdate="subagent_update", sessionId="a1", title="Explore",
               description="Find the callers", capabilities={"cancel": {}},
               state={"state": "running"})
        sent("s", "toolu_1", "s", "a1", "Find every caller.", recipientMessageId="toolu_1")
        sent("a1", "toolu_1", "s", "a1", "Find every caller.", senderMessageId="toolu_1")
        meta = {"claudeCode": {"parentToolUseId": "toolu_1"}}
        update("a1", sessionUpdate="tool_call", toolCallId="toolu_2", title="grep", kind="search",
               status="pending", _meta=meta)
        update("a1", sessionUpdate="tool_call_update", toolCallId="toolu_2", status="completed",
               _meta=meta)
        update("a1", **text("Two callers.", messageId="m1", _meta=meta))
        sent("s", "toolu_1:reply", "a1", "s", "Two callers.")
        update("s", sessionUpdate="subagent_update", sessionId="a1",
               state={"state": "idle", "stopReason": "end_turn"})
    update("s", **text("Done.", messageId="m2"))
    return {"stopReason": "end_turn"}
"""

#: the built-in agent: it has checklists, and neither plans in Markdown nor subagents.
DIALOGUE = """
when: mend
call: plan {"entries": [{"content": "Mend it", "status": "in_progress"}]}
---
call: plan {"entries": [{"content": "Mend it", "status": "completed"}]}
---
text: Done.
"""


@pytest.fixture(scope="session")
def drafts(modules: Path) -> Schema:
    """The schema that Zed's SDK is made from with its unstable features, which both have."""
    path = modules / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.unstable.json"
    return Schema(json.loads(path.read_text("utf-8")))


@asynccontextmanager
async def zed(
    world: World, schema: Schema, command: Sequence[str], hello: Message = HELLO, **more: Any
) -> AsyncIterator[RecordingClient]:
    """A client with this handshake, at a bridge process of its own; its updates are judged."""
    async with world.bridge(command=command, initialized=False, **more) as client:
        await client.request("initialize", hello)
        yield client
        for notification in client.recording.requests("session/update"):
            schema.check("SessionNotification", notification["params"])


def transcript(client: RecordingClient) -> list[tuple[str, Message]]:
    """What Zed was shown, each with the id of its session, but for states and the user's words."""
    told = [n["params"] for n in client.recording.requests("session/update")]
    passed = {*STATES, USER_MESSAGE}
    return [
        (p["sessionId"], p["update"]) for p in told if p["update"]["sessionUpdate"] not in passed
    ]


def plans(told: list[tuple[str, Message]]) -> list[Any]:
    return [update["plan"] for _, update in told if update["sessionUpdate"] == "plan_update"]


@pytest.mark.hazard("X1.11")
async def test_plans_and_subagents_of_claude_arrive_in_its_form_live_and_in_a_load(
    world: World, drafts: Schema
) -> None:
    command = tiny_agent(world.cwd, CLAUDE)
    async with zed(world, drafts, command) as client:
        session = await client.new_session(world.cwd)
        assert await client.prompt("go") == {"stopReason": "end_turn"}
        live = transcript(client)
    async with zed(world, drafts, command) as client:
        await client.load_session(session, world.cwd)
        assert transcript(client) == live
    child = f"{session}:1"
    document = {"type": "markdown", "planId": "plan-mode"}
    assert plans(live) == [
        {**document, "content": "# First\n\n- look"},
        {**document, "content": "# Then\n\n- mend"},
    ]
    of_child = [update for _, update in live if update["sessionUpdate"] == "subagent_update"]
    assert [(update["sessionId"], update["state"]) for update in of_child] == [
        (child, {"state": "running"}),
        (child, {"state": "idle", "stopReason": "end_turn"}),
    ]
    messages = [(at, u) for at, u in live if u["sessionUpdate"] == "session_message"]
    assert [(at, u["senderSessionId"], u["recipientSessionId"]) for at, u in messages] == [
        (session, session, child),
        (child, session, child),
        (session, child, session),
    ]
    work = [u for at, u in live if at == child and u["sessionUpdate"] != "session_message"]
    assert [update["sessionUpdate"] for update in work] == [
        *("tool_call", "tool_call_update", "agent_message_chunk"),
    ]
    # Zed knows by this mark alone to which call a subagent's work belongs.
    assert {u["_meta"]["claudeCode"]["parentToolUseId"] for u in work} == {"toolu_1"}


async def test_a_client_that_declares_neither_gets_the_checklist_and_a_card(
    world: World, drafts: Schema, schema: Schema
) -> None:
    command = tiny_agent(world.cwd, CLAUDE)
    async with zed(world, drafts, command) as client:
        session = await client.new_session(world.cwd)
        await client.prompt("go")
    async with zed(world, schema, command, OLDER) as client:
        await client.load_session(session, world.cwd)
        told = transcript(client)
    assert {at for at, _ in told} == {session}
    kinds = [update["sessionUpdate"] for _, update in told]
    assert kinds.count("plan") == 1
    assert kinds.count("tool_call") == 1
    assert "Two callers." in json.dumps(told)


async def test_a_markdown_plan_of_an_agent_of_version_2_arrives_live_and_in_a_load(
    world: World, drafts: Schema
) -> None:
    plan = {"type": "markdown", "planId": "plan-mode", "content": "# Then\n\n- mend"}
    path = world.cwd / "told.json"
    path.write_text(json.dumps([{"sessionUpdate": "plan_update", "plan": plan}]))
    second: dict[str, Any] = {"options": ("--agent-protocol", "2")}
    async with zed(world, drafts, v2_agent(), **second) as client:
        session = await client.new_session(world.cwd)
        await client.prompt(f"play {path}")
        assert plans(transcript(client)) == [plan]
    async with zed(world, drafts, v2_agent(), **second) as client:
        await client.load_session(session, world.cwd)
        assert plans(transcript(client)) == [plan]


async def test_the_checklist_of_the_built_in_agent_is_the_same_live_and_in_a_load(
    world: World, drafts: Schema
) -> None:
    dialogue = world.home.parent / "dialogue.txt"
    dialogue.write_text(DIALOGUE)
    model: dict[str, Any] = {"env": {"ACP_BRIDGE_MODEL": f"scripted:{dialogue}"}}
    async with zed(world, drafts, [], **model) as client:
        session = await client.new_session(world.cwd)
        assert (await client.prompt("mend it", within=30))["stopReason"] == "end_turn"
        live = [update for _, update in transcript(client)]
    async with zed(world, drafts, [], **model) as client:
        await client.load_session(session, world.cwd)
        loaded = [update for _, update in transcript(client)]
    assert joined(loaded) == joined(live)
    steps = [update["entries"] for update in live if update["sessionUpdate"] == "plan"]
    assert [[step["status"] for step in each] for each in steps] == [["in_progress"], ["completed"]]
