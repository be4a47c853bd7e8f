"""An agent's process is given a session: new, loaded, resumed, opened again after a restart."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from acp_bridge.protocol import AUTHENTICATE, SESSION_LOAD, SESSION_NEW, SESSION_RESUME
from acp_bridge.session.opening import Known, Opening, Workspace
from acp_bridge.wire.jsonrpc import RpcError
from tests.agents.scripted_process import Listener
from tests.session.memory import Json
from tests.session.played_agent import (
    AUTH_REQUIRED,
    BUSY,
    UNKNOWN,
    PlayedAgent,
    refusal,
)

WORKSPACE = Workspace("/w", ("/more",), ({"name": "tool", "command": "x"},), {"_meta": {"k": 1}})
GIVEN: Json = {
    "_meta": {"k": 1},
    "cwd": "/w",
    "mcpServers": [{"name": "tool", "command": "x"}],
    "additionalDirectories": ["/more"],
}
CREDENTIALS: Json = {"methodId": "key", "key": "abc"}

Way = Callable[[Opening], Coroutine[Any, Any, Json]]


def opening(agent: PlayedAgent, credentials: Json | None = None, origin: object = None) -> Opening:
    return Opening(agent, WORKSPACE, credentials, origin)


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
            tasks.start_soon(opening(agent, CREDENTIALS, request).new)
            first = await agent.asked(SESSION_NEW)
            assert dict(agent.on_behalf) == {first["id"]: request}
            agent.answer(first, AUTH_REQUIRED)
            login = await agent.asked(AUTHENTICATE)
            assert dict(agent.on_behalf) == {}  # nobody asked for that one
            agent.answer(login, {})
            again = await agent.asked(SESSION_NEW)
            assert dict(agent.on_behalf) == {again["id"]: request}
            agent.answer(again, {"sessionId": "s"})
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
async def test_what_the_client_gave_to_authenticate_is_repeated_and_the_session_asked_for_again(
    way: Way, method: str
) -> None:
    agent = able()
    agent.reply(method, AUTH_REQUIRED, {"sessionId": "s"})
    agent.reply(AUTHENTICATE, {})
    assert await way(opening(agent, CREDENTIALS)) == {"sessionId": "s"}
    assert agent.heard == [method, AUTHENTICATE, method]
    assert agent.params(AUTHENTICATE) == [CREDENTIALS]
    first, second = agent.params(method)
    assert first == second
    assert agent.authenticated


@every_way
async def test_an_agent_that_was_given_the_credentials_is_not_given_them_again(
    way: Way, method: str
) -> None:
    agent = able()
    agent.reply(AUTHENTICATE, {})
    agent.reply(method, AUTH_REQUIRED, AUTH_REQUIRED, AUTH_REQUIRED)
    for _ in range(2):
        with pytest.raises(RpcError) as raised:
            await way(opening(agent, CREDENTIALS))
        assert raised.value == AUTH_REQUIRED
    assert agent.heard == [method, AUTHENTICATE, method, method]


@every_way
async def test_without_credentials_the_agents_own_refusal_is_told(way: Way, method: str) -> None:
    agent = able()
    agent.reply(method, AUTH_REQUIRED)
    with pytest.raises(RpcError) as raised:
        await way(opening(agent))
    assert raised.value == AUTH_REQUIRED
    assert agent.heard == [method]
    assert not agent.authenticated


@every_way
async def test_credentials_that_the_agent_refuses_leave_its_first_refusal_standing(
    way: Way, method: str
) -> None:
    agent = able()
    agent.reply(method, AUTH_REQUIRED)
    agent.reply(AUTHENTICATE, refusal(-32602, "a wrong key"))
    with pytest.raises(RpcError) as raised:
        await way(opening(agent, CREDENTIALS))
    assert raised.value == AUTH_REQUIRED
    assert agent.heard == [method, AUTHENTICATE]


@pytest.mark.parametrize("refused", [BUSY, UNKNOWN])
async def test_no_other_refusal_is_answered_with_credentials(refused: RpcError) -> None:
    agent = able()
    agent.reply(SESSION_NEW, refused)
    with pytest.raises(RpcError) as raised:
        await new(opening(agent, CREDENTIALS))
    assert raised.value == refused
    assert agent.heard == [SESSION_NEW]


async def test_a_refusal_that_comes_after_the_credentials_were_taken_is_told_as_it_is() -> None:
    agent = able()
    agent.reply(SESSION_NEW, AUTH_REQUIRED, BUSY)
    agent.reply(AUTHENTICATE, {})
    with pytest.raises(RpcError) as raised:
        await new(opening(agent, CREDENTIALS))
    assert raised.value == BUSY


async def test_an_agent_that_dies_while_it_is_authenticated_leaves_its_refusal_standing() -> None:
    agent = able()
    agent.reply(SESSION_NEW, AUTH_REQUIRED)
    errors = []

    async def tried() -> None:
        with pytest.raises(RpcError) as raised:
            await new(opening(agent, CREDENTIALS))
        errors.append(raised.value)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tried)
            await agent.asked(AUTHENTICATE)
            agent.dies()
    assert errors == [AUTH_REQUIRED]
    assert agent.heard == [SESSION_NEW, AUTHENTICATE]


# --- cancelled in the middle ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "refused", "at"),
    [
        (new, {}, SESSION_NEW),
        (load, {}, SESSION_LOAD),
        (new, {SESSION_NEW: AUTH_REQUIRED}, AUTHENTICATE),
        (resume_again, {}, SESSION_RESUME),
        (resume_again, {SESSION_RESUME: BUSY}, SESSION_LOAD),
        (resume_again, {SESSION_RESUME: AUTH_REQUIRED}, AUTHENTICATE),
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
            tasks.start_soon(way, opening(agent, CREDENTIALS))
            asked = await agent.asked(at)
            heard = [*agent.heard]
            tasks.cancel_scope.cancel()
    assert agent.heard == [*heard, "$/cancel_request"]
    assert agent.params("$/cancel_request") == [{"requestId": asked["id"]}]
    known = agent.agent_session_id
    agent.answer(asked, {"sessionId": "late"})  # nobody waits for it
    assert agent.agent_session_id == known != "late"


async def test_a_login_that_was_cancelled_counts_as_none_and_is_repeated_by_the_next_opening() -> (
    None
):
    agent = able()
    agent.reply(SESSION_NEW, AUTH_REQUIRED, AUTH_REQUIRED, {"sessionId": "s"})
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opening(agent, CREDENTIALS).new)
            await agent.asked(AUTHENTICATE)
            tasks.cancel_scope.cancel()
    agent.reply(AUTHENTICATE, {})
    assert await new(opening(agent, CREDENTIALS)) == {"sessionId": "s"}
    assert len(agent.params(AUTHENTICATE)) == 2
