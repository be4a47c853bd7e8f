"""An agent's process is given a session: new, loaded, resumed, opened again after a restart."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from acp_bridge.protocol import SESSION_LOAD, SESSION_NEW, SESSION_RESUME
from acp_bridge.session.opening import Known, Opening, Workspace
from acp_bridge.wire.jsonrpc import RpcError
from tests.agents.scripted_process import Listener
from tests.session.memory import Json
from tests.session.played_agent import (
    AUTH_REQUIRED,
    BUSY,
    PlayedAgent,
)

WORKSPACE = Workspace("/w", ("/more",), ({"name": "tool", "command": "x"},), {"_meta": {"k": 1}})
GIVEN: Json = {
    "_meta": {"k": 1},
    "cwd": "/w",
    "mcpServers": [{"name": "tool", "command": "x"}],
    "additionalDirectories": ["/more"],
}

Way = Callable[[Opening], Coroutine[Any, Any, Json]]


def opening(agent: PlayedAgent, origin: object = None) -> Opening:
    return Opening(agent, WORKSPACE, origin)


async def new(tried: Opening) -> Json:
    with anyio.fail_after(5):
        return await tried.new()


async def load(tried: Opening) -> Json:
    with anyio.fail_after(5):
        return await tried.load("old")


async def resume_again(tried: Opening) -> Json:
    with anyio.fail_after(5):
        return await tried.reopen(Known("old", True), lambda text: None)


# --- the workspace --------------------------------------------------------------------------------


@pytest.mark.hazard("R5", "T3")
def test_the_agent_is_given_what_the_client_gave_and_the_session_under_its_own_id() -> None:
    assert WORKSPACE.params() == GIVEN
    assert WORKSPACE.params("old") == {**GIVEN, "sessionId": "old"}


@pytest.mark.parametrize(("given", "told"), [(None, {}), ((), {"additionalDirectories": []})])
def test_additional_roots_that_were_left_out_stay_left_out_and_mean_the_same_as_none(
    given: tuple[str, ...] | None, told: Json
) -> None:
    workspace = Workspace("/w", given)
    assert workspace.params() == {"cwd": "/w", "mcpServers": [], **told}
    assert workspace.roots == ()


# --- new ------------------------------------------------------------------------------------------


async def test_a_new_session_is_known_by_the_id_that_the_agent_gave_it() -> None:
    agent = PlayedAgent()
    result = {"sessionId": "s", "modes": {"currentModeId": "m"}, "_x": [None]}
    agent.reply(SESSION_NEW, result)
    tried = opening(agent)
    assert await new(tried) == result
    assert agent.agent_session_id == "s"
    assert agent.params(SESSION_NEW) == [GIVEN]
    assert not tried.replays


@pytest.mark.parametrize("result", [{}, {"sessionId": 5}, {"sessionId": None}, None, [], "s"])
async def test_an_answer_without_a_session_id_opens_no_session(result: Any) -> None:
    agent = PlayedAgent()
    agent.reply(SESSION_NEW, result)
    with pytest.raises(RpcError, match="the agent gave no session id"):
        await new(opening(agent))
    assert agent.agent_session_id is None


async def test_a_request_of_the_client_is_named_as_the_cause_while_the_agent_has_it() -> None:
    agent, request = PlayedAgent(), object()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opening(agent, request).new)
            asked = await agent.asked(SESSION_NEW)
            assert dict(agent.on_behalf) == {asked["id"]: request}
            agent.answer(asked, {"sessionId": "s"})
    assert dict(agent.on_behalf) == {}


# --- load -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "way", "replays"),
    [
        (("load",), SESSION_LOAD, True),
        (("resume", "load"), SESSION_LOAD, True),
        (("resume",), SESSION_RESUME, False),
        ((), SESSION_LOAD, True),  # so that the agent's own refusal is told
    ],
)
async def test_a_session_is_loaded_with_its_transcript_if_the_agent_can(
    capabilities: tuple[str, ...], way: str, replays: bool
) -> None:
    agent = PlayedAgent(*capabilities)
    result = {"configOptions": [], "_x": 1}
    agent.reply(way, result)
    tried = opening(agent)
    assert await load(tried) == result
    assert agent.heard == [way]
    assert agent.params(way) == [{**GIVEN, "sessionId": "old"}]
    assert tried.replays is replays


@pytest.mark.hazard("R3")
async def test_a_load_that_is_refused_is_not_tried_in_another_way() -> None:
    agent = PlayedAgent("load", "resume")
    agent.reply(SESSION_LOAD, BUSY)
    tried = opening(agent)
    with pytest.raises(RpcError) as raised:
        await load(tried)
    assert raised.value == BUSY
    assert agent.heard == [SESSION_LOAD]
    assert not tried.replays


@pytest.mark.parametrize("result", [None, [], "odd", 5])
async def test_an_answer_that_is_no_object_says_nothing(result: Any) -> None:
    agent = PlayedAgent("load")
    agent.reply(SESSION_LOAD, result)
    assert await load(opening(agent)) == {}


async def test_what_an_agent_replays_during_a_load_is_of_its_session() -> None:
    owner = Listener()
    agent = PlayedAgent("load", owner=owner)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opening(agent).load, "old")
            asked = await agent.asked(SESSION_LOAD)
            agent.update(sessionUpdate="plan")
            agent.answer(asked, {})
    assert agent.agent_session_id == "old"
    assert owner.told == [("update", {"sessionUpdate": "plan"})]


# --- authentication -------------------------------------------------------------------------------


WAYS: list[tuple[Way, str]] = [
    (new, SESSION_NEW),
    (load, SESSION_LOAD),
    (resume_again, SESSION_RESUME),
]
every_way = pytest.mark.parametrize(("way", "method"), WAYS)


def able() -> PlayedAgent:
    return PlayedAgent("load", "resume")


@every_way
async def test_an_agent_that_wants_a_login_is_asked_once_and_its_own_words_are_told(
    way: Way, method: str
) -> None:
    agent = able()
    agent.reply(method, AUTH_REQUIRED)
    with pytest.raises(RpcError) as raised:
        await way(opening(agent))
    assert raised.value == AUTH_REQUIRED
    assert agent.heard == [method]
    assert agent.requests.login_wanted is not None


# --- cancelled in the middle ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "refused", "at"),
    [
        (new, {}, SESSION_NEW),
        (load, {}, SESSION_LOAD),
        (resume_again, {}, SESSION_RESUME),
        (resume_again, {SESSION_RESUME: BUSY}, SESSION_LOAD),
    ],
)
async def test_an_opening_that_is_cancelled_calls_its_request_back_and_asks_no_more(
    way: Way, refused: dict[str, RpcError], at: str
) -> None:
    agent = able()
    for method, error in refused.items():
        agent.reply(method, error)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(way, opening(agent))
            asked = await agent.asked(at)
            heard = [*agent.heard]
            tasks.cancel_scope.cancel()
    assert agent.heard == [*heard, "$/cancel_request"]
    assert agent.params("$/cancel_request") == [{"requestId": asked["id"]}]
    known = agent.agent_session_id
    agent.answer(asked, {"sessionId": "late"})  # nobody waits for it
    assert agent.agent_session_id == known != "late"
