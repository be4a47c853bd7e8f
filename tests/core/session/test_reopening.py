"""A session is opened again in a later process: resumed, else loaded, else made anew and said."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import SESSION_LOAD, SESSION_NEW, SESSION_PROMPT, SESSION_RESUME
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.living import CANCELLED, DONE, Living, Prepare, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import AUTH_REQUIRED, BUSY, UNKNOWN, PlayedAgent
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")

R, L, N = SESSION_RESUME, SESSION_LOAD, SESSION_NEW
GIVEN: Json = {"cwd": "/w", "mcpServers": []}
NOT_READY = "the agent could not be made ready: "
FORGOTTEN: dict[str, Any] = {R: UNKNOWN, L: UNKNOWN}


def able(capabilities: tuple[str, ...], answers: dict[str, Any]) -> Prepare:
    """Let an agent be able to do this, and answer so when it is given the session."""

    def prepare(agent: PlayedAgent) -> None:
        agent.connection.initialized = PlayedAgent(*capabilities).initialized
        for method, answer in answers.items():
            agent.reply(method, answer)

    return prepare


@asynccontextmanager
async def dead(
    folder: Path,
    capabilities: tuple[str, ...],
    answers: dict[str, Any],
    *,
    remembered: bool,
    begun: bool = True,
) -> AsyncIterator[Living]:
    """A session whose process has died, after a turn that ended well if it is `remembered`.

    `begun`: after one that was stopped, if it is not.
    """
    async with living(folder, able(capabilities, answers), first=first()) as here:
        agent = await here.agent()
        if remembered:
            await here.turn(agent)
        elif begun:
            request_id = here.prompt()
            turn = await agent.asked(SESSION_PROMPT)
            here.session.feed(ev.Cancel())
            agent.answer(turn, CANCELLED)
            assert await here.answered(request_id) == CANCELLED
        agent.dies()
        yield here


def heard(agent: PlayedAgent) -> list[str]:
    """Return how an agent was asked to open the session."""
    return [method for method in agent.heard if method in (R, L, N)]


async def goes_on(here: Living) -> PlayedAgent:
    """Let a prompt run in the next process, which it returns."""
    request_id = here.prompt("next")
    agent = await here.agent(2)
    agent.answer(await agent.asked(SESSION_PROMPT), DONE)
    assert await here.answered(request_id) == DONE
    return agent


async def refused(here: Living) -> str:
    """Send a prompt that no process comes for; returns why."""
    error = await here.answered(here.prompt("next"))
    assert error["message"].startswith(NOT_READY)
    return str(error["message"]).removeprefix(NOT_READY)


@pytest.mark.parametrize(
    ("capabilities", "answers", "ways"),
    [
        (("resume", "load"), {}, [R]),
        (("resume",), {}, [R]),
        (("load",), {}, [L]),
        (("resume", "load"), {R: BUSY}, [R, L]),
        (("resume", "load"), {R: UNKNOWN}, [R, L]),
    ],
)
@pytest.mark.parametrize("remembered", [True, False])
async def test_a_session_is_resumed_again_or_else_loaded(
    tmp_path: Path,
    capabilities: tuple[str, ...],
    answers: dict[str, Any],
    ways: list[str],
    remembered: bool,
) -> None:
    takes = {R: {}, L: {}, **answers}
    async with dead(tmp_path, capabilities, takes, remembered=remembered) as here:
        agent = await goes_on(here)
        assert heard(agent) == ways
        assert agent.params(ways[-1]) == [{**GIVEN, "sessionId": "0"}]
        assert agent.params(SESSION_PROMPT)[0]["sessionId"] == "0"
        # An agent that has loaded a session and repeated none of it may not remember it.
        doubted = remembered and ways[-1] == L
        assert here.texts() == ([notices.MEMORY_DOUBTFUL] if doubted else [])


@pytest.mark.hazard("R3")
@pytest.mark.parametrize(
    ("capabilities", "answers", "ways", "tries"),
    [
        (("resume", "load"), {R: UNKNOWN, L: BUSY}, [R, L], 3),
        (("resume", "load"), {R: BUSY, L: UNKNOWN}, [R, L], 1),
        (("resume",), {R: UNKNOWN}, [R], 1),
        (("resume",), {R: BUSY}, [R], 3),
        (("load",), {L: UNKNOWN}, [L], 1),
        (("load",), {L: BUSY}, [L], 3),
    ],
)
async def test_a_session_that_the_agent_should_remember_is_never_made_anew_instead(
    tmp_path: Path,
    capabilities: tuple[str, ...],
    answers: dict[str, RpcError],
    ways: list[str],
    tries: int,
) -> None:
    async with dead(tmp_path, capabilities, answers, remembered=True) as here:
        why = f"the agent would not load the session: {answers[ways[-1]].message}"
        assert await refused(here) == f"{why}. {notices.MEMORY_WAYS}"
        assert [heard(agent) for agent in here.context.agents] == [[], *[ways] * tries]
        assert here.texts() == []  # the answer has said it


@pytest.mark.hazard("R10.1")
@pytest.mark.parametrize(
    ("capabilities", "ways"),
    [(("resume", "load"), [R, L, N]), (("resume",), [R, N]), (("load",), [L, N])],
)
async def test_a_session_of_which_no_turn_ended_goes_on_as_a_new_one_and_the_user_is_told(
    tmp_path: Path, capabilities: tuple[str, ...], ways: list[str]
) -> None:
    answers = {**FORGOTTEN, N: {"sessionId": "young"}}
    async with dead(tmp_path, capabilities, answers, remembered=False) as here:
        agent = await goes_on(here)
        assert heard(agent) == ways
        assert agent.params(N) == [GIVEN]
        assert agent.params(SESSION_PROMPT)[0]["sessionId"] == "young"
        assert here.texts() == [notices.FORGOT_YOUNG]


@pytest.mark.hazard("R10.1")
async def test_a_session_that_had_no_prompt_goes_on_as_a_new_one_and_nobody_is_told(
    tmp_path: Path,
) -> None:
    answers = {**FORGOTTEN, N: {"sessionId": "young"}}
    async with dead(tmp_path, ("resume",), answers, remembered=False, begun=False) as here:
        agent = await goes_on(here)
        assert agent.params(SESSION_PROMPT)[0]["sessionId"] == "young"
        assert here.texts() == []


@pytest.mark.hazard("C9.3")
@pytest.mark.parametrize("remembered", [True, False])
async def test_an_agent_that_can_neither_resume_nor_load_starts_anew_and_the_user_is_told(
    tmp_path: Path, remembered: bool
) -> None:
    async with dead(tmp_path, (), {N: {"sessionId": "fresh"}}, remembered=remembered) as here:
        agent = await goes_on(here)
        assert heard(agent) == [N]
        assert agent.params(SESSION_PROMPT)[0]["sessionId"] == "fresh"
        assert here.texts() == [notices.MEMORY_LOST]


@pytest.mark.parametrize("answer", [BUSY, UNKNOWN, {}, {"sessionId": [5]}, None])
async def test_a_new_session_that_the_agent_does_not_open_either_is_tried_again(
    tmp_path: Path, answer: Any
) -> None:
    answers = {R: UNKNOWN, N: answer}
    async with dead(tmp_path, ("resume",), answers, remembered=False) as here:
        said = answer.message if isinstance(answer, RpcError) else "the agent gave no session id"
        assert await refused(here) == f"the agent would not open a session: {said}"
        assert [heard(agent) for agent in here.context.agents] == [[], *[[R, N]] * 3]
        assert here.texts() == []


@pytest.mark.parametrize("needing", [R, L, N])
async def test_an_agent_that_wants_a_login_is_asked_for_the_session_in_no_other_way(
    tmp_path: Path, needing: str
) -> None:
    answers = {method: AUTH_REQUIRED if method == needing else BUSY for method in (R, L, N)}
    async with dead(tmp_path, ("resume", "load"), answers, remembered=False) as here:
        assert await here.answered(here.prompt("next")) == AUTH_REQUIRED.to_wire()
        assert heard(await here.agent(2)) == [R, L, N][: [R, L, N].index(needing) + 1]
        assert len(here.context.agents) == 2
        assert here.texts() == []


@pytest.mark.parametrize("remembered", [True, False])
async def test_an_agent_that_dies_while_it_is_given_the_session_is_asked_no_further(
    tmp_path: Path, remembered: bool
) -> None:
    async with dead(tmp_path, ("resume", "load"), {}, remembered=remembered) as here:
        request_id = here.prompt("next")
        for number in (2, 3, 4):
            agent = await here.agent(number)
            await agent.asked(R)
            agent.dies()
            assert heard(agent) == [R]
        error = await here.answered(request_id)
        assert error["message"] == f"{NOT_READY}it ended (signal SIGKILL)"
        assert here.texts() == []


@pytest.mark.hazard("P8.2")
async def test_what_an_agent_says_of_its_new_session_waits_until_that_is_known(
    tmp_path: Path,
) -> None:
    async with dead(tmp_path, ("resume",), {R: UNKNOWN}, remembered=False, begun=False) as here:
        here.session.wake()
        agent = await here.agent(2)
        asked = await agent.asked(N)
        for session_id in ("0", "young", "another"):
            update = {"sessionUpdate": "usage_update", "used": 1, "of": session_id}
            params = {"sessionId": session_id, "update": update}
            agent.says({"method": "session/update", "params": params})
        assert here.updates() == []
        agent.answer(asked, {"sessionId": "young"})
        await until(lambda: here.session.link is agent)
        shown = [each for each in here.updates() if each["sessionUpdate"] == "usage_update"]
        assert shown == [{"sessionUpdate": "usage_update", "used": 1, "of": "young"}]
