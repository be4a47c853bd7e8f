"""Sessions are found again when the agent is started in another way (invariant K9)."""

import shutil
from pathlib import Path

import pytest

from acp_bridge.core.journal import Journal
from tests.support.client import RecordingClient
from tests.support.fixture_agents import FOLDER, fixture_command
from tests.whole.bridge_support import World, fails

pytestmark = [pytest.mark.process, pytest.mark.hazard("K9")]


def installed(folder: Path) -> list[str]:
    """The fixture agent, installed in another folder; its command."""
    shutil.copytree(FOLDER, folder)
    command = fixture_command()
    return [*command[:-1], str(folder / "fixture_agent.py")]


async def listed(client: RecordingClient) -> list[str]:
    rows = (await client.request("session/list", {}))["sessions"]
    return [row["sessionId"] for row in rows]


@pytest.mark.hazard("K9.2")
async def test_a_session_is_found_by_the_agents_own_name_when_it_is_started_otherwise(
    world: World, tmp_path: Path
) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        session = client.session_id
    command = installed(tmp_path / "elsewhere" / "fixture-2.0.0")
    async with world.inside(command=command, session=False) as client:
        assert await listed(client) == [session]
        await client.load_session(session, world.cwd)
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts()[-1] == "say one"
    async with world.inside(session=False) as client:
        assert await listed(client) == [session]


@pytest.mark.hazard("K9.3")
async def test_a_session_under_a_name_of_an_earlier_version_is_found_and_has_the_new_one_then(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        session = client.session_id
    journal = Journal(world.home)
    await journal.open(session)
    await journal.touch(session, agent="fixture_agent.py", agent_info=None)
    await journal.close()
    async with world.inside(session=False) as client:
        assert await listed(client) == [session]
        await client.load_session(session, world.cwd)
        await client.prompt("say two")
    journal = Journal(world.home)
    info = (await journal.open(session)).info
    assert info.agent == str(FOLDER / "fixture_agent.py")
    assert info.agent_info == "fixture-agent"
    await journal.close()


async def test_sessions_under_a_name_that_the_user_gave_are_for_that_name_alone(
    world: World,
) -> None:
    async with world.bridge(options=["--agent-name", "one"]) as client:
        await client.prompt("say one")
        session = client.session_id
    for options in ([], ["--agent-name", "other"]):
        async with world.bridge(options=options, session=False) as client:
            setup = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
            refusal = await fails(client, "session/load", -32602, **setup)
            assert "belongs to the agent 'one'" in str(refusal)
            assert "--agent-name" in str(refusal)
    async with world.bridge(options=["--agent-name", "one"], session=False) as client:
        assert await listed(client) == [session]
