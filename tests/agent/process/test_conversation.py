"""The same conversations with the agent alone and behind the bridge: the bridge hides nothing."""

from pathlib import Path

import pytest

from tests.agent.mcp_servers.support import odd
from tests.agent.process.conftest import Start
from tests.agent.talking import error_of, of_kind
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message, RpcError

pytestmark = pytest.mark.process

IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
NO_KEYS = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "OPENAI_API_BASE": ""}


async def opened(client: RecordingClient, cwd: Path, **extra: object) -> str:
    """Without files and terminals of the client's."""
    await client.initialize({}, within=20)
    return await client.new_session(cwd, **extra)


def options(result: Message) -> dict[str, Message]:
    return {option["id"]: option for option in result["configOptions"]}


async def choose(client: RecordingClient, option: str, value: str) -> dict[str, Message]:
    params = {"sessionId": client.session_id, "configId": option, "value": value}
    return options(await client.request("session/set_config_option", params))


async def test_it_says_what_it_can(start_either: Start) -> None:
    async with start_either("turn\ntext: fine") as client:
        said = await client.initialize(within=20)
    able = said["agentCapabilities"]
    assert able["loadSession"] is True
    assert able["promptCapabilities"] == {"image": True, "embeddedContext": True}
    assert able["mcpCapabilities"] == {"http": True, "sse": True}
    assert {"additionalDirectories", "list", "resume", "close"} <= set(able["sessionCapabilities"])
    assert [method["id"] for method in said["authMethods"]] == ["api-key"]


@pytest.mark.hazard("R1", "R5", "R9")
async def test_asked_edited_run_and_loaded_again(start_either: Start, cwd: Path) -> None:
    (cwd / "a.py").write_text("x = 1\n")
    dialogue = """\
    window: 100000
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
    turn
    remember
    """
    async with start_either(dialogue) as client:
        session_id = await opened(client, cwd)
        client.side.permission = "allow"
        assert (await client.prompt("mend it"))["stopReason"] == "end_turn"
        assert (cwd / "a.py").read_text() == "x = 2\n"
        (asked,) = client.recording.requests("session/request_permission")
        assert "diff" in str(asked["params"]["toolCall"])
        params = {"sessionId": session_id, "modeId": "auto"}
        await client.request("session/set_mode", params)
        await client.prompt("run it")
        assert "x = 2" in client.text()
        assert len(client.recording.requests("session/request_permission")) == 1
        assert of_kind(client, "session_info_update")[0]["title"] == "mend it"
        assert of_kind(client, "usage_update")
        cards = [u["title"] for u in of_kind(client, "tool_call")]
    async with start_either(dialogue) as client:
        await client.initialize({}, within=20)
        await client.load_session(session_id, cwd)
        assert [u["title"] for u in of_kind(client, "tool_call")] == cards
        since = client.mark()
        await client.prompt("what was it?", within=20)  # a bridge still starts its agent
        assert client.text(since=since) == "You told me: mend it; run it"


async def test_options_are_offered_chosen_and_kept_in_step_with_the_mode(
    start_either: Start, cwd: Path
) -> None:
    async with start_either("turn\ntext: fine", env={"ACP_BRIDGE_MODELS": "demo"}) as client:
        await client.initialize({}, within=20)
        result = await client.request("session/new", {"cwd": str(cwd), "mcpServers": []})
        client.session_id = result["sessionId"]
        assert {"model", "mode"} <= set(options(result))
        assert result["modes"]["currentModeId"] == "ask"
        assert (await choose(client, "model", "demo"))["model"]["currentValue"] == "demo"
        assert (await choose(client, "mode", "plan"))["mode"]["currentValue"] == "plan"
        await client.until_recorded(lambda: of_kind(client, "current_mode_update"))
        with pytest.raises(RpcError, match="-32602"):
            await choose(client, "model", "nobody")


@pytest.mark.hazard("C3", "C9")
async def test_cancelled_and_asked_again(start_either: Start, cwd: Path, gates: Gates) -> None:
    dialogue = "when: slow\ntext: one\ngate: g\ntext: two\nturn\nremember"
    async with start_either(dialogue) as client:
        await opened(client, cwd)
        running = client.send_prompt("slow")
        await gates.reached("g")
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        since = client.mark()
        await client.prompt("what was it?")
        assert client.text(since=since) == "You told me: slow"


async def test_folders_servers_images_and_commands_reach_it(
    start_either: Start, cwd: Path, tmp_path: Path, mark: str
) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "a.txt").write_text("far away")
    dialogue = f"""\
    images
    when: tools
    call: read_file {{"path": "{extra}/a.txt"}}
    call: mcp__polite__echo {{"text": "hello"}}
    ---
    text: fine
    when: summarise it
    text: They used tools.
    turn
    text: a picture
    """
    async with start_either(dialogue) as client:
        servers = [odd("polite", mark=mark)]
        roots = [str(extra)]
        await opened(client, cwd, mcpServers=servers, additionalDirectories=roots)
        client.side.permission = "allow"
        await client.prompt("tools", within=20)
        ends = [u["status"] for u in of_kind(client, "tool_call_update") if "rawOutput" in u]
        assert ends == ["completed"] * len(ends)
        assert "far away" in str(client.updates())
        prompt = [IMAGE, {"type": "text", "text": "and this?"}]
        asked = {"sessionId": client.session_id, "prompt": prompt}
        assert (await client.request("session/prompt", asked))["stopReason"] == "end_turn"
        commands = of_kind(client, "available_commands_update")[-1]["availableCommands"]
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
