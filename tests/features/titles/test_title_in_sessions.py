"""Titles beside what else a session tells."""

from pathlib import Path

import pytest

from acp_bridge.core.protocol import (
    INFO_UPDATE,
)
from acp_bridge.features.titles.title import titled
from tests.core.session.living import (
    DONE,
    first,
    living,
)
from tests.core.session.test_from_agent import USAGE, card, says
from tests.core.session.test_queue_command import left, types
from tests.core.session.waiting import until
from tests.core.sessions.agent import Agent
from tests.core.sessions.bench import bench

pytestmark = pytest.mark.usefixtures("no_errors")


async def test_the_title_of_a_tool_call_or_of_usage_is_not_that_of_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), title="old") as here:
        agent = await here.agent()
        says(agent, {**card("c"), "title": "mend"}, {**USAGE, "title": "not a title"})
        await here.turn(agent)
        assert here.journal.info.title == "old"
        says(agent, {"sessionUpdate": INFO_UPDATE, "title": "a title"})
        await until(lambda: here.journal.info.title == "a title")


async def test_a_title_is_given_in_words(tmp_path: Path) -> None:
    async with left(tmp_path) as here:
        said = types(here, "/queue title  the  roof ")
        assert said == [titled("the roof"), DONE]
        assert types(here, "/queue title") == [titled(""), DONE]
        await until(lambda: here.journal.info.title == "the roof")


@pytest.mark.hazard("R9")
async def test_the_title_and_the_mode_that_the_agent_gives_are_kept(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.session.user_settings.note_result({"modes": {"currentModeId": "plan"}})
        agent.update(sessionUpdate="current_mode_update", currentModeId="edit")
        agent.update(sessionUpdate="session_info_update", title="Bug hunt")
        await until(lambda: here.journal.info.title == "Bug hunt")
        assert here.session.user_settings.shown == {"modes": {"currentModeId": "edit"}}
        assert len(here.updates()) == 2


@pytest.mark.hazard("V2.3")
async def test_commands_settings_and_words_of_one_are_shown_to_the_others_and_not_repeated(
    tmp_path: Path,
) -> None:
    agent = Agent()
    modes = {"currentModeId": "a", "availableModes": [{"id": "a"}, {"id": "b"}]}
    agent.script["session/new"] = {"sessionId": "agent-1", "modes": modes}
    agent.script["session/set_mode"] = {}
    async with bench(tmp_path, agent) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        await other.stop_reason(other.prompt(session_id, "/queue title Mine"))
        await other.ask("session/set_mode", {"sessionId": session_id, "modeId": "b"})
        await other.stop_reason(other.prompt(session_id, "said"))
        await it.editor.ask("session/set_mode", {"sessionId": session_id, "modeId": "a"})
        told = [m["params"]["update"] for m in it.editor.asked("session/update")]
        assert [each["currentModeId"] for each in told if "currentModeId" in each] == ["b"]
        assert [each["title"] for each in told if "title" in each] == ["Mine"]
        texts = it.editor.texts(session_id)
        assert (texts[0], texts[-2:]) == ("/queue title Mine", ["said", "echo said"])
        assert "said" not in other.texts(session_id)
        third = await it.attached(session_id)
        states = [m["params"]["update"] for m in third.asked("session/update")]
        assert [each["currentModeId"] for each in states if "currentModeId" in each] == ["a"]
