"""The fixture agents do what their names claim, each alone before a recording client."""

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import FixtureLog, fixture_command

pytestmark = pytest.mark.process


async def test_the_well_behaved_agent_streams_words_and_ends_its_turn(
    agent_env: dict[str, str], agent_log: FixtureLog
) -> None:
    async with RecordingClient.start(fixture_command(), env=agent_env) as client:
        await client.initialize()
        assert await client.new_session("/w") == "0"
        assert await client.prompt("say hello world") == {"stopReason": "end_turn"}
        assert client.texts() == ["hello ", "world"]
    assert agent_log.prompts() == ["say hello world"]
