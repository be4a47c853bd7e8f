"""Words for the turn that runs, and a journal that is late or away."""

from pathlib import Path

import pytest

from acp_bridge.core.journal import PromptState
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.events import Go, HoldQueue
from acp_bridge.core.protocol import (
    SESSION_PROMPT,
    STEERING,
    user_chunk,
)
from acp_bridge.core.runtime import waits
from acp_bridge.features.steering import steering as notices
from acp_bridge.features.steering.steering import Steering
from tests.core.session.journals import recorded_texts
from tests.core.session.living import CANCELLED, DONE, does_not_exist, first, living
from tests.core.session.memory import ClientEnd
from tests.core.session.test_late_writes import late
from tests.core.session.test_turn import BLOCKS, STEERS
from tests.core.session.waiting import quiet, until
from tests.support.late_journal import late_journals

pytestmark = pytest.mark.usefixtures("no_errors")


@pytest.mark.hazard("N4", "Q15", "T2")
@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("held", [False, True])
async def test_words_that_were_to_join_a_turn_while_it_is_away_run_after_it_and_stand_once(
    tmp_path: Path, loses: bool, held: bool
) -> None:
    steer = {"acp_bridge": {"delivery": "steer"}}
    with late_journals() as gate:
        async with living(tmp_path, first=first(), steers=True) as here:
            agent = await here.agent()
            ends = here.prompt()
            turn = await agent.asked(SESSION_PROMPT)
            gate.shut = True
            words = here.prompt("more", _meta=steer)
            await gate.let_through(lambda: PromptState.WAITING in here.states())
            await until(lambda: here.journal.in_flight)
            gate.away, gate.loses = True, loses
            gate.open()
            await quiet()
            gate.away = False
            here.journal.on_back(None)
            if held:
                here.session.feed(HoldQueue())
            agent.answer(turn, DONE)
            assert await here.answered(ends) == DONE
            if held:
                await until(lambda: not here.journal.in_flight)
                here.session.feed(Go())
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
            assert (await here.answered(words))["stopReason"] == "end_turn"
            assert STEERING not in agent.heard
            assert (await recorded_texts(here.journal)).count("more") == 1
            assert here.states() == [PromptState.DONE] * 2


@pytest.mark.hazard("Q15")
async def test_words_that_are_to_join_a_turn_stay_here_if_it_is_stopped_before_they_have_left(
    tmp_path: Path,
) -> None:
    async with late(tmp_path, steers=True) as (here, agent, gate):
        here.prompt("go")
        turn = await agent.asked(SESSION_PROMPT)
        gate.shut = True
        words = here.prompt("more", _meta={"acp_bridge": {"delivery": "steer"}})
        await gate.let_through(lambda: PromptState.WAITING in here.states())
        await until(lambda: here.journal.in_flight)
        here.session.audience.cancel(here.client.client, None)
        gate.open()
        agent.answer(turn, CANCELLED)
        assert (await here.answered(words))["stopReason"] == "cancelled"
        assert STEERING not in agent.heard
        assert notices.given_back([{"type": "text", "text": "more"}]) in here.texts()


@pytest.mark.hazard("Q15")
async def test_words_that_have_joined_a_turn_are_not_shown_again_where_the_agent_repeats_them(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), steers=True) as here:
        agent, asked = await here.agent(), here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        joins = here.prompt("and", _meta=STEERS)
        agent.answer(await agent.asked(STEERING), {"outcome": "injected"})
        agent.update(**user_chunk({"type": "text", "text": "and"}))
        agent.says_text("I see")
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        assert (await here.answered(joins))["stopReason"] == "end_turn"
        assert here.texts() == ["I see"]
        assert await recorded_texts(here.journal) == ["one", "and", "I see"]


@pytest.mark.hazard("Q15", "R3")
async def test_words_that_the_agent_did_not_take_stand_once_though_no_process_comes_for_them(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist, first=first(), steers=True) as here:
        agent, gone, asked = await here.agent(), ClientEnd(), here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        params = {"sessionId": "s", "prompt": BLOCKS[:1], "_meta": STEERS}
        here.session.on_prompt(gone.asks(SESSION_PROMPT, params), params)
        agent.answer(await agent.asked(STEERING), {"outcome": "promptRequired"})
        gone.client.gone = True
        here.session.feed(ev.HoldQueue())
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        agent.dies()
        here.session.feed(ev.Go())
        await until(lambda: "not be started" in here.texts()[-1])
        assert (await recorded_texts(here.journal)).count("mend") == here.texts().count("mend") == 1


@pytest.mark.hazard("Q5")
async def test_an_agent_that_is_not_read_has_not_failed_to_say_whether_it_took_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "AGENT_PATIENCE", 0.01)
    async with living(tmp_path, first=first(), steers=True) as here:
        agent, looks = await here.agent(), list[int]()

        def unread() -> bool:
            looks.append(1)
            return True

        monkeypatch.setattr(here.feature(Steering), "_unread", unread)
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        joins = here.prompt("and", _meta=STEERS)
        steered = await agent.asked(STEERING)
        await until(lambda: len(looks) > 6)  # three times its patience
        agent.answer(steered, {"outcome": "promptRequired"})
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert (await here.answered(joins))["stopReason"] == "end_turn"
