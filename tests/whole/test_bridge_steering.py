"""Words that join a turn, with whole bridges: kills, other bridges, a deaf agent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.waiting import until
from tests.whole.bridge_support import World, accepted, full_disk, stopped

pytestmark = pytest.mark.process

HEARS = {"_meta": {"acp_bridge": {"accepted": True}}}
STEER = {"acp_bridge": {"delivery": "steer"}}


def delivery(client: RecordingClient, prompt: Any) -> str:
    """What the answer to a prompt that steers tells of it."""
    (answer,) = [m for m in client.recording.incoming() if m.get("id") == prompt]
    return str(answer["result"]["_meta"]["acp_bridge"]["delivery"])


def shown_words(client: RecordingClient, session: str) -> list[str]:
    """The user's words that a client was shown of a session."""
    said = [u for u in client.updates(session) if u["sessionUpdate"] == "user_message_chunk"]
    return [update["content"]["text"] for update in said]


@pytest.mark.hazard("Q15")
async def test_words_join_the_turn_of_an_agent_that_takes_them(world: World) -> None:
    async with world.bridge("steers") as client:
        first = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        second = client.send_prompt("say two", _meta=STEER)
        await until(lambda: world.log.events("steered"))
        world.gates.open("g")
        assert await stopped(client, first) == "end_turn"
        assert await stopped(client, second) == "end_turn"
        assert delivery(client, second) == "steered"
        assert client.text() == "onetwo"
        assert [turn["prompt"] for turn in world.log.turns()] == ["say one; gate g"]


@pytest.mark.hazard("Q15.10", "Q6.1")
async def test_after_a_kill_sent_words_are_interrupted_and_others_left_over(world: World) -> None:
    async with world.bridge("steers", exits=-9, capabilities=HEARS) as client:
        session = client.session_id
        client.send_prompt("say one; gate never")
        await world.gates.reached("never")
        client.send_prompt("say sent", _meta=STEER)
        await until(lambda: world.log.events("steered"))
        await client.request("_acp_bridge/hold", {"sessionId": session})
        await accepted(client, client.send_prompt("say waits", _meta=STEER))
        client.kill()
    async with world.bridge("steers", session=False) as client:
        await client.load_session(session, world.cwd)
        rows = {row.params["prompt"][0]["text"]: row for row in await world.journal(session)}
        assert rows["say sent"].outcome == {"interrupted": True}
        assert rows["say waits"].state == "held"
        texts = client.texts(session)
        assert sum("Interrupted" in text for text in texts) == 1
        assert "say sent" in shown_words(client, session)
        assert (await client.prompt("/queue run"))["stopReason"] == "end_turn"
        assert client.text(session).endswith("waits")
    assert [turn["prompt"] for turn in world.log.turns()] == ["say one; gate never", "say waits"]


@pytest.mark.hazard("Q15", "Q13.9", "Q5.2")
async def test_words_that_were_sent_on_a_full_disk_are_not_offered_again_after_a_kill(
    world: World,
) -> None:
    async with world.bridge("steers", exits=-9, capabilities=HEARS) as client:
        session = client.session_id
        client.send_prompt("say one; gate never")
        await world.gates.reached("never")
        await client.request("_acp_bridge/hold", {"sessionId": session})
        await accepted(client, client.send_prompt("say sent", _meta=STEER))
        with full_disk(client):
            await client.request("_acp_bridge/go", {"sessionId": session})
            await until(lambda: world.log.events("steered"))
            client.kill()
    async with world.bridge("steers", session=False) as client:
        await client.load_session(session, world.cwd)
        assert "say sent" in shown_words(client, session)
        await client.prompt("/queue run")
    assert [turn["prompt"] for turn in world.log.turns()] == ["say one; gate never"]


@pytest.mark.hazard("Q15", "V7")
async def test_words_reach_a_turn_that_another_bridge_runs(world: World) -> None:
    async with world.bridge("steers") as client:
        session = client.session_id
        first = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        async with world.bridge("steers", session=False) as other:
            await other.load_session(session, world.cwd)
            second = other.send_prompt("say two", session, _meta=STEER)
            await until(lambda: world.log.events("steered"))
            params = {"sessionId": session, "prompt": [{"type": "text", "text": "say three"}]}
            taken = await other.request("_session/steering", params)
            assert taken["outcome"] == "injected"
            world.gates.open("g")
            assert await stopped(client, first) == "end_turn"
            assert await stopped(other, second) == "end_turn"
            assert client.text() == "onetwothree"


@pytest.mark.hazard("Q15", "C5")
async def test_a_deaf_agent_is_killed_with_the_words_that_it_took(world: World) -> None:
    async with world.bridge(
        "steers", "ignores-cancel", options=["--drain-timeout", "0.2"]
    ) as client:
        first = client.send_prompt("say one; gate never")
        await world.gates.reached("never")
        second = client.send_prompt("say two", _meta=STEER)
        await until(lambda: world.log.events("steered"))
        client.cancel()
        assert await stopped(client, first) == "cancelled"
        assert await stopped(client, second) == "cancelled"
        assert (await client.prompt("say three"))["stopReason"] == "end_turn"
        assert "two" not in client.text()
