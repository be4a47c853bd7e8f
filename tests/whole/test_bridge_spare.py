"""A process that is kept ready for the next session, with real processes."""

import os
import signal

import pytest

from tests.whole.bridge_support import World

pytestmark = pytest.mark.process


@pytest.mark.hazard("P1")
async def test_the_next_session_opens_in_a_process_that_was_ready_and_one_that_died_is_replaced(
    world: World,
) -> None:
    async with world.inside(spare=60.0, spare_pause=0.0) as client:
        await client.logged("spare.ready agent=waiting#2")
        os.kill(world.log.pids()[1], signal.SIGKILL)
        await client.logged("spare.ready agent=waiting#3")
        await client.new_session(world.cwd)
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        await client.logged("spare.ready agent=waiting#4")
        received = world.log.events("received")
        asked = [e["pid"] for e in received if e["message"].get("method") == "session/new"]
        first, _, ready, _ = world.log.pids()
        assert asked == [first, ready]


async def test_one_that_no_session_takes_is_ended_and_costs_nobody_anything(world: World) -> None:
    async with world.inside(spare=0.01, spare_pause=0.0) as client:
        await client.logged("spare.unused agent=waiting#2")
        await client.logged("agent.exited agent=waiting#2")
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        await client.new_session(world.cwd)
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
