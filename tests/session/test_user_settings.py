"""User settings: what the user chose is confirmed by the agent, kept, and set again in order."""

from collections.abc import Iterable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_bridge import errors
from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.protocol import SET_CONFIG_OPTION, SET_MODE
from acp_bridge.session.opening import Refused
from acp_bridge.session.requests.user_settings import UserSettings
from tests.session.journals import failing, unreadable
from tests.session.memory import MemoryLink
from tests.session.waiting import beside, quiet

Json = dict[str, Any]
MODES: Json = {"currentModeId": "plan", "availableModes": [{"id": "plan"}, {"id": "edit"}]}
OPTIONS: list[Json] = [{"id": "effort", "type": "select", "currentValue": "low"}]


def chosen(settings: UserSettings) -> list[Json]:
    return [params for _, params in settings.chosen]


def mode(mode_id: str) -> Json:
    return {"sessionId": "s", "modeId": mode_id}


def option(config_id: str, value: str) -> Json:
    return {"sessionId": "s", "configId": config_id, "value": value}


@pytest.mark.hazard("R9")
async def test_the_last_choice_of_each_kind_is_kept_in_order_also_for_the_next_bridge(
    journal: SessionJournal,
) -> None:
    settings = UserSettings(journal)
    settings.note_result({"modes": MODES, "configOptions": OPTIONS, "_meta": 1})
    settings.note_choice(SET_MODE, mode("edit"), {})
    changed = [{**OPTIONS[0], "currentValue": "high"}]
    settings.note_choice(SET_CONFIG_OPTION, option("effort", "high"), {"configOptions": changed})
    settings.note_choice(SET_CONFIG_OPTION, option("speed", "fast"), None)
    settings.note_choice(SET_MODE, mode("plan"), {})
    for again in (settings, UserSettings(journal)):
        assert chosen(again) == [
            {"configId": "effort", "value": "high"},
            {"configId": "speed", "value": "fast"},
            {"modeId": "plan"},
        ]
        assert again.shown == {"modes": MODES, "configOptions": changed, "_meta": 1}
    settings.forget(SET_MODE, mode("edit"))
    settings.forget("_x/y", mode("edit"))
    settings.forget(SET_CONFIG_OPTION, None)
    assert len(chosen(UserSettings(journal))) == 2


async def test_what_is_no_choice_is_not_kept(journal: SessionJournal) -> None:
    settings = UserSettings(journal)
    for params in (None, [1], {"configId": 7}, {}):
        settings.note_choice(SET_CONFIG_OPTION, params, {})
    settings.note_choice("_x/y", mode("edit"), {})
    assert chosen(settings) == []


async def test_what_the_agent_changes_by_itself_is_shown_and_told_as_news(
    journal: SessionJournal,
) -> None:
    settings = UserSettings(journal)
    settings.note_result({"modes": MODES, "configOptions": None})
    settings.note_update({"sessionUpdate": "current_mode_update", "currentModeId": "edit"})
    settings.note_update({"sessionUpdate": "current_mode_update", "currentModeId": 5})
    settings.note_update({"sessionUpdate": "config_option_update", "configOptions": OPTIONS})
    settings.note_update({"sessionUpdate": "usage_update"})
    assert settings.shown == {
        "modes": {**MODES, "currentModeId": "edit"},
        "configOptions": OPTIONS,
    }
    known = {"modes": MODES, "configOptions": []}
    assert settings.news(known) == [
        {"sessionUpdate": "config_option_update", "configOptions": OPTIONS},
        {"sessionUpdate": "current_mode_update", "currentModeId": "edit"},
    ]
    assert settings.news(settings.shown) == []


async def restored(
    settings: UserSettings, refuse: str | None = None, coming: Iterable[tuple[str, Any]] = ()
) -> list[Json]:
    """What an agent is asked, which refuses one method; raises what `restore` raises."""
    link, asked = MemoryLink(), []
    refused: Refused | None = None

    async def answer() -> None:
        while True:
            for message in link.sent.take():
                asked.append(message)
                no = {"error": {"code": -32603, "message": "no"}}
                said = no if message["method"] == refuse else {"result": {}}
                link.says({"id": message["id"], **said})
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            try:
                await settings.restore(link, coming)
            except Refused as error:
                refused = error  # not raised here: it would come in a group
            tasks.cancel_scope.cancel()
    if refused:
        raise refused
    return [{"method": message["method"], **message["params"]} for message in asked]


@pytest.mark.hazard("R9")
async def test_they_are_set_again_in_their_order_but_for_what_is_about_to_be_set_anyway(
    journal: SessionJournal,
) -> None:
    settings = UserSettings(journal)
    settings.note_choice(SET_CONFIG_OPTION, option("effort", "high"), {})
    settings.note_choice(SET_MODE, mode("plan"), {})
    first = {"method": SET_CONFIG_OPTION, "configId": "effort", "value": "high", "sessionId": "0"}
    second = {"method": SET_MODE, "modeId": "plan", "sessionId": "0"}
    assert await restored(settings) == [first, second]
    assert await restored(settings) == [first, second]
    coming = [(SET_MODE, mode("edit")), (SET_CONFIG_OPTION, None), ("_x/y", {})]
    assert await restored(settings, coming=coming) == [first]


@pytest.mark.hazard("R9")
@pytest.mark.parametrize("method", [SET_MODE, SET_CONFIG_OPTION])
async def test_one_that_the_agent_will_not_set_again_is_named(
    journal: SessionJournal, method: str
) -> None:
    settings = UserSettings(journal)
    settings.note_choice(SET_CONFIG_OPTION, option("effort", "high"), {})
    settings.note_choice(SET_MODE, mode("plan"), {})
    with pytest.raises(Refused, match="'plan'" if method == SET_MODE else "'effort'") as caught:
        await restored(settings, refuse=method)
    assert not caught.value.permanent
    assert len(chosen(settings)) == 2


@pytest.mark.hazard("R9", "P3")
async def test_a_process_that_ends_in_the_middle_loses_no_choice(journal: SessionJournal) -> None:
    settings, link = UserSettings(journal), MemoryLink()
    settings.note_choice(SET_CONFIG_OPTION, option("effort", "high"), {})
    settings.note_choice(SET_MODE, mode("plan"), {})
    caught: list[Refused] = []

    async def restore() -> None:
        try:
            await settings.restore(link, ())
        except Refused as refused:
            caught.append(refused)

    async with beside(restore):
        link.says({"id": 1, "result": {}})
        await quiet()
        link.peer.close(errors.agent_trouble("the agent's process has ended"))
    assert "'plan'" in str(caught[0])
    assert len(chosen(UserSettings(journal))) == 2


@pytest.mark.hazard("R9", "Q8")
async def test_a_restore_that_is_cancelled_gives_its_request_up_and_loses_no_choice(
    journal: SessionJournal,
) -> None:
    settings, link = UserSettings(journal), MemoryLink()
    settings.note_choice(SET_MODE, mode("plan"), {})
    async with beside(settings.restore, link, ()) as restore:
        restore.cancel()
    asked, given_up = link.sent.take()
    assert (asked["method"], given_up["method"]) == (SET_MODE, "$/cancel_request")
    assert given_up["params"] == {"requestId": asked["id"]}
    link.says({"id": asked["id"], "result": {}})  # too late, for nobody
    assert chosen(settings) == [{"modeId": "plan"}]


@pytest.mark.hazard("R9", "T3")
async def test_what_the_agent_answers_when_it_is_set_again_is_shown(
    journal: SessionJournal,
) -> None:
    settings, link = UserSettings(journal), MemoryLink()
    settings.note_result({"modes": MODES, "configOptions": OPTIONS})
    known = settings.shown
    settings.note_choice(SET_CONFIG_OPTION, option("effort", "high"), None)
    changed = [{**OPTIONS[0], "currentValue": "high"}]
    async with beside(settings.restore, link, ()):
        link.says({"id": 1, "result": {"configOptions": changed}})
    assert settings.shown["configOptions"] == changed
    assert settings.news(known) == [
        {"sessionUpdate": "config_option_update", "configOptions": changed}
    ]


@pytest.mark.hazard("R9", "K1")
@pytest.mark.parametrize("kept", ["chosen", "shown"])
async def test_what_cannot_be_kept_holds_for_this_bridge_all_the_same(
    journal: SessionJournal, kept: str
) -> None:
    settings = UserSettings(journal)
    settings.note_result({"modes": MODES})
    settings.note_choice(SET_CONFIG_OPTION, option("effort", "high"), {})
    with failing(journal, f"INSERT ON settings WHEN new.key = '{kept}'"):
        settings.note_choice(SET_MODE, mode("edit"), {})
        settings.forget(SET_CONFIG_OPTION, option("effort", "low"))
        assert chosen(settings) == [{"modeId": "edit"}]
        assert settings.shown["modes"]["currentModeId"] == "edit"
        assert journal.behind
    again = UserSettings(journal)  # it is kept until it can be written
    assert (chosen(again), again.shown) == (chosen(settings), settings.shown)


@pytest.mark.hazard("R3")
async def test_settings_that_cannot_be_read_are_an_error(journal: SessionJournal) -> None:
    with unreadable(journal, "settings"), pytest.raises(JournalError):
        UserSettings(journal)


async def test_a_mode_of_an_agent_that_told_of_no_modes_is_no_news(
    journal: SessionJournal,
) -> None:
    settings = UserSettings(journal)
    settings.note_update({"sessionUpdate": "current_mode_update", "currentModeId": "edit"})
    settings.note_choice(SET_MODE, mode("edit"), {})
    assert (settings.shown, settings.news({})) == ({}, [])
    settings.note_result({"modes": MODES})
    assert settings.news({}) == []
