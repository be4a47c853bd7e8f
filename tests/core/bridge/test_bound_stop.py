"""A Stop that carries the key of the prompt for which it was said."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.keyed import session
from tests.core.sessions.agent import until

pytestmark = pytest.mark.hazard("N2")


def bound(session_id: str, key: str) -> Any:
    return {"sessionId": session_id, "_meta": {"acp_bridge": {"promptKey": key}}}


@pytest.mark.hazard("N2.19")
async def test_a_stop_with_the_key_of_the_prompt_that_runs_ends_it(tmp_path: Path) -> None:
    async with session(tmp_path, drain_timeout=5) as here:
        asked = await here.runs("work", "a")
        here.editor.notify("session/cancel", bound(here.id, "a"))
        await until(lambda: here.it.agent.params("session/cancel"))
        here.gate.open()
        assert await here.editor.stop_reason(asked) == "cancelled"


@pytest.mark.hazard("N2.19")
async def test_a_stop_with_the_key_of_a_prompt_that_has_ended_reaches_no_other(
    tmp_path: Path,
) -> None:
    async with session(tmp_path, drain_timeout=5) as here:
        here.gate.open()
        assert await here.editor.stop_reason(here.send("first", "a")) == "end_turn"
        here.gate = here.it.agent.stops_at("session/prompt")
        follows = await here.runs("second", "b")
        here.editor.notify("session/cancel", bound(here.id, "a"))
        here.editor.notify("session/cancel", bound(here.id, "never sent"))
        await here.it.settled()
        assert here.it.agent.params("session/cancel") == []
        here.gate.open()
        assert await here.editor.stop_reason(follows) == "end_turn"


async def test_a_stop_right_behind_a_prompt_that_is_sent_again_ends_that_alone(
    tmp_path: Path,
) -> None:
    async with session(tmp_path, drain_timeout=5) as here:
        await here.runs_for_one_who_leaves("work", "a")
        again = here.send("work", "a")
        here.editor.notify("session/cancel", bound(here.id, "a"))
        follows = here.send("after", "b")
        await here.it.settled()
        here.gate.open()
        assert await here.editor.stop_reason(again) == "cancelled"
        assert await here.editor.stop_reason(follows) == "end_turn"
