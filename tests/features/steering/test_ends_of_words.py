"""Steering: what becomes of words when their session is loaded or deleted, or their turn fails."""

from pathlib import Path

import pytest

from tests.core.sessions.agent import until
from tests.features.steering.test_words_that_join import STEER, running

pytestmark = pytest.mark.hazard("Q15")


@pytest.mark.parametrize("method", [False, True])
async def test_a_load_tells_no_client_of_its_own_turn_for_the_words_that_have_joined_it(
    tmp_path: Path, method: bool
) -> None:
    async with running(tmp_path) as here:
        other = await here.it.attached(here.id)
        (here.asks_to_steer if method else here.steers)("mine")
        here.steers("another's", other)
        await until(lambda: here.steered == ["mine", "another's"])
        await here.it.editor.handled()
        again = {"sessionId": here.id, "cwd": str(tmp_path), "mcpServers": []}
        await here.it.editor.ask("session/load", again)
        assert here.notices() == ""
        third = await here.it.joined()
        await third.ask("session/load", again)
        assert "A turn runs in this session: " in "".join(third.texts(here.id))


async def test_words_that_the_agent_takes_none_of_run_in_the_order_of_reading(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        here.outcomes += [{"outcome": "promptRequired"}] * 3
        behind = here.it.editor.prompt(here.id, "behind")
        for text in ("one", "two", "three"):
            here.steers(text)
        await until(lambda: here.steered == ["one", "two", "three"])
        await here.ends()
        await here.it.editor.stop_reason(behind)
        assert here.prompted == ["runs", "one", "two", "three", "behind"]


@pytest.mark.parametrize("waits", ["at the agent", "on hold"])
async def test_words_that_wait_when_their_session_is_deleted_start_no_turn(
    tmp_path: Path, waits: str
) -> None:
    async with running(tmp_path) as here:
        landing = here.it.agent.stops_at(STEER)
        if waits == "on hold":
            await here.it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        sent = here.asks_to_steer("sent")
        asked, prompt = here.asks_to_steer("waits"), here.steers("waits too")
        await here.it.editor.handled()
        here.it.editor.send("session/delete", {"sessionId": here.id})
        here.gate.open()
        assert (await here.it.editor.result(asked))["outcome"] == "failed"
        assert (await here.it.editor.result(sent))["outcome"] == "failed"
        assert await here.it.editor.stop_reason(prompt) == "cancelled"
        landing.open()
        assert here.prompted == ["runs"]


async def test_words_at_the_agent_of_a_turn_that_fails_are_sent_again_on_the_users_word_alone(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        landing = here.it.agent.stops_at(STEER)
        asked = here.asks_to_steer("sent")
        await until(lambda: landing.reached)
        failed = {"code": -32603, "message": "it failed"}
        here.process.says({"id": here.first_id(), "error": failed})
        assert "it failed" in (await here.it.editor.refusal(here.turn)).message
        landing.open()
        assert (await here.it.editor.result(asked))["outcome"] == "injected"
        await here.it.editor.handled()
        assert here.left_over() == ["sent"]
        assert "Perhaps not read" in here.notices()
        here.gate.open()
        await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "follows"))
        assert here.prompted == ["runs", "follows"]
        await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "/queue run"))
        assert here.prompted == ["runs", "follows", "sent"]


@pytest.mark.hazard("Q15.9")
async def test_words_that_the_agent_says_it_took_behind_the_last_word_of_its_turn_are_left_over(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        landing = here.it.agent.stops_at(STEER)
        asked = here.asks_to_steer("sent")
        await until(lambda: landing.reached)
        here.says("of them, or of what was asked before")
        landing.open()
        assert (await here.it.editor.result(asked))["outcome"] == "injected"
        here.process.says({"id": here.first_id(), "result": {"stopReason": "end_turn"}})
        assert await here.it.editor.stop_reason(here.turn) == "end_turn"
        assert here.left_over() == ["sent"]
        assert "Perhaps not read" in here.notices()
        here.gate.open()
