"""An agent that works on outside of prompts, with real processes."""

import os

import pytest

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.descendants import programs_since
from acp_bridge.core.updates.notices import killed_at_work
from tests.support.waiting import until
from tests.whole.bridge_support import World, shown

pytestmark = [pytest.mark.process, pytest.mark.hazard("C25")]

#: nanoseconds of one tick of the clock by which the system tells when a process began.
TICK = 10**9 // os.sysconf("SC_CLK_TCK")


@pytest.mark.hazard("C6", "C8.1", "C9", "C25.12", "C25.13")
async def test_one_that_is_deaf_to_a_stop_is_killed_and_reloaded_and_its_programs_are_named(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", "works-on", drain_timeout=0.3) as client:
        await client.prompt("child; say one")
        await client.until_text("[on]")
        client.cancel()
        await client.until_text(killed_at_work(["sleep"]))
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert "child; say one" in client.text()
        ends = [each for each in shown(client) if each.get("status") in ("completed", "failed")]
        assert [each["status"] for each in ends] == ["failed"]
    assert len(world.log.pids()) == 2


@pytest.mark.hazard("C6", "C25.11")
async def test_one_that_heeds_a_stop_keeps_its_process_and_takes_the_next_prompt(
    world: World,
) -> None:
    async with world.inside("works-on", drain_timeout=0.3) as client:
        await client.prompt("say one")
        await client.until_text("[on]")
        client.cancel()
        await until(lambda: world.log.received("session/cancel"))
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert "two" in client.text()
    assert len(world.log.pids()) == 1


async def test_of_the_programs_of_an_agent_those_are_named_that_have_begun_since_a_moment(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("child")
        (main,) = world.log.pids()
        assert "sleep" in programs_since(main, 0)
        assert programs_since(main, guard.now() + TICK) == []
