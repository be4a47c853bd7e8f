"""Settings that a client does not know never reach it, by whatever way."""

import json

import pytest

from tests.support.recording import Message
from tests.whole.bridge_support import World, kill_agent, refused
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

AGENT = """
CAN = {"loadSession": True}
options = [
    {"id": "brave", "name": "Brave", "type": "boolean", "currentValue": True},
    {"id": "effort", "name": "Effort", "type": "select", "currentValue": "low", "options": []},
]

def session_new(id, params):
    return {"sessionId": "s", "configOptions": options}

def session_load(id, params):
    return {"configOptions": options}

def session_set_config_option(id, params):
    options[1] = {**options[1], "currentValue": params["value"]}
    update("s", sessionUpdate="config_option_update", configOptions=options)
    return {"configOptions": options}

def session_prompt(id, params):
    if params["prompt"][0]["text"] == "die":
        os._exit(1)
    return {"stopReason": "end_turn"}
"""
#: a client that knows boolean options.
BOOLEANS: Message = {"session": {"configOptions": {"boolean": {}}}}
OPTION: Message = {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": True}
SELECT: Message = {
    "id": "effort",
    "name": "Effort",
    "type": "select",
    "currentValue": "low",
    "options": [{"value": "low", "name": "Low"}],
}


@pytest.mark.parametrize("knows", [False, True])
async def test_boolean_options_are_shown_only_to_a_client_that_knows_them(
    world: World, knows: bool
) -> None:
    update = {"sessionUpdate": "config_option_update", "configOptions": [OPTION, SELECT]}
    async with world.inside(capabilities=BOOLEANS if knows else {}) as client:
        assert await client.prompt(f"update {json.dumps(update)}") == {"stopReason": "end_turn"}
        options = [u["configOptions"] for u in client.updates() if "configOptions" in u]
        assert options == ([[OPTION, SELECT]] if knows else [[SELECT]])
        await client.load_session(client.session_id, world.cwd)
        again = [u["configOptions"] for u in client.updates() if "configOptions" in u]
        assert again == options * 2


async def test_no_boolean_option_comes_of_a_restart(world: World) -> None:
    async with world.inside(command=tiny_agent(world.cwd, AGENT), capabilities={}) as client:
        effort = {"sessionId": client.session_id, "configId": "effort", "value": "high"}
        await client.request("session/set_config_option", effort)
        await client.prompt("hello")
        await refused(client, "die")
        await client.prompt("and again")
        said = [record.raw for record in client.recording if record.direction == "in"]
        assert [raw for raw in said if b"brave" in raw] == []
        assert [raw for raw in said if b'"high"' in raw]


@pytest.mark.parametrize("knows", [True, False])
async def test_a_boolean_option_is_loaded_only_by_a_client_that_knows_it(
    world: World, knows: bool
) -> None:
    agent = tiny_agent(world.cwd, AGENT)
    async with world.inside(command=agent, capabilities=BOOLEANS) as client:
        effort = {"sessionId": client.session_id, "configId": "effort", "value": "high"}
        result = await client.request("session/set_config_option", effort)
        assert "brave" in str(result)
        await client.prompt("hello")
        session_id = client.session_id
    capabilities = BOOLEANS if knows else {}
    async with world.inside(command=agent, capabilities=capabilities, session=False) as client:
        await client.load_session(session_id, world.cwd)
        await client.prompt("and again")
        said = [record.raw for record in client.recording if record.direction == "in"]
        assert any(b"brave" in raw for raw in said) == knows
        assert [raw for raw in said if b'"high"' in raw]


@pytest.mark.hazard("R13.1", "R13.2")
async def test_a_mode_that_the_agent_announced_is_in_force_after_its_death_not_the_one_chosen(
    world: World,
) -> None:
    async with world.inside("permissive-default") as client:
        chosen = {"sessionId": client.session_id, "modeId": "edit"}
        await client.request("session/set_mode", chosen)
        update = {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
        await client.prompt(f"update {json.dumps(update)}")
        await kill_agent(world, client)
        await client.prompt("say one")
        session_id = client.session_id
    async with world.inside("permissive-default", session=False) as client:
        await client.load_session(session_id, world.cwd)
        await client.prompt("say two")
    assert [turn["mode"] for turn in world.log.turns()[1:]] == ["plan", "plan"]


MODELS = """
CAN = {"loadSession": True}
models = {"currentModelId": "big", "availableModels": [{"modelId": "big"}, {"modelId": "small"}]}
def session_new(id, params):
    return {"sessionId": "s", "models": models, "_meta": {"their": {"plan": "free"}}}
def session_load(id, params):
    update("s", **text("what was said before"))
    return {"models": models}
def session_set_model(id, params):
    models["currentModelId"] = params["modelId"]
    return {}
def session_prompt(id, params):
    update("s", **text(models["currentModelId"]))
    if params["prompt"][0]["text"] == "die":
        os._exit(1)
    return {"stopReason": "end_turn"}
"""


@pytest.mark.hazard("R9")
async def test_the_model_that_the_user_chose_is_the_model_after_a_death_and_shown_by_a_load(
    world: World,
) -> None:
    agent = tiny_agent(world.cwd, MODELS)
    async with world.inside(command=agent) as client:
        small = {"sessionId": client.session_id, "modelId": "small"}
        assert await client.request("session/set_model", small) == {}
        await refused(client, "die")
        await client.prompt("hello")
        session_id = client.session_id
    async with world.inside(command=agent, session=False) as client:
        result = await client.load_session(session_id, world.cwd)
        assert result["models"]["currentModelId"] == "small"
        assert result["_meta"]["their"] == {"plan": "free"}
        await client.prompt("and again")
        texts = [text for text in client.texts() if "the agent ended during the turn" not in text]
        assert "".join(texts).replace("small", "") == ""
