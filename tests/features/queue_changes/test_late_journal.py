"""Changes of the queue, and a journal that is late or away."""

from pathlib import Path

import pytest

from acp_bridge.core.journal import PromptState
from acp_bridge.core.protocol import SESSION_PROMPT, STEERING
from acp_bridge.features.queue_changes.changes import Changes
from tests.core.session.living import DONE
from tests.core.session.test_journal_away import away
from tests.core.session.test_late_writes import late
from tests.core.session.waiting import quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")


async def test_words_that_were_given_to_it_meanwhile_are_shown_to_all_and_sent(
    tmp_path: Path,
) -> None:
    async with away(tmp_path) as stand:
        stand.gate.away = False
        (key,) = stand.here.session.now.waiting
        other = [{"type": "text", "text": "break"}]
        await stand.here.feature(Changes).edit(key, lambda _: other)
        stand.back()
        turn = await stand.agent.asked(SESSION_PROMPT)
        assert turn["params"]["prompt"] == other
        stand.agent.answer(turn, DONE)
        assert await stand.here.answered(stand.prompt) == DONE
        assert stand.seen_by_other() == ["mend", "break"]
        assert stand.here.texts() == ["break"]


@pytest.mark.hazard("Q15", "R12")
async def test_what_is_left_over_may_be_run_before_the_journal_has_that(tmp_path: Path) -> None:
    async with late(tmp_path, steers=True) as (here, agent, gate):
        here.prompt("go")
        turn = await agent.asked(SESSION_PROMPT)
        here.prompt("more", _meta={"acp_bridge": {"delivery": "steer"}})
        words = await agent.asked(STEERING)
        await until(lambda: not here.journal.in_flight)
        gate.shut = True
        agent.answer(turn, DONE)
        agent.answer(words, {"outcome": "injected"})
        await quiet()
        runs = here.prompt("/queue run")
        gate.open()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(runs) == DONE
        assert here.states() == [PromptState.DONE] * 2
