"""What is kept of an agent's words while it is drained and nobody reads them."""

import anyio
import pytest

from acp_bridge.journal import SessionJournal
from acp_bridge.machine.states import State
from tests.session.from_agent_stage import LIMIT, USAGE, Stage, chunk
from tests.session.journals import recorded_texts


@pytest.mark.hazard("P15", "C7")
async def test_in_a_drain_nothing_more_is_kept_for_a_client_that_does_not_read(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.enter(State.DRAINING)
    stage.says(chunk("shown"))
    stage.client.sent.stuck = LIMIT
    stage.says(*[chunk("x" * LIMIT)] * 100, USAGE)
    stage.client.sent.take_all()
    stage.says(chunk("again"))
    assert [update["content"]["text"] for update in stage.shown()] == ["shown", "again"]
    assert await recorded_texts(journal) == ["shownagain"]


@pytest.mark.hazard("R13", "P15")
async def test_what_the_agent_announces_in_a_drain_that_nobody_reads_is_in_force_and_shown_later(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.enter(State.DRAINING)
    stage.client.sent.stuck = LIMIT
    modes = [{"sessionUpdate": "current_mode_update", "currentModeId": m} for m in ("ask", "plan")]
    stage.says(*modes)
    assert stage.settings.kept == modes
    stage.client.sent.take_all()
    assert stage.shown() == []
    stage.enter(State.IDLE)
    assert stage.shown() == modes[1:]


@pytest.mark.hazard("C21", "R6")
async def test_an_agent_does_not_wait_for_a_load_that_may_wait_for_the_agent(
    journal: SessionJournal,
) -> None:
    """A load that was read waits for a fork, say, which needs the agent's answer."""
    stage = Stage(journal)
    ahead = stage.views[0].begin_replay(ahead=True)
    stage.says(chunk("x" * LIMIT))
    assert stage.shown() == []
    with anyio.fail_after(5):
        await stage.from_agent.room(stage.link)
    assert stage.shown() == [chunk("x" * LIMIT)]
    assert not stage.views[0].begins(ahead)
