"""What an agent does not answer: the client gets an error in time, and its cancel helps."""

from typing import Any

import pytest

from acp_bridge.core.runtime import waits
from tests.whole.bridge_support import World, fails, stopped
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("C21")]

#: answers neither settings nor, the first time in a folder, `session/new`.
DEAF = """
CAN = {"loadSession": True}
def session_new(id, params):
    if not os.path.exists(os.path.join(os.path.dirname(__file__), "deaf")):
        return {"sessionId": f"s{time.monotonic_ns()}"}
def session_load(id, params):
    return {}
def session_prompt(id, params):
    if params["prompt"][0]["text"] == "die":
        os._exit(1)
    return {"stopReason": "end_turn"}
def quiet(id, params):
    open(os.path.join(os.path.dirname(__file__), "asked"), "w").close()
session_set_mode = session_set_model = session_set_config_option = _x_slow = quiet
def cancel_request(id, params):
    open(os.path.join(os.path.dirname(__file__), "called-back"), "w").close()
globals()["$_cancel_request"] = cancel_request
"""
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("session/set_mode", {"modeId": "m"}),
    ("session/set_model", {"modelId": "m"}),
    ("session/set_config_option", {"configId": "o", "value": "v"}),
]


@pytest.mark.hazard("C21.6")
@pytest.mark.parametrize(("method", "params"), SETTINGS)
async def test_a_setting_that_the_agent_does_not_take_fails_in_time(
    world: World, method: str, params: dict[str, Any]
) -> None:
    agent = tiny_agent(world.cwd, DEAF)
    async with world.inside(command=agent, request_timeout=1) as client:
        error = await fails(client, method, -32603, sessionId=client.session_id, **params)
        assert f"did not answer {method} within 1 s" in error.message
        assert await client.prompt("hello") == {"stopReason": "end_turn"}
        assert (world.cwd / "called-back").exists()


@pytest.mark.parametrize(("method", "params"), [*SETTINGS, ("_x/slow", {})])
async def test_a_cancel_ends_a_request_that_the_agent_does_not_answer(
    world: World, method: str, params: dict[str, Any]
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, DEAF)) as client:
        about = {"sessionId": client.session_id, **params}
        request = client.send_request(method, about)
        client.notify("$/cancel_request", {"requestId": request})
        assert await stopped(client, request) == -32800
        assert await client.prompt("hello") == {"stopReason": "end_turn"}


@pytest.mark.hazard("C21.6")
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_setting_that_holds_up_a_reload_is_given_up_and_the_prompt_behind_it_runs(
    world: World, cancelled: bool
) -> None:
    timeout = waits.REQUEST if cancelled else 1
    agent = tiny_agent(world.cwd, DEAF)
    async with world.inside(command=agent, request_timeout=timeout) as client:
        await client.prompt("hello")
        await client.answer_to(client.send_prompt("die"))
        about = {"sessionId": client.session_id, "modeId": "m"}
        request = client.send_request("session/set_mode", about)
        prompt = client.send_prompt("after")
        if cancelled:
            await client.logged("agent.started", 2)
            client.notify("$/cancel_request", {"requestId": request})
        assert await stopped(client, request) == (-32800 if cancelled else -32603)
        assert await stopped(client, prompt) == "end_turn"


@pytest.mark.hazard("C21.6")
async def test_a_session_that_is_not_opened_in_time_fails_and_the_next_has_another_process(
    world: World,
) -> None:
    deaf = world.cwd / "deaf"
    deaf.touch()
    agent = tiny_agent(world.cwd, DEAF)
    async with world.inside(command=agent, request_timeout=1, session=False) as client:
        setup = {"cwd": str(world.cwd), "mcpServers": []}
        error = await fails(client, "session/new", -32603, **setup)
        assert "did not answer session/new within 1 s" in error.message
        request = client.send_request("session/new", setup)
        await client.logged("agent.started", 2)
        client.notify("$/cancel_request", {"requestId": request})
        assert await stopped(client, request) == -32800
        deaf.unlink()
        await client.new_session(world.cwd)
        assert await client.prompt("hello") == {"stopReason": "end_turn"}
        assert client.stderr.count(b"agent.started") == 3


async def test_a_mode_that_is_taken_too_late_is_shown_and_holds(world: World) -> None:
    late = DEAF.replace(
        "def session_prompt",
        """
def session_set_mode(id, params):
    time.sleep(1.2)
    return {}
def session_prompt""",
    ).replace("session_set_mode = session_set_model", "session_set_model")
    late = late.replace(
        '"sessionId": f"s{time.monotonic_ns()}"',
        '"sessionId": "s", "modes": {"currentModeId": "n", "availableModes": []}',
    )
    async with world.inside(command=tiny_agent(world.cwd, late), request_timeout=1) as client:
        about = {"sessionId": client.session_id, "modeId": "m"}
        await fails(client, "session/set_mode", -32603, **about)
        await client.until(
            lambda m: m.get("params", {}).get("update", {}).get("currentModeId") == "m"
        )
