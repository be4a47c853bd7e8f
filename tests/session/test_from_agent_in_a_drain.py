"""What is kept of an agent's words while it is drained and nobody reads them."""

import pytest

from acp_bridge.journal import SessionJournal
from acp_bridge.machine.states import State
from tests.session.journals import recorded_texts
from tests.session.test_from_agent import LIMIT, USAGE, Stage, chunk


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
