"""An agent that falls silent in a turn, with real processes."""

import os
import signal

import pytest

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.descendants import cpu_since, programs_below, seconds_of
from acp_bridge.core.updates.agent_trouble import cancelled_silent
from tests.support.waiting import until
from tests.whole.bridge_support import World

pytestmark = pytest.mark.process

SILENT = "[acp-bridge] The agent has said nothing for "


async def test_a_silent_agent_is_told_of_with_the_program_below_it_and_stop_ends_its_turn(
    world: World,
) -> None:
    async with world.inside(silence=0.3) as client:
        asked = client.send_prompt("say one; child; gate silent")
        await client.until_text("Below it run:\n\n- `sleep`: 0.0 s of CPU time, began ")
        client.cancel()
        answer = await client.answer_to(asked)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert client.text().count(SILENT) == 1


@pytest.mark.hazard("C26.6", "C26.8")
async def test_with_the_option_a_silent_turn_is_cancelled_and_the_session_goes_on(
    world: World,
) -> None:
    options = ["--cancel-silent-after", "0.01"]
    async with world.bridge("ignores-cancel", options=options) as client:
        asked = client.send_prompt("say one; child; gate silent")
        answer = await client.answer_to(asked)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert cancelled_silent(0.6) in client.text()
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert "say one; child; gate silent" in client.text()
    assert len(world.log.pids()) == 2


@pytest.mark.hazard("C26.7")
async def test_a_silent_turn_whose_program_computes_goes_on_until_that_stops(
    world: World,
) -> None:
    # The program has so long to start; on a busy machine that takes more than a moment.
    async with world.inside(cancel_silent_after=1.5, silence=2.5) as client:
        asked = client.send_prompt("computer; gate silent")
        await client.until_text(SILENT, within=15)
        (agent,) = world.log.pids()
        computing = programs_below(agent)
        assert computing is not None
        (pid,) = [pid for pid, each in computing.items() if each.cpu and each.name]
        assert "computed" not in client.text()
        os.kill(pid, signal.SIGKILL)
        answer = await client.answer_to(asked, within=15)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert cancelled_silent(1.5) in client.text()


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("00:01:02", 62), ("1:02.50", 62.5), ("0:00.00", 0), ("3-04:05:06", 273906), ("12:00", 720)],
)
def test_a_time_that_ps_tells_is_read_in_the_forms_of_linux_and_macos(
    told: str, seconds: float
) -> None:
    assert seconds_of(told) == seconds


async def test_what_an_agent_has_started_is_seen_with_its_cpu_time_until_it_is_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.inside() as client:
        await client.prompt("child; computer")
        (agent,) = world.log.pids()
        await until(lambda: any(each.cpu for each in (programs_below(agent) or {}).values()))
        found = programs_below(agent)
        assert found is not None
        assert "sleep" in {each.name for each in found.values()}
        with monkeypatch.context() as patched:
            patched.setattr(guard, "LINUX", False)
            by_ps = programs_below(agent)
        assert by_ps is not None
        assert by_ps.keys() == found.keys() - {agent}
        assert "sleep" in {each.name for each in by_ps.values()}
        before = found[agent]
        for pid in found.keys() - {agent}:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: (programs_below(agent) or {}).keys() == {agent})
        await client.prompt("computed")  # its child is waited for
        after = programs_below(agent)
        assert after is not None
        assert cpu_since({agent: before}, after) > 0.05
    assert programs_below(agent) is None
