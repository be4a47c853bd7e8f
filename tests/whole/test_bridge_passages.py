"""Real bridges: a session of one is loaded at another, and its holder is killed."""

import signal
from functools import partial

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.whole.bridge_support import World, stopped

pytestmark = [pytest.mark.process, pytest.mark.hazard("V8")]


async def texts(client: RecordingClient, session_id: str) -> str:
    updates = client.updates(session_id)
    return "".join(u["content"]["text"] for u in updates if "text" in u.get("content", {}))


@pytest.mark.hazard("V8.1", "V8.11")
async def test_a_session_is_used_through_another_bridge_and_taken_over_when_its_own_is_killed(
    world: World,
) -> None:
    async with world.inside(session=False) as other:
        async with world.bridge(exits=-signal.SIGKILL) as holder:
            session_id = holder.session_id
            await holder.prompt("say before")
            await other.load_session(session_id, world.cwd)
            assert await stopped(other, other.send_prompt("say there")) == "end_turn"
            running = other.send_prompt("say words; gate g")
            await world.gates.reached("g")
            waiting = holder.send_prompt("say later")
            holder.terminate(signal.SIGKILL)
            assert await stopped(other, running) == -32603
        assert await stopped(other, other.send_prompt("say after")) == "end_turn"
        said = await texts(other, session_id)
        assert said.count("Interrupted") == 1
        assert [prompt for prompt in world.log.prompts() if "later" in prompt] == []
        assert waiting is not None
        turns = world.log.turns()
        assert turns[-1]["prompt"] == "say after"
        assert len({turn["pid"] for turn in turns}) == 2


async def test_the_clients_of_every_bridge_are_told_how_the_turn_of_a_killed_holder_was_left(
    world: World,
) -> None:
    async with world.inside(session=False) as one, world.inside(session=False) as two:
        async with world.bridge(exits=-signal.SIGKILL) as holder:
            session_id = holder.session_id
            for other in (one, two):
                await other.load_session(session_id, world.cwd)
            holder.send_prompt("say words; tool t; gate g")
            await world.gates.reached("g")
            for other in (one, two):
                await other.until_recorded(partial(cards, other, session_id))
            holder.terminate(signal.SIGKILL)
        for other in (one, two):
            await other.until_text("Interrupted")
            assert [card["status"] for card in cards(other, session_id)][1:] == ["failed"]
            assert (await texts(other, session_id)).count("Interrupted") == 1


def cards(client: RecordingClient, session_id: str) -> list[Message]:
    return [each for each in client.updates(session_id) if each.get("toolCallId") == "t"]
