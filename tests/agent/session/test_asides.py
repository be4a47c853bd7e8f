"""What a session says of its own accord, and that it waits until the client has spoken."""

from pathlib import Path

import anyio
import pytest

from agent.client import Update
from agent.model import ModelInfo
from agent.session.asides import Asides
from tests.agent.conftest import Talk
from tests.agent.mcp_servers.recorded_servers import RecordedServers
from tests.agent.session.several_models import Known, SeveralModels
from tests.agent.talking import kinds, of_kind, opened
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message

SAYS = "turn\ntext: fine"
GATED = "when: slow\ntext: one\ngate: g\nturn\ntext: fine"
OPENINGS = ["session/load", "session/resume"]


def thinking(dialogue: str = SAYS) -> Known:
    return Known(dialogue, "thinker", ModelInfo(100_000, False, ("low", "high")))


async def some_round_trips(client: RecordingClient) -> None:
    """Everything that is ready to be sent has been sent after these."""
    for _ in range(5):
        await client.request("session/list", {"cwd": "/nowhere"})


async def reopen(client: RecordingClient, method: str, session_id: str, cwd: Path) -> int:
    """Returns the mark at which the response had come."""
    await client.initialize()
    params: Message = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
    await client.request(method, params)
    client.session_id = session_id
    return client.mark()


@pytest.mark.hazard("R1", "C23.1")
@pytest.mark.parametrize("method", OPENINGS)
async def test_the_commands_come_before_the_response_that_opens_a_session_again(
    talk: Talk, cwd: Path, method: str
) -> None:
    async with talk(SAYS) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
    async with talk(SAYS) as client:
        since = await reopen(client, method, session_id, cwd)
        assert kinds(client).count("available_commands_update") == 1
        await some_round_trips(client)
        assert kinds(client, since) == []
        await client.prompt("y")
        assert kinds(client, since)[0] == "available_commands_update", "for clients like Zed"
        since = client.mark()
        await client.prompt("z")
        assert "available_commands_update" not in kinds(client, since)


async def test_a_new_session_has_its_commands_once_and_after_its_response(
    talk: Talk, cwd: Path
) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        await client.prompt("x")
        assert kinds(client).count("available_commands_update") == 1


@pytest.mark.hazard("C23")
@pytest.mark.parametrize("method", OPENINGS)
async def test_what_becomes_known_after_a_load_is_told_with_the_next_prompt(
    talk: Talk, cwd: Path, method: str
) -> None:
    known = thinking()
    known.imported.set()
    async with talk(known) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
    model = thinking()
    async with talk(model) as client:
        since = await reopen(client, method, session_id, cwd)
        model.imported.set()
        await some_round_trips(client)
        assert kinds(client, since) == []
        await client.prompt("y")
        assert kinds(client, since)[:3] == [
            "available_commands_update",
            "config_option_update",
            "usage_update",
        ]


async def test_what_is_known_at_a_load_is_in_its_response_and_told_before_it(
    talk: Talk, cwd: Path
) -> None:
    async with talk(model := thinking()) as client:
        model.imported.set()
        session_id = await opened(client, cwd)
        await client.prompt("x")
        since = client.mark()
        result = await client.load_session(session_id, cwd)
        options = [option["id"] for option in result["configOptions"]]
        assert options == ["model", "mode", "thought_level"]
        assert "usage_update" in kinds(client, since)
        since = client.mark()
        await some_round_trips(client)
        assert kinds(client, since) == []


@pytest.mark.hazard("C23.1")
async def test_after_a_cancelled_prompt_nothing_is_said_until_the_client_speaks(
    talk: Talk, cwd: Path, gates: Gates, mcp_servers: list[RecordedServers]
) -> None:
    server = {"name": "one", "command": "/bin/one", "args": [], "env": []}
    async with talk(GATED) as client:
        await client.initialize()
        await client.new_session(cwd, mcpServers=[server])
        running = client.send_prompt("slow")
        await gates.reached("g")
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        since = client.mark()
        await mcp_servers[0].report("The server one has ended.")
        await some_round_trips(client)
        assert kinds(client, since) == []
        await client.prompt("go on")
        assert client.texts(since=since)[0] == "\n\n[acp-bridge] The server one has ended.\n\n"
        since = client.mark()
        await mcp_servers[0].report("It is back.")
        await some_round_trips(client)
        assert "It is back." in client.text(since=since)


async def test_a_choice_of_the_client_is_answered_with_what_is_known_of_it(
    talk: Talk, cwd: Path
) -> None:
    plain, model = Known(SAYS, "plain", ModelInfo()), thinking()
    plain.imported.set()
    async with talk(SeveralModels(plain, model)) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
        await client.load_session(session_id, cwd)
        since = client.mark()
        choice = {"sessionId": session_id, "configId": "model", "value": "thinker"}
        await client.request("session/set_config_option", choice)
        model.imported.set()
        await client.until_recorded(lambda: "config_option_update" in kinds(client, since))


async def test_while_the_library_of_models_loads_the_first_prompt_says_so(
    talk: Talk, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.session.model_news._QUIET_SECONDS", 0.01)
    async with talk(model := thinking()) as client:
        await opened(client, cwd)
        running = client.send_prompt("x")
        await client.until_recorded(lambda: "agent_thought_chunk" in kinds(client))
        (thought,) = of_kind(client, "agent_thought_chunk")
        assert "Loading" in thought["content"]["text"]
        model.imported.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert client.text() == "fine"
        await client.prompt("y")
        assert len(of_kind(client, "agent_thought_chunk")) == 1


async def test_a_prompt_can_be_cancelled_while_the_library_loads(
    talk: Talk, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.session.model_news._QUIET_SECONDS", 0.01)
    async with talk(thinking()) as client:
        await opened(client, cwd)
        running = client.send_prompt("x")
        await client.until_recorded(lambda: "agent_thought_chunk" in kinds(client))
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"


@pytest.mark.hazard("C23")
async def test_updates_are_held_once_in_order_and_none_is_sent_after_the_end() -> None:
    sent: list[Update] = []

    async def send(update: Update) -> None:
        sent.append(update)

    asides = Asides(send)
    with anyio.fail_after(5):
        await asides.tell({"n": 1})
        asides.delay()
        for n in (2, 3, 2):
            await asides.tell({"n": n})
        asides.delay()
        assert sent == [{"n": 1}]
        await asides.send_delayed()
        await asides.tell({"n": 4})
        asides.close()
        await asides.tell({"n": 5})
    assert [each["n"] for each in sent] == [1, 2, 3, 4]


async def test_a_choice_lets_all_pass_but_what_is_said_which_waits_for_a_prompt() -> None:
    sent: list[Update] = []

    async def send(update: Update) -> None:
        sent.append(update)

    def said(n: int) -> Update:
        return {"sessionUpdate": "agent_message_chunk", "n": n}

    asides = Asides(send)
    with anyio.fail_after(5):
        await asides.send_delayed_states()
        asides.delay()
        for update in ({"n": 1}, said(2), {"n": 3}):
            await asides.tell(update)
        await asides.send_delayed_states()
        for update in ({"n": 4}, said(5)):
            await asides.tell(update)
        assert [each["n"] for each in sent] == [1, 3, 4]
        asides.delay()
        await asides.tell({"n": 6})
        assert len(sent) == 3
        await asides.send_delayed()
        await asides.tell(said(7))
    assert [each["n"] for each in sent] == [1, 3, 4, 2, 5, 6, 7]
