"""What waits under a key, or is left over, and is changed or dropped by its number."""

from pathlib import Path

import pytest

from tests.core.bridge.keyed import left_over, session
from tests.core.sessions.agent import until


@pytest.mark.hazard("X2", "Q16")
@pytest.mark.parametrize("held", [False, True])
async def test_words_are_compared_with_those_that_were_sent_first_also_when_edited(
    tmp_path: Path, *, held: bool
) -> None:
    async with left_over(tmp_path, "work") if held else session(tmp_path) as here:
        if not held:
            await here.runs("runs", "runs")
            here.send("work", "work")
            await here.it.settled()
        await here.says("/queue edit 2 better")
        assert (await here.editor.refusal(here.send("better", "work"))).code == -32602
        again = here.send("work", "work")
        await here.it.settled()
        here.gate.open()
        if held:
            await here.says("/queue run")
        assert await here.editor.stop_reason(again) == "end_turn"
        assert here.prompted[-1] == "better"
        assert await here.shown_by(here.editor, "better") == 1


@pytest.mark.hazard("X2.6", "R12")
@pytest.mark.parametrize("held", [False, True])
async def test_what_was_dropped_is_answered_cancelled(tmp_path: Path, *, held: bool) -> None:
    async with left_over(tmp_path, "work") if held else session(tmp_path) as here:
        if not held:
            await here.runs("runs", "runs")
            here.send("work", "work")
            await here.it.settled()
        await here.says("/queue drop 2")
        assert await here.editor.stop_reason(here.send("work", "work")) == "cancelled"
        here.gate.open()
        await here.says("/queue")
        assert "work" not in here.prompted


@pytest.mark.hazard("X2.7", "R12.3")
@pytest.mark.parametrize("ends", ["/queue run", "/queue drop", "/queue drop 2"])
async def test_what_is_left_over_stays_so_until_the_user_says_what_becomes_of_it(
    tmp_path: Path, ends: str
) -> None:
    async with left_over(tmp_path, "work") as here:
        second = await here.it.attached(here.id)
        asked = [here.send("work", "work", second) for _ in range(2)]
        await second.handled()
        await until(lambda: any("was sent before" in text for text in second.texts(here.id)))
        assert not any("was sent before" in text for text in here.editor.texts(here.id))
        assert (here.prompted, [second.answers(each) for each in asked]) == ([], [[], []])
        await here.says(ends)
        how = "end_turn" if ends == "/queue run" else "cancelled"
        assert [await second.stop_reason(each) for each in asked] == [how] * 2
        assert here.prompted == (["work"] if ends == "/queue run" else [])
        assert await here.shown_by(second, "work") == 0
        assert await here.editor.stop_reason(here.send("work", "work")) == how


@pytest.mark.hazard("X2", "R12")
async def test_a_drop_by_method_answers_who_waits_for_what_was_left_over(tmp_path: Path) -> None:
    async with left_over(tmp_path, "work") as here:
        asked = here.send("work", "work")
        listed = await here.editor.ask("_acp_bridge/queue/list", {"sessionId": here.id})
        drop = {"sessionId": here.id, "promptId": listed["prompts"][0]["promptId"]}
        assert await here.editor.ask("_acp_bridge/queue/drop", drop) == {}
        assert await here.editor.stop_reason(asked) == "cancelled"
