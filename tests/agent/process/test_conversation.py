"""The same conversations with the agent alone and behind the bridge: the bridge hides nothing.

One process serves the tests of a way, each in a session of its own.
"""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.mcp_servers.support import odd
from tests.agent.process.conftest import Start, environment, starter
from tests.agent.talking import error_of, of_kind
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.processes import all_gone, kill_marked
from tests.support.recording import Message, RpcError

pytestmark = [pytest.mark.process, pytest.mark.slow]

IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
NO_KEYS = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "OPENAI_API_BASE": ""}
DIALOGUE = """\
window: 100000
images
when: mend
call: read_file {"path": "a.py"}
---
call: edit_file {"path": "a.py", "old": "x = 1", "new": "x = 2"}
---
text: Mended.
when: run
call: shell {"command": "cat a.py"}
---
text: {result}
when: slow
text: one
gate: g
text: two
when: far away
call: read_file {"path": "../extra/a.txt"}
call: mcp__polite__echo {"text": "hello"}
---
text: fine
when: summarise it
text: They used tools.
when: and this
text: a picture
turn
remember
"""


@dataclass
class Desk:
    """A process that is initialized, by a client without files and terminals."""

    client: RecordingClient
    #: its answer
    said: Message
    gates: Gates
    mark: str
    #: another process in its place
    start: Start

    def updates(self, kind: str, since: int = 0) -> list[Message]:
        """Of the session that was opened last."""
        updates = self.client.updates(self.client.session_id, since)
        return [update for update in updates if update["sessionUpdate"] == kind]


@pytest.fixture(scope="module", params=["agent", "acp_bridge"])
async def desk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    folder, mark = tmp_path_factory.mktemp(request.param), uuid.uuid4().hex
    try:
        async with Gates() as gates:
            start = starter(request.param, folder, environment(folder, gates, mark))
            async with start(DIALOGUE, env={"ACP_BRIDGE_MODELS": "demo"}) as client:
                said = await client.initialize({}, within=20)
                yield Desk(client, said, gates, mark, start)
            await all_gone(mark)
    finally:
        kill_marked(mark)


def options(result: Message) -> dict[str, Message]:
    return {option["id"]: option for option in result["configOptions"]}


async def choose(client: RecordingClient, option: str, value: str) -> dict[str, Message]:
    params = {"sessionId": client.session_id, "configId": option, "value": value}
    return options(await client.request("session/set_config_option", params))


async def test_it_says_what_it_can(desk: Desk) -> None:
    said = desk.said
    able = said["agentCapabilities"]
    assert able["loadSession"] is True
    assert able["promptCapabilities"] == {"image": True, "embeddedContext": True}
    assert able["mcpCapabilities"] == {"http": True, "sse": True}
    assert {"additionalDirectories", "list", "resume", "close"} <= set(able["sessionCapabilities"])
    assert [method["id"] for method in said["authMethods"]] == ["api-key"]


@pytest.mark.hazard("R1", "R5", "R9")
async def test_asked_edited_run_and_loaded_again(desk: Desk, cwd: Path) -> None:
    (cwd / "a.py").write_text("x = 1\n")
    client = desk.client
    session_id = await client.new_session(cwd)
    client.side.permission = "allow"
    since = client.mark()
    assert (await client.prompt("mend it"))["stopReason"] == "end_turn"
    assert (cwd / "a.py").read_text() == "x = 2\n"
    (asked,) = asked_for(client, since)
    assert "diff" in str(asked["params"]["toolCall"])
    params = {"sessionId": session_id, "modeId": "auto"}
    await client.request("session/set_mode", params)
    await client.prompt("run it")
    assert "x = 2" in client.text(session_id)
    assert len(asked_for(client, since)) == 1
    assert desk.updates("session_info_update")[0]["title"] == "mend it"
    assert desk.updates("usage_update")
    cards = [u["title"] for u in desk.updates("tool_call")]
    await client.request("session/close", {"sessionId": session_id})
    async with desk.start(DIALOGUE) as client:
        await client.initialize({}, within=20)
        await client.load_session(session_id, cwd)
        assert [u["title"] for u in of_kind(client, "tool_call")] == cards
        since = client.mark()
        await client.prompt("what was it?", within=20)  # a bridge still starts its agent
        assert client.text(since=since).endswith("You told me: mend it; run it")


def asked_for(client: RecordingClient, since: int) -> list[Message]:
    """The requests for a permission."""
    messages = client.recording.incoming(since)
    return [m for m in messages if m.get("method") == "session/request_permission"]


async def test_options_are_offered_chosen_and_kept_in_step_with_the_mode(
    desk: Desk, cwd: Path
) -> None:
    client = desk.client
    result = await client.request("session/new", {"cwd": str(cwd), "mcpServers": []})
    client.session_id = result["sessionId"]
    assert {"model", "mode"} <= set(options(result))
    assert result["modes"]["currentModeId"] == "ask"
    assert (await choose(client, "model", "demo"))["model"]["currentValue"] == "demo"
    assert (await choose(client, "mode", "plan"))["mode"]["currentValue"] == "plan"
    await client.until_recorded(lambda: desk.updates("current_mode_update"))
    with pytest.raises(RpcError, match="-32602"):
        await choose(client, "model", "nobody")


@pytest.mark.hazard("C3", "C9")
async def test_cancelled_and_asked_again(desk: Desk, cwd: Path) -> None:
    client = desk.client
    await client.new_session(cwd)
    running = client.send_prompt("slow")
    await desk.gates.reached("g")
    client.cancel()
    assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
    since = client.mark()
    await client.prompt("what was it?")
    assert client.text(since=since) == "You told me: slow"


async def test_folders_servers_images_and_commands_reach_it(
    desk: Desk, cwd: Path, tmp_path: Path
) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "a.txt").write_text("far away")
    client = desk.client
    servers = [odd("polite", mark=desk.mark)]
    await client.new_session(cwd, mcpServers=servers, additionalDirectories=[str(extra)])
    client.side.permission = "allow"
    await client.prompt("what is far away?", within=20)
    ends = [u["status"] for u in desk.updates("tool_call_update") if "rawOutput" in u]
    assert set(ends) == {"completed"}
    assert "far away" in str(desk.updates("tool_call_update"))
    prompt = [IMAGE, {"type": "text", "text": "and this?"}]
    asked = {"sessionId": client.session_id, "prompt": prompt}
    since = client.mark()
    assert (await client.request("session/prompt", asked))["stopReason"] == "end_turn"
    assert client.text(since=since) == "a picture"
    commands = desk.updates("available_commands_update")[-1]["availableCommands"]
    assert "compact" in [command["name"] for command in commands]
    since = client.mark()
    await client.prompt("/compact")
    assert "summarised" in client.text(since=since)


async def test_without_a_key_the_client_is_asked_to_authenticate_and_then_goes_on(
    start_either: Start, cwd: Path, tmp_path: Path
) -> None:
    async with start_either("", model="openai/gpt-4o", env=NO_KEYS) as client:
        await client.initialize({}, within=20)
        new = {"cwd": str(cwd), "mcpServers": []}
        error = await error_of(client, "session/new", new)
        assert (error.code, "OPENAI_API_KEY" in error.message) == (-32000, True)
        method = {"methodId": "api-key"}
        assert (await error_of(client, "authenticate", method)).code == -32000
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / "keys.env").write_text("OPENAI_API_KEY=sk-made-up-0123456789\n")
        assert await client.request("authenticate", method) == {}
        assert "sessionId" in await client.request("session/new", new)
