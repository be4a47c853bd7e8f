"""Conversations whose agent is itself an ACP agent, which the agent-server starts: our fixture.

With such an agent the server would send an interrupted message again, ahead of the next one.
"""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.openhands_not_ours.server import AgentServer
from tests.openhands_not_ours.stand import PATIENCE, Stand, stop_reason, user_texts
from tests.support.fixture_agents import FixtureLog, fixture_command

pytestmark = pytest.mark.process


@dataclass(frozen=True, slots=True)
class Fixture:
    """An agent profile on the server whose agent is the fixture."""

    profile: str
    log: FixtureLog

    def prompts(self) -> list[str]:
        """What the agent was given, in its order."""
        return [turn["prompt"] for turn in self.log.turns()]


@pytest.fixture
async def fixture(stand: Stand, agent_log: FixtureLog, tmp_path: Path) -> AsyncIterator[Fixture]:
    async for fixture in _profile(stand, agent_log, tmp_path):
        yield fixture


@pytest.fixture
async def mortal_fixture(
    mortal_stand: Stand, agent_log: FixtureLog, tmp_path: Path
) -> AsyncIterator[Fixture]:
    async for fixture in _profile(mortal_stand, agent_log, tmp_path):
        yield fixture


async def _profile(stand: Stand, log: FixtureLog, tmp_path: Path) -> AsyncIterator[Fixture]:
    name = f"fixture-{uuid.uuid4().hex[:8]}"
    env = {**log.env, "FIXTURE_HOME": str(tmp_path / "agent-home")}
    words = ["env", *(f"{key}={value}" for key, value in env.items()), *fixture_command()]
    about = {"agent_kind": "acp", "acp_server": "custom", "acp_command": " ".join(words)}
    await stand.api.ask("POST", f"/api/agent-profiles/{name}", about)
    yield Fixture(name, log)
    await stand.api.ask("DELETE", f"/api/agent-profiles/{name}")


async def test_its_words_are_streamed_and_shown_once(stand: Stand, fixture: Fixture) -> None:
    async with stand.client(profile=fixture.profile) as client:
        answer = await client.prompt("say hello world", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert client.text() == "hello world"
        assert len(client.texts()) == 2
        assert fixture.prompts() == ["say hello world"]


async def test_a_cancelled_prompt_is_not_sent_again_with_the_next(
    stand: Stand, fixture: Fixture
) -> None:
    async with stand.client(profile=fixture.profile) as client:
        await client.prompt("say warm", within=PATIENCE)
        running = client.send_prompt("stream 1000000 20")
        await client.until_text("3 ", within=PATIENCE)
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        mark = client.mark()
        answer = await client.prompt("say next", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert client.text(since=mark) == "next"
        assert fixture.prompts() == ["say warm", "stream 1000000 20", "say next"]


async def test_cancelled_again_and_again_each_prompt_is_sent_once(
    stand: Stand, fixture: Fixture
) -> None:
    async with stand.client(profile=fixture.profile) as client:
        for number in range(3):
            mark = client.mark()
            running = client.send_prompt(f"stream 1000000 2{number}")
            await client.until_text("3 ", since=mark, within=PATIENCE)
            client.cancel()
            assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        await client.prompt("say next", within=PATIENCE)
        wanted = [f"stream 1000000 2{number}" for number in range(3)]
        assert fixture.prompts() == [*wanted, "say next"]


@pytest.mark.parametrize("bridged", [True])
async def test_a_prompt_that_interrupts_runs_alone(stand: Stand, fixture: Fixture) -> None:
    async with stand.client(profile=fixture.profile) as client:
        running = client.send_prompt("stream 1000000 20")
        await client.until_text("3 ", within=PATIENCE)
        instead = client.send_prompt("say now", _meta={"acp_bridge": {"delivery": "interrupt"}})
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        assert stop_reason(await client.answer_to(instead, PATIENCE)) == "end_turn"
        assert fixture.prompts() == ["stream 1000000 20", "say now"]


async def test_a_prompt_that_died_with_the_server_is_not_sent_again(
    mortal_stand: Stand, mortal_fixture: Fixture, mortal: AgentServer
) -> None:
    async with mortal_stand.client(profile=mortal_fixture.profile) as client:
        running = client.send_prompt("stream 1000000 20")
        await client.until_text("3 ", within=PATIENCE)
        mortal.kill()
        mortal.start()
        mortal.running()
        answer = await client.answer_to(running, 2 * PATIENCE)
        assert stop_reason(answer).startswith("error")
        mark = client.mark()
        await client.prompt("say next", within=2 * PATIENCE)
        assert client.text(since=mark) == "next"
        assert mortal_fixture.prompts() == ["stream 1000000 20", "say next"]


async def test_a_load_shows_what_was_said_and_a_cancelled_prompt_too(
    stand: Stand, fixture: Fixture
) -> None:
    async with stand.client(profile=fixture.profile) as client:
        session = client.session_id
        await client.prompt("say one", within=PATIENCE)
        running = client.send_prompt("stream 1000000 20")
        await client.until_text("3 ", within=PATIENCE)
        client.cancel()
        await client.answer_to(running, PATIENCE)
        await client.prompt("say two", within=PATIENCE)
    async with stand.client(profile=fixture.profile, loads=session) as client:
        assert user_texts(client) == "say one\nstream 1000000 20\nsay two"
        assert client.text().startswith("one")
        assert client.text().endswith("two")
        await client.prompt("say three", within=PATIENCE)
        assert fixture.prompts() == ["say one", "stream 1000000 20", "say two", "say three"]
