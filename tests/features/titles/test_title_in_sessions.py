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
from tests.core.sessions.agent import ABLE, Agent
from tests.core.sessions.bench import HELLO, Bench, bench
from tests.core.sessions.world import SETUP

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


# --- session/set_title ----------------------------------------------------------------------------


async def listed(it: Bench) -> dict[str, str | None]:
    """Return the titles of the listed sessions, by their ids."""
    answer = await it.editor.ask("session/list", {})
    return {row["sessionId"]: row.get("title") for row in answer["sessions"]}


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_client_titles_a_session_that_is_open_or_not_and_the_agent_is_not_asked(
    tmp_path: Path, *, is_open: bool
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "said")) == "end_turn"
        if not is_open:
            await it.editor.ask("session/close", {"sessionId": session_id})
        named = {"sessionId": session_id, "title": "  the\nroof "}
        assert await it.editor.ask("session/set_title", named) == {"title": "the roof"}
        assert await listed(it) == {session_id: "the roof"}
        for odd in ({}, {"title": None}, {"title": " \n"}):
            refusal = await it.editor.refused("session/set_title", {"sessionId": session_id, **odd})
            assert refusal.code == -32602
        assert (await it.editor.refused("session/set_title", {"title": "x"})).code == -32602
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        for _ in range(2):  # a later word of the agent's changes nothing
            assert await it.editor.stop_reason(it.editor.prompt(session_id, "said")) == "end_turn"
            process = it.agent.living[-1]
            update = {"sessionUpdate": INFO_UPDATE, "title": "the agent's"}
            process.shows(process.agent_session_id, update)
        assert await listed(it) == {session_id: "the roof"}
        assert it.agent.params("session/set_title") == []


async def test_a_session_that_only_the_agent_has_is_titled_by_the_agent(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        it.agent.script["session/set_title"] = {"title": "kept"}
        named = {"sessionId": "the agent's", "title": "roof"}
        assert await it.editor.ask("session/set_title", named) == {"title": "kept"}
        assert it.agent.params("session/set_title") == [named]


async def test_a_session_of_another_agent_or_open_in_another_bridge_is_not_titled(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "said")) == "end_turn"
        named = {"sessionId": session_id, "title": "roof"}
        async with bench(tmp_path, agent_name="other") as there:
            refusal = await there.editor.refused("session/set_title", named)
            assert (refusal.code, "open in another" in refusal.message) == (-32600, True)
            await it.editor.ask("session/close", {"sessionId": session_id})
            refusal = await there.editor.refused("session/set_title", named)
            assert (refusal.code, "belongs to the agent" in refusal.message) == (-32602, True)
        assert await listed(it) == {session_id: "said"}


async def test_titles_are_offered_and_an_archive_is_not(tmp_path: Path) -> None:
    agent = Agent(able={**ABLE, "archive": {}})
    async with bench(tmp_path, agent, initialized=False) as it:
        answer = await it.editor.ask("initialize", HELLO)
        able = answer["agentCapabilities"]["sessionCapabilities"]
        assert (able["title"], "archive" in able) == ({}, False)
        session_id = await it.new()
        for method in ("session/archive", "session/unarchive"):
            assert (await it.editor.refused(method, {"sessionId": session_id})).code == -32601
            assert agent.params(method) == []
