"""What the agent announces of mode, model and options is what a later process is given."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import SET_CONFIG_OPTION, SET_MODE, SET_MODEL
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.bridge.settled import (
    MODES,
    OPTIONS,
    mode_told,
    next_bridge,
    option,
    options_told,
    set_in,
    settled,
)
from tests.core.sessions.agent import Json, Process

pytestmark = pytest.mark.hazard("R13")


# --- the mode -------------------------------------------------------------------------------------


@pytest.mark.hazard("R13.1", "R13.2")
@pytest.mark.parametrize("chosen", ["auto", "plan", None])
async def test_a_mode_that_the_agent_announces_is_set_again_whatever_was_chosen(
    tmp_path: Path, chosen: str | None
) -> None:
    async with settled(tmp_path) as here:
        if chosen:
            await here.chooses(SET_MODE, modeId=chosen)
        here.tells(mode_told("edit"))
        here.tells(mode_told("plan"))
        assert await here.sent_again() == [(SET_MODE, {"modeId": "plan"})]


async def test_what_was_announced_is_told_from_a_choice_by_the_next_bridge_too(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path) as here:
        here.tells(mode_told("edit"))
        await here.chooses(SET_MODEL, modelId="s")
    here.agent.script["session/resume"] = {"modes": {**MODES, "currentModeId": "edit"}}
    async with next_bridge(tmp_path, here) as again:
        # The process begins with what was announced.
        assert set_in(again.process) == [(SET_MODEL, {"modelId": "s"})]
        both = [(SET_MODE, {"modeId": "edit"}), (SET_MODEL, {"modelId": "s"})]
        assert await again.sent_again() == both


@pytest.mark.hazard("R13.2")
async def test_a_choice_after_the_announcement_counts_again(tmp_path: Path) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_MODE, modeId="auto")
        here.tells(mode_told("plan"))
        await here.chooses(SET_MODE, modeId="edit")
        assert await here.sent_again() == [(SET_MODE, {"modeId": "edit"})]


@pytest.mark.hazard("R13.3")
async def test_what_a_process_says_while_it_is_given_the_session_is_no_announcement(
    tmp_path: Path,
) -> None:
    async def begins(process: Process, params: Json) -> Json:
        for told in (mode_told("auto"), options_told(option("effort", "low"))):
            process.shows(params["sessionId"], told)
        return {}

    async with settled(tmp_path) as here:
        await here.chooses(SET_MODE, modeId="plan")
        await here.chooses(SET_CONFIG_OPTION, configId="effort", value="high")
        here.agent.script["session/resume"] = begins
        for _ in range(2):
            here.process.dies()
            await here.prompt()
            assert set_in(here.process) == [
                (SET_MODE, {"modeId": "plan"}),
                (SET_CONFIG_OPTION, {"configId": "effort", "value": "high"}),
            ]


@pytest.mark.hazard("R13.2")
async def test_a_mode_that_nobody_can_set_voids_the_choice(tmp_path: Path) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_MODE, modeId="auto")
        here.tells(mode_told("internal"))
        assert await here.sent_again() == []


async def test_a_mode_that_was_chosen_as_an_option_is_replaced_by_the_announced_one(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_CONFIG_OPTION, configId="perm", value="auto")
        here.tells(mode_told("plan"))
        sent = await here.sent_again()
        assert sent[-1] == (SET_CONFIG_OPTION, {"configId": "perm", "value": "plan"})
        assert "auto" not in str(sent)


async def test_an_announced_mode_that_the_process_begins_with_is_not_set_again(
    tmp_path: Path,
) -> None:
    begins_with = {"modes": {**MODES, "currentModeId": "edit"}}
    async with settled(tmp_path) as here:
        here.tells(mode_told("edit"))
        assert await here.sent_again(begins_with) == []
        assert await here.sent_again({"modes": MODES}) == [(SET_MODE, {"modeId": "edit"})]
        await here.chooses(SET_MODE, modeId="edit")  # the user's own choice is always said
        assert await here.sent_again(begins_with) == [(SET_MODE, {"modeId": "edit"})]


async def test_an_announced_mode_that_the_agent_has_no_method_for_keeps_no_prompt_from_running(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path) as here:
        here.tells(mode_told("edit"))
        here.agent.script[SET_MODE] = RpcError(-32601, "no such method")
        assert await here.sent_again() == [(SET_MODE, {"modeId": "edit"})]
        here.agent.script[SET_MODE] = RpcError(-32603, "busy")
        here.process.dies()
        error = await here.it.editor.refusal(here.it.editor.prompt(here.id, "go"))
        assert "the agent would not set 'edit' again: busy" in error.message


# --- options --------------------------------------------------------------------------------------


async def test_options_that_the_agent_has_changed_are_set_again_and_no_others(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_CONFIG_OPTION, configId="effort", value="high")
        here.tells(
            options_told(
                option("perm", "plan", category="mode"),
                option("effort", "low"),
                option("fast", True),
                option("new", "x"),
            )
        )
        assert await here.sent_again() == [
            (SET_CONFIG_OPTION, {"configId": "effort", "value": "low"}),
            (SET_CONFIG_OPTION, {"configId": "fast", "type": "boolean", "value": True}),
        ]


async def test_an_option_that_the_agent_no_longer_has_is_not_set(tmp_path: Path) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_CONFIG_OPTION, configId="effort", value="high")
        here.tells(options_told(option("fast", False)))
        assert await here.sent_again() == []


async def test_what_a_choice_changes_beside_itself_is_announced_with_its_answer(
    tmp_path: Path,
) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_CONFIG_OPTION, configId="effort", value="high")
        after = [option("model", "s", "big", "s", category="model"), option("effort", "low")]
        answer = {"configOptions": after}
        await here.chooses(SET_CONFIG_OPTION, answer, configId="model", value="s")
        assert await here.sent_again() == [
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
    tmp_path: Path, method: str, params: Json, announced: Json, again: Json | None
) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(method, **params)
        here.tells(options_told(announced))
        sent = [each for name, each in await here.sent_again() if name == method]
        assert sent == ([again] if again else [])


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_mode_is_set_as_the_option_that_was_chosen_if_that_one_can_take_it(
    tmp_path: Path, grouped: bool
) -> None:
    values = [{"value": "plan"}, {"value": "edit"}]
    perm = {**OPTIONS[0], "options": [{"options": values}] if grouped else values}
    async with settled(tmp_path, {"configOptions": [perm]}) as here:
        await here.chooses(SET_CONFIG_OPTION, configId="perm", value="plan")
        here.tells(mode_told("edit"))
        edit = (SET_CONFIG_OPTION, {"configId": "perm", "value": "edit"})
        assert await here.sent_again() == [edit]
        here.tells(mode_told("auto"))
        assert await here.sent_again() == []


@pytest.mark.parametrize("odd", [None, 5, [None, 5, {"id": 7}, {"currentValue": 1}], [{"id": "x"}]])
async def test_options_in_an_odd_form_change_nothing_else(tmp_path: Path, odd: Any) -> None:
    async with settled(tmp_path) as here:
        await here.chooses(SET_MODE, modeId="edit")
        here.tells({"sessionUpdate": "config_option_update", "configOptions": odd})
        here.tells(mode_told(None))
        assert await here.sent_again() == [(SET_MODE, {"modeId": "edit"})]
