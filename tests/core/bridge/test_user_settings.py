"""What the user chose of mode, model and options is confirmed by the agent, kept, and set again."""

import sqlite3
from pathlib import Path

import pytest

from acp_bridge.core.protocol import SET_CONFIG_OPTION, SET_MODE, SET_MODEL
from tests.core.bridge.settled import (
    MODELS,
    MODES,
    TOLD,
    mode_told,
    next_bridge,
    options_told,
    set_in,
    settled,
)
from tests.core.session.journals import failing
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import bench
from tests.core.sessions.world import SETUP

EFFORT: Json = {"id": "effort", "type": "select", "currentValue": "low"}
HIGH: Json = {**EFFORT, "currentValue": "high"}


@pytest.mark.hazard("R9.1")
async def test_the_last_choice_of_each_kind_is_kept_in_order_also_for_the_next_bridge(
    tmp_path: Path,
) -> None:
    told = {"modes": MODES, "models": MODELS, "configOptions": [EFFORT]}
    async with settled(tmp_path, told) as here:
        await here.chooses(SET_MODE, modeId="edit")
        answer = {"configOptions": [HIGH]}
        await here.chooses(SET_CONFIG_OPTION, answer, configId="effort", value="high")
        await here.chooses(SET_CONFIG_OPTION, configId="speed", value="fast")
        await here.chooses(SET_MODEL, modelId="s")
        await here.chooses(SET_MODE, modeId="auto")
        chosen = [
            (SET_CONFIG_OPTION, {"configId": "effort", "value": "high"}),
            (SET_CONFIG_OPTION, {"configId": "speed", "value": "fast"}),
            (SET_MODEL, {"modelId": "s"}),
            (SET_MODE, {"modeId": "auto"}),
        ]
        shown = {
            "modes": {**MODES, "currentModeId": "auto"},
            "models": {**MODELS, "currentModelId": "s"},
            "configOptions": [HIGH],
        }
        assert await here.sent_again() == chosen
        assert await here.shown() == shown
    async with next_bridge(tmp_path, here) as again:
        assert await again.shown() == shown
        assert set_in(again.process) == chosen


async def test_what_is_no_choice_is_not_kept(tmp_path: Path) -> None:
    async with settled(tmp_path) as here:
        for params in ({"configId": 7}, {}):
            await here.chooses(SET_CONFIG_OPTION, **params)
        await here.chooses("_x/y", modeId="edit")
        assert await here.sent_again() == []
        assert await here.shown() == TOLD


async def test_what_the_agent_changes_by_itself_is_shown_also_to_who_loads_the_session(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path, {"modes": MODES, "configOptions": None}) as here:
        told = [mode_told("edit"), mode_told(5), options_told(EFFORT)]
        for update in told:
            here.tells(update)
        assert await here.shown() == {
            "modes": {**MODES, "currentModeId": "edit"},
            "configOptions": [EFFORT],
        }
        assert here.updates() == [told[0], told[2]]


async def test_a_mode_of_an_agent_that_told_of_no_modes_is_not_shown_to_who_loads_the_session(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path, {}) as here:
        here.tells(mode_told("edit"))
        await here.chooses(SET_MODE, modeId="edit")
        assert await here.shown() == {}
        assert await here.sent_again({"modes": MODES}) == [(SET_MODE, {"modeId": "edit"})]
        assert (await here.shown())["modes"] == {**MODES, "currentModeId": "edit"}


async def test_what_a_process_changes_as_it_is_set_again_is_shown(tmp_path: Path) -> None:
    async with settled(tmp_path, {"modes": MODES, "configOptions": [EFFORT]}) as here:
        await here.chooses(SET_CONFIG_OPTION, configId="effort", value="high")
        here.agent.script[SET_CONFIG_OPTION] = {"configOptions": [HIGH]}
        await here.sent_again()
        assert here.updates() == [options_told(HIGH)]
        assert (await here.shown())["configOptions"] == [HIGH]


@pytest.mark.hazard("R9", "P3")
async def test_a_process_that_ends_while_settings_are_set_again_loses_no_choice(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_CONFIG_OPTION, configId="effort", value="high")
        await here.chooses(SET_MODE, modeId="plan")
        gate = here.agent.stops_at(SET_MODE)
        here.process.dies()
        request = here.it.editor.prompt(here.id, "go")
        await until(lambda: gate.reached)
        here.process.dies()
        gate.open()
        assert await here.it.editor.stop_reason(request) == "end_turn"
        assert set_in(here.process) == [
            (SET_CONFIG_OPTION, {"configId": "effort", "value": "high"}),
            (SET_MODE, {"modeId": "plan"}),
        ]


@pytest.mark.hazard("R9", "K1")
@pytest.mark.parametrize("kept", ["chosen", "shown"])
async def test_a_choice_that_cannot_be_kept_holds_all_the_same_and_is_kept_when_it_can(
    tmp_path: Path, kept: str
) -> None:
    async with settled(tmp_path) as here:
        journal = here.it.bridge._sessions.live[here.id].journal
        with failing(journal, f"INSERT ON settings WHEN new.key = '{kept}'"):
            await here.chooses(SET_MODE, modeId="edit")
            assert journal.behind
            assert (await here.shown())["modes"]["currentModeId"] == "edit"
    async with next_bridge(tmp_path, here) as again:
        assert (await again.shown())["modes"]["currentModeId"] == "edit"
        assert set_in(again.process) == [(SET_MODE, {"modeId": "edit"})]


@pytest.mark.hazard("R3")
async def test_a_session_whose_settings_cannot_be_read_is_not_opened(tmp_path: Path) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_MODE, modeId="edit")
        path = here.it.context.journal.path(here.id)
    async with bench(tmp_path, here.agent) as it:
        with sqlite3.connect(path) as db:
            db.execute("ALTER TABLE settings RENAME TO lost")
        load: Json = {**SETUP, "sessionId": here.id}
        assert "journal" in (await it.editor.refused("session/load", load)).message
        with sqlite3.connect(path) as db:
            db.execute("ALTER TABLE lost RENAME TO settings")
        db.close()
        await it.editor.ask("session/load", load)


async def test_choices_that_an_older_bridge_has_kept_are_read(tmp_path: Path) -> None:
    async with settled(tmp_path) as here:
        journal = here.it.bridge._sessions.live[here.id].journal
        journal.set("chosen", [[SET_MODE, {"modeId": "edit"}]])
    async with next_bridge(tmp_path, here) as again:
        assert set_in(again.process) == [(SET_MODE, {"modeId": "edit"})]
