"""What the agent announces of mode, model and options is what a later process is given."""

from typing import Any

import pytest

from acp_bridge.journal import SessionJournal
from acp_bridge.protocol import SET_CONFIG_OPTION, SET_MODE, SET_MODEL
from acp_bridge.session.opening import Refused
from acp_bridge.session.requests.user_settings import UserSettings
from tests.session.played_agent import BUSY, PlayedAgent, refusal

Json = dict[str, Any]
pytestmark = pytest.mark.hazard("R13")

MODES: Json = {
    "currentModeId": "plan",
    "availableModes": [{"id": "plan"}, {"id": "edit"}, {"id": "auto"}],
}
MODELS: Json = {"currentModelId": "big", "availableModels": [{"modelId": "big"}, {"modelId": "s"}]}


def option(option_id: str, value: object, *values: str, category: str = "other") -> Json:
    held = {"id": option_id, "category": category, "currentValue": value}
    return {**held, "options": [{"value": each} for each in values]} if values else held


def told(*options: Json) -> Json:
    return {"sessionUpdate": "config_option_update", "configOptions": list(options)}


def mode_told(mode: str) -> Json:
    return {"sessionUpdate": "current_mode_update", "currentModeId": mode}


def choose(settings: UserSettings, method: str, result: Any = None, **params: Any) -> None:
    settings.note_choice(method, {"sessionId": "s", **params}, result or {})


@pytest.fixture
def settings(journal: SessionJournal) -> UserSettings:
    settings = UserSettings(journal)
    modes = option("perm", "plan", "plan", "edit", "auto", category="mode")
    models = option("model", "big", "big", "s", category="model")
    options = [modes, models, option("effort", "low", "low", "high"), option("fast", False)]
    settings.note_result({"modes": MODES, "models": MODELS, "configOptions": options})
    return settings


async def sent_again(
    settings: UserSettings, journal: SessionJournal, result: Json | None = None
) -> list[tuple[str, Json]]:
    """What a process is sent, the same now as after the bridge was started again."""
    for kept in (settings, UserSettings(journal)):
        agent = PlayedAgent()
        agent.agent_session_id = "0"
        for method in (SET_MODE, SET_MODEL, SET_CONFIG_OPTION):
            agent.reply(method, *[{}] * 9)
        await kept.restore(agent, [], result)
        sent = [(m["method"], m["params"]) for m in agent.sent.messages]
    return [(method, {k: v for k, v in p.items() if k != "sessionId"}) for method, p in sent]


# --- the mode -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", ["auto", "plan", None])
async def test_a_mode_that_the_agent_announces_is_set_again_whatever_was_chosen(
    settings: UserSettings, journal: SessionJournal, chosen: str | None
) -> None:
    if chosen:
        choose(settings, SET_MODE, modeId=chosen)
    settings.note_update(mode_told("edit"))
    settings.note_update(mode_told("plan"))
    assert await sent_again(settings, journal) == [(SET_MODE, {"modeId": "plan"})]


async def test_a_choice_after_the_announcement_counts_again(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_MODE, modeId="auto")
    settings.note_update(mode_told("plan"))
    choose(settings, SET_MODE, modeId="edit")
    assert await sent_again(settings, journal) == [(SET_MODE, {"modeId": "edit"})]


async def test_what_a_process_says_while_it_is_given_the_session_is_no_announcement(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_MODE, modeId="plan")
    choose(settings, SET_CONFIG_OPTION, configId="effort", value="high")
    settings.note_update(mode_told("auto"), announced=False)
    settings.note_update(told(option("effort", "low")), announced=False)
    assert settings.shown["modes"]["currentModeId"] == "auto"
    assert await sent_again(settings, journal) == [
        (SET_MODE, {"modeId": "plan"}),
        (SET_CONFIG_OPTION, {"configId": "effort", "value": "high"}),
    ]


async def test_a_mode_that_nobody_can_set_voids_the_choice(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_MODE, modeId="auto")
    settings.note_update(mode_told("internal"))
    assert await sent_again(settings, journal) == []


async def test_a_mode_that_was_chosen_as_an_option_is_replaced_by_the_announced_one(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_CONFIG_OPTION, configId="perm", value="auto")
    settings.note_update(mode_told("plan"))
    last = dict((await sent_again(settings, journal))[-1:])
    assert last == {SET_CONFIG_OPTION: {"configId": "perm", "value": "plan"}}
    assert "auto" not in str(await sent_again(settings, journal))


async def test_an_announced_mode_that_the_process_begins_with_is_not_set_again(
    settings: UserSettings, journal: SessionJournal
) -> None:
    settings.note_update(mode_told("edit"))
    result = {"modes": {**MODES, "currentModeId": "edit"}}
    assert await sent_again(settings, journal, result) == []
    assert await sent_again(settings, journal, {"modes": MODES}) == [(SET_MODE, {"modeId": "edit"})]
    choose(settings, SET_MODE, modeId="edit")  # the user's own choice is always said
    assert await sent_again(settings, journal, result) == [(SET_MODE, {"modeId": "edit"})]


async def test_an_announced_mode_that_the_agent_has_no_method_for_keeps_no_prompt_from_running(
    settings: UserSettings,
) -> None:
    settings.note_update(mode_told("edit"))
    agent = PlayedAgent()
    agent.reply(SET_MODE, refusal(-32601))
    await settings.restore(agent, [])
    agent.reply(SET_MODE, BUSY)
    with pytest.raises(Refused, match="'edit'"):
        await settings.restore(agent, [])


# --- options --------------------------------------------------------------------------------------


async def test_options_that_the_agent_has_changed_are_set_again_and_no_others(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_CONFIG_OPTION, configId="effort", value="high")
    settings.note_update(
        told(
            option("perm", "plan", category="mode"),
            option("effort", "low"),
            option("fast", True),
            option("new", "x"),
        )
    )
    assert await sent_again(settings, journal) == [
        (SET_CONFIG_OPTION, {"configId": "effort", "value": "low"}),
        (SET_CONFIG_OPTION, {"configId": "fast", "type": "boolean", "value": True}),
    ]


async def test_an_option_that_the_agent_no_longer_has_is_not_set(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_CONFIG_OPTION, configId="effort", value="high")
    settings.note_update(told(option("fast", False)))
    assert await sent_again(settings, journal) == []


async def test_what_a_choice_changes_beside_itself_is_announced_with_its_answer(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_CONFIG_OPTION, configId="effort", value="high")
    after = [option("model", "s", "big", "s", category="model"), option("effort", "low")]
    choose(settings, SET_CONFIG_OPTION, {"configOptions": after}, configId="model", value="s")
    assert await sent_again(settings, journal) == [
        (SET_CONFIG_OPTION, {"configId": "model", "value": "s"}),
        (SET_CONFIG_OPTION, {"configId": "effort", "value": "low"}),
    ]


@pytest.mark.parametrize(
    ("method", "params", "announced", "again"),
    [
        (SET_MODE, {"modeId": "auto"}, option("perm", "plan", category="mode"), {"modeId": "plan"}),
        (SET_MODE, {"modeId": "auto"}, option("perm", "odd", category="mode"), None),
        (SET_MODEL, {"modelId": "big"}, option("m", "s", category="model"), {"modelId": "s"}),
    ],
)
async def test_an_option_that_tells_the_mode_or_the_model_counts_for_what_was_set_the_other_way(
    settings: UserSettings,
    journal: SessionJournal,
    method: str,
    params: Json,
    announced: Json,
    again: Json | None,
) -> None:
    choose(settings, method, **params)
    settings.note_update(told(announced))
    sent = [p for m, p in await sent_again(settings, journal) if m == method]
    assert sent == ([again] if again else [])


@pytest.mark.parametrize("odd", [None, 5, [None, 5, {"id": 7}, {"currentValue": 1}], [{"id": "x"}]])
async def test_options_in_an_odd_form_change_nothing_else(
    settings: UserSettings, journal: SessionJournal, odd: Any
) -> None:
    choose(settings, SET_MODE, modeId="edit")
    settings.note_update({"sessionUpdate": "config_option_update", "configOptions": odd})
    settings.note_update({"sessionUpdate": "current_mode_update", "currentModeId": None})
    assert await sent_again(settings, journal) == [(SET_MODE, {"modeId": "edit"})]


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.hazard("R9")
async def test_a_model_that_was_chosen_is_shown_and_set_again(
    settings: UserSettings, journal: SessionJournal
) -> None:
    choose(settings, SET_MODEL, modelId="s")
    assert settings.shown["models"] == {**MODELS, "currentModelId": "s"}
    assert UserSettings(journal).shown["models"]["currentModelId"] == "s"
    assert await sent_again(settings, journal) == [(SET_MODEL, {"modelId": "s"})]


async def test_choices_that_an_older_bridge_has_kept_are_read(journal: SessionJournal) -> None:
    journal.set("chosen", [[SET_MODE, {"modeId": "edit"}]])
    assert UserSettings(journal).chosen == [(SET_MODE, {"modeId": "edit"})]
