"""A session is opened again in a later process: resumed, else loaded, else made anew and said."""

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from acp_bridge.protocol import SESSION_LOAD, SESSION_NEW, SESSION_RESUME
from acp_bridge.session.opening import Known, Opening, Refused, Workspace
from acp_bridge.updates import notices
from acp_bridge.wire.jsonrpc import RpcError
from tests.agents.scripted_process import Listener
from tests.session.memory import Json
from tests.session.played_agent import AUTH_REQUIRED, BUSY, UNKNOWN, PlayedAgent

WORKSPACE = Workspace("/w")
GIVEN: Json = {"cwd": "/w", "mcpServers": []}
R, L, N = SESSION_RESUME, SESSION_LOAD, SESSION_NEW


@dataclass
class Reopened:
    """The way in which a session was opened again."""

    result: Json | None = None
    error: Exception | None = None
    notices: list[str] = field(default_factory=list)
    replays: bool = False


async def reopen(
    agent: PlayedAgent,
    agent_session_id: str | None = "old",
    *,
    remembered: bool = True,
) -> Reopened:
    done, tried = Reopened(), Opening(agent, WORKSPACE)
    try:
        with anyio.fail_after(5):
            known = Known(agent_session_id, remembered)
            done.result = await tried.reopen(known, done.notices.append)
    except (Refused, RpcError) as exc:
        done.error = exc
    done.replays = tried.replays
    return done


@pytest.mark.parametrize(
    ("capabilities", "refused", "heard", "replays"),
    [
        (("resume", "load"), {}, [R], False),
        (("resume",), {}, [R], False),
        (("load",), {}, [L], True),
        (("resume", "load"), {R: BUSY}, [R, L], True),
        (("resume", "load"), {R: UNKNOWN}, [R, L], True),
    ],
)
@pytest.mark.parametrize("remembered", [True, False])
async def test_a_session_is_resumed_again_or_else_loaded(
    capabilities: tuple[str, ...],
    refused: dict[str, RpcError],
    heard: list[str],
    replays: bool,
    remembered: bool,
) -> None:
    agent = PlayedAgent(*capabilities)
    for method in (R, L):
        agent.reply(method, refused.get(method, {"modes": {}}))
    done = await reopen(agent, remembered=remembered)
    assert (done.result, done.error, done.notices) == ({"modes": {}}, None, [])
    assert agent.heard == heard
    assert agent.params(heard[-1]) == [{**GIVEN, "sessionId": "old"}]
    assert agent.agent_session_id == "old"
    assert done.replays is replays


@pytest.mark.hazard("R3")
@pytest.mark.parametrize(
    ("capabilities", "refused", "heard", "permanent"),
    [
        (("resume", "load"), {R: UNKNOWN, L: BUSY}, [R, L], False),
        (("resume", "load"), {R: BUSY, L: UNKNOWN}, [R, L], True),
        (("resume",), {R: UNKNOWN}, [R], True),
        (("resume",), {R: BUSY}, [R], False),
        (("load",), {L: UNKNOWN}, [L], True),
        (("load",), {L: BUSY}, [L], False),
    ],
)
async def test_a_session_that_the_agent_should_remember_is_never_made_anew_instead(
    capabilities: tuple[str, ...],
    refused: dict[str, RpcError],
    heard: list[str],
    permanent: bool,
) -> None:
    agent = PlayedAgent(*capabilities)
    for method, error in refused.items():
        agent.reply(method, error)
    done = await reopen(agent)
    assert isinstance(done.error, Refused)
    assert done.error.permanent is permanent
    reason = refused[heard[-1]].message
    assert str(done.error) == f"the agent would not load the session: {reason}"
    assert (agent.heard, done.notices, done.replays) == (heard, [], False)


@pytest.mark.hazard("R10")
@pytest.mark.parametrize(
    ("capabilities", "heard"),
    [(("resume", "load"), [R, L, N]), (("resume",), [R, N]), (("load",), [L, N])],
)
async def test_a_session_of_which_no_turn_ended_goes_on_as_a_new_one_and_the_user_is_told(
    capabilities: tuple[str, ...], heard: list[str]
) -> None:
    agent = PlayedAgent(*capabilities)
    agent.reply(R, UNKNOWN)
    agent.reply(L, UNKNOWN)
    agent.reply(N, {"sessionId": "young"})
    done = await reopen(agent, remembered=False)
    assert (done.result, done.error) == ({"sessionId": "young"}, None)
    assert done.notices == [notices.FORGOT_YOUNG]
    assert (agent.heard, agent.agent_session_id, done.replays) == (heard, "young", False)
    assert agent.params(N) == [GIVEN]


@pytest.mark.hazard("C9")
@pytest.mark.parametrize("remembered", [True, False])
async def test_an_agent_that_can_neither_resume_nor_load_starts_anew_and_the_user_is_told(
    remembered: bool,
) -> None:
    agent = PlayedAgent()
    agent.reply(N, {"sessionId": "fresh"})
    done = await reopen(agent, remembered=remembered)
    assert (done.result, done.error) == ({"sessionId": "fresh"}, None)
    assert done.notices == [notices.MEMORY_LOST]
    assert agent.heard == [N]


@pytest.mark.parametrize("capabilities", [(), ("resume", "load")])
async def test_a_session_that_the_agent_never_had_is_made_without_a_word(
    capabilities: tuple[str, ...],
) -> None:
    agent = PlayedAgent(*capabilities)
    agent.reply(N, {"sessionId": "first"})
    done = await reopen(agent, None, remembered=False)
    assert (done.result, done.error, done.notices) == ({"sessionId": "first"}, None, [])
    assert agent.heard == [N]


@pytest.mark.parametrize("result", [BUSY, UNKNOWN, {}])
async def test_a_new_session_that_the_agent_does_not_open_either_may_be_tried_again(
    result: Any,
) -> None:
    agent = PlayedAgent("resume")
    agent.reply(R, UNKNOWN)
    agent.reply(N, result)
    done = await reopen(agent, remembered=False)
    assert isinstance(done.error, Refused)
    assert not done.error.permanent
    assert str(done.error).startswith("the agent would not open a session: ")
    assert done.notices == []


@pytest.mark.parametrize("needing", [R, L, N])
async def test_an_agent_that_wants_a_login_is_asked_for_the_session_in_no_other_way(
    needing: str,
) -> None:
    agent = PlayedAgent("resume", "load")
    for method in (R, L, N):
        agent.reply(method, AUTH_REQUIRED if method == needing else BUSY)
    done = await reopen(agent, remembered=False)
    assert done.error == AUTH_REQUIRED
    assert agent.heard == [R, L, N][: [R, L, N].index(needing) + 1]
    assert done.notices == []


@pytest.mark.parametrize(
    ("remembered", "why"),
    [
        (True, "the agent would not load the session: the agent's process has ended"),
        (False, "the agent would not open a session: the agent's process has ended"),
    ],
)
async def test_an_agent_that_dies_while_it_is_given_the_session_has_refused_it(
    remembered: bool, why: str
) -> None:
    agent = PlayedAgent("resume", "load")
    done: list[Reopened] = []

    async def tried() -> None:
        done.append(await reopen(agent, remembered=remembered))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tried)
            await agent.asked(R)
            agent.dies()
    (only,) = done
    assert isinstance(only.error, Refused)
    assert not only.error.permanent
    assert str(only.error) == f"{why} (signal SIGKILL)"
    assert (agent.heard, only.notices) == ([R], [])


@pytest.mark.hazard("P8")
async def test_what_an_agent_says_of_its_new_session_waits_until_that_is_known() -> None:
    owner = Listener()
    agent = PlayedAgent("resume", owner=owner)
    done: list[Reopened] = []

    async def tried() -> None:
        done.append(await reopen(agent, remembered=False))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tried)
            asked = await agent.asked(R)
            assert agent.agent_session_id == "old"
            agent.answer(asked, UNKNOWN)
            asked = await agent.asked(N)
            for session_id in ("old", "young", "another"):
                update = {"sessionUpdate": "plan", "of": session_id}
                params = {"sessionId": session_id, "update": update}
                agent.says({"method": "session/update", "params": params})
            agent.answer(asked, {"sessionId": "young"})
    assert owner.told == []
    agent.adopt(owner)
    assert owner.told == [("update", {"sessionUpdate": "plan", "of": "young"})]
