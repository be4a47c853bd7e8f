"""A question beside a session that sleeps, starts or is stopped."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import ASK
from acp_bridge.features.asking.ask import ASK_WHAT
from tests.core.bridge.test_stops import busy
from tests.core.session.living import DONE
from tests.core.session.test_queue_command import left, types
from tests.core.session.test_sleep_moments import at_each_moment, moment
from tests.core.session.test_sleep_moments import no_descendants as no_descendants
from tests.core.session.waiting import quiet, until


@pytest.mark.hazard("V4.8")
async def test_a_stop_ends_questions_beside_the_session_of_its_client_alone(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as here:
        here.it.context.capabilities = {"_meta": {"acp_bridge": {"ask": True}}}
        here.it.agent.script["_acp_bridge/ask"] = {"answer": "beside"}
        asked = here.it.agent.stops_at("_acp_bridge/ask")
        question = here.first.prompt(here.id, "/queue ask why?")
        await until(lambda: asked.reached)
        await here.stops(here.other)
        asked.open()
        assert await here.first.stop_reason(question) == "end_turn"
        assert any("beside" in text for text in here.first.texts(here.id))
        assert not any("beside" in text for text in here.other.texts(here.id))


@at_each_moment
async def test_a_question_beside_the_session_is_answered_by_the_process_that_comes(
    tmp_path: Path, name: str
) -> None:
    async with moment(tmp_path, name) as it:
        request = it.here.request(ASK, question="why")
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await it.here.session.features.answers[ASK](request, request.params))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await quiet()
            await it.over()
            woken = await it.here.agent(2)
            woken.answer(await woken.asked(ASK), {"answer": "so"})
        assert answers == [{"answer": "so"}]


async def test_a_question_without_words_is_none(tmp_path: Path) -> None:
    async with left(tmp_path) as here:
        assert types(here, "/queue ask") == [ASK_WHAT, DONE]
