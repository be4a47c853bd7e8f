"""`session/new`: a session under an id of ours, or nothing at all, whatever comes between."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal, JournalError
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.core.sessions.world import SETUP, world

AUTH_REQUIRED = RpcError(-32000, "who are you")
TOKEN: Json = {"methodId": "token", "_meta": {"token": "t"}}


async def test_a_session_has_an_id_of_ours_and_the_agents_answer_otherwise(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        modes = {"currentModeId": "plan", "availableModes": []}
        told = {"sessionId": "0", "modes": modes, "x": [1], "_meta": {"kept": 1}}
        it.agent.script["session/new"] = told
        answer = await it.editor.ask("session/new", {**SETUP, "_meta": {"passed": 1}})
        session_id = answer["sessionId"]
        own = {"kept": 1, "acp_bridge": {"agentSessionId": "0"}}
        assert answer == {**told, "sessionId": session_id, "_meta": own}
        assert len(session_id) == 32
        assert it.agent.params("session/new") == [{**SETUP, "_meta": {"passed": 1}}]
        assert await it.listed() == []  # before its first prompt
        assert list(it.sessions.live) == [session_id]
        assert it.sessions.links() == [process.link for process in it.agent.processes]
        await it.says(session_id, "hello")
        assert await it.listed() == [session_id]
        assert it.agent.params("session/prompt")[0]["sessionId"] == "0"


async def test_options_that_the_client_can_not_take_are_kept_and_not_told(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        options = [{"id": "b", "type": "boolean"}, {"id": "s", "type": "select"}]
        it.agent.script["session/new"] = {"sessionId": "0", "configOptions": options}
        answer = await it.editor.ask("session/new", SETUP)
        assert answer["configOptions"] == options[1:]
        (session,) = it.sessions.live.values()
        assert session.user_settings.shown["configOptions"] == options


@pytest.mark.hazard("P8.2")
async def test_what_is_said_of_a_session_before_its_answer_is_shown_behind_it(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:

        async def new(process: Process, params: Json) -> Json:
            process.update("0", "early")
            process.update("another", "of no session")
            process.says({"method": "_x/news", "params": {"sessionId": "0", "n": 1}})
            return {"sessionId": "0"}

        it.agent.script["session/new"] = new
        session_id = await it.new()
        answer, update, news = it.editor.messages
        assert answer["result"]["sessionId"] == session_id
        assert update["params"]["sessionId"] == session_id
        assert it.editor.texts(session_id) == ["early"]
        assert (news["method"], news["params"]) == ("_x/news", {"sessionId": session_id, "n": 1})


@pytest.mark.parametrize(("process_per_session", "prompts"), [(True, [1, 1]), (False, [2])])
async def test_two_sessions_that_are_made_at_once_are_two(
    tmp_path: Path, process_per_session: bool, prompts: list[int]
) -> None:
    async with world(tmp_path, process_per_session=process_per_session) as it:
        requests = [it.editor.send("session/new", SETUP) for _ in range(2)]
        sessions = [(await it.editor.result(request))["sessionId"] for request in requests]
        for session_id in sessions:
            await it.says(session_id, f"in {session_id}")
            assert it.editor.texts(session_id) == [f"echo in {session_id}"]
        assert [len(each.params("session/prompt")) for each in it.agent.living] == prompts


# --- refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (RpcError(-32603, "out of tokens"), -32603, "out of tokens"),
        (AUTH_REQUIRED, -32000, "who are you"),
        (None, -32603, "the agent gave no session id"),
        ([], -32603, "the agent gave no session id"),
        ({}, -32603, "the agent gave no session id"),
        ({"sessionId": [7]}, -32603, "the agent gave no session id"),
    ],
)
async def test_a_process_that_made_no_session_is_asked_again_for_the_next(
    tmp_path: Path, answer: object, code: int, said: str
) -> None:
    async with world(tmp_path) as it:
        before, it.agent.script["session/new"] = it.agent.script["session/new"], answer
        error = await it.editor.refused("session/new", SETUP)
        assert (error.code, error.message) == (code, said)
        assert await it.listed() == list(it.sessions.live) == []
        assert it.pool.link is it.agent.processes[0].link
        it.agent.script["session/new"] = before
        await it.says(await it.new(), "hello")
        assert len(it.agent.processes) == 1


@pytest.mark.parametrize("odd", [{}, {"cwd": "relative"}, {"cwd": "/w", "mcpServers": 1}])
async def test_odd_parameters_are_refused_before_an_agent_is_started(
    tmp_path: Path, odd: Json
) -> None:
    async with world(tmp_path) as it:
        assert (await it.editor.refused("session/new", odd)).code == -32602
        assert it.agent.processes == []


@pytest.mark.hazard("P3")
async def test_an_agent_that_dies_of_it_fails_the_request_and_the_next_gets_another_process(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        gate = it.agent.stops_at("session/new")
        request = it.editor.send("session/new", SETUP)
        await until(lambda: gate.reached)
        it.agent.processes[0].dies()
        assert (
            "ended before it answered the request for a session (signal SIGKILL)"
            in (await it.editor.refusal(request)).message
        )
        gate.open()
        await it.says(await it.new(), "hello")
        assert len(it.agent.processes) == 2


# --- authentication --------------------------------------------------------------------------


def wants_token(agent: Agent) -> None:
    """Let a process make a session only after it was given the token."""
    new = agent.script["session/new"]

    async def checked(process: Process, params: Json) -> Any:
        if TOKEN not in process.params("authenticate"):
            return AUTH_REQUIRED
        return await new(process, params)

    agent.script["session/new"] = checked


async def test_what_the_client_authenticated_with_is_repeated_once_in_each_later_process(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, process_per_session=True) as it:
        wants_token(it.agent)
        it.context.standing.note("authenticate", TOKEN)
        for _ in range(2):
            await it.says(await it.new(), "hello")
        each = [process.params("authenticate") for process in it.agent.processes]
        assert each == [[TOKEN], [TOKEN]]


async def test_a_login_that_an_agent_refuses_leaves_its_own_refusal_of_the_session(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        it.agent.script["session/new"] = AUTH_REQUIRED
        it.context.standing.note("authenticate", TOKEN)
        answers: list[object] = [RpcError(-32603, "expired"), {}]
        for answer in answers:
            it.agent.script["authenticate"] = answer
            error = await it.editor.refused("session/new", SETUP)
            assert (error.code, error.message) == (-32000, "who are you")
        assert it.agent.params("authenticate") == [TOKEN]  # never twice to one process


# --- the journal fails, the process dies, the client gives up --------------------------------


@pytest.mark.hazard("Q9", "P12")
async def test_a_journal_that_fails_refuses_the_session_and_the_process_that_has_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*args: object, **given: object) -> None:
        raise JournalError("the disk is full")

    async with world(tmp_path) as it:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "create", failing)
            error = await it.editor.refused("session/new", SETUP)
        assert error.message.startswith("the journal can't be written; `acp-bridge doctor`")
        assert it.sessions.live == {}
        assert it.in_use == []
        await it.says(await it.new(), "hello")


@pytest.mark.hazard("P3", "Q1")
@pytest.mark.parametrize("tree_lives", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
async def test_a_process_that_ends_before_the_session_has_it_is_replaced_at_the_next_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree_lives: bool, remembers: bool
) -> None:
    gate, create = Gate(), Journal.create

    async def slow(self: Journal, *args: Any, **given: Any) -> Any:
        await gate.passed()
        return await create(self, *args, **given)

    monkeypatch.setattr(Journal, "create", slow)
    async with world(tmp_path) as it:
        if not remembers:
            for way in ("load", "resume"):
                it.agent.script[f"session/{way}"] = RpcError(-32002, "never heard of it")
        request = it.editor.send("session/new", SETUP)
        await until(lambda: gate.reached)
        (process,) = it.agent.processes
        if tree_lives:
            process.exits()
        else:
            process.dies()
        gate.open()
        session_id = (await it.editor.result(request))["sessionId"]
        await it.says(session_id, "hello")
        assert it.editor.texts(session_id) == ["echo hello"]  # nothing was said before
        assert len(it.agent.processes) == 2
        assert process.dead.is_set()


@pytest.mark.hazard("Q8")
async def test_a_process_that_did_not_answer_is_not_asked_for_the_next_session(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        gate = it.agent.stops_at("session/new")
        given_up = it.editor.send("session/new", SETUP)
        await until(lambda: gate.reached)
        it.editor.cancel_request(given_up)
        assert (await it.editor.refusal(given_up)).code == -32800
        assert it.agent.living == []
        gate.open()
        await it.says(await it.new(), "hello")


@pytest.mark.hazard("Q8", "Q9", "P12")
async def test_one_that_is_cancelled_at_any_moment_is_answered_once_and_leaves_nothing_half_made(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        for number in it.moments():
            answer, cancelled = await it.cancelled(number, "session/new", SETUP)
            made = [answer["result"]["sessionId"]] if "result" in answer else []
            assert list(it.sessions.live) == made
            # At most one process has the session, or waits for one.
            assert len(it.agent.living) <= 1
            assert [process.link for process in it.in_use] == [
                session.link for session in it.sessions.live.values()
            ]
            session_id = made[0] if made else await it.new()
            await it.says(session_id, "hello")
            assert await it.listed() == [session_id]
            await it.editor.ask("session/delete", {"sessionId": session_id})
            if not cancelled:
                break
        assert number > 10
        assert it.in_use == []


@pytest.mark.hazard("X1.4")
@pytest.mark.parametrize(
    "odd",
    [
        {"modes": []},
        {"modes": "plan", "models": 5, "configOptions": {}},
    ],
)
async def test_settings_that_are_not_as_version_1_has_them_don_t_spoil_the_answer(
    tmp_path: Path, odd: Any
) -> None:
    async with world(tmp_path) as it:
        it.agent.script["session/new"] = {"sessionId": "a", "x": 1, "configOptions": None, **odd}
        told = await it.editor.ask("session/new", SETUP)
        assert {name for name in told if told[name] is not None} == {"sessionId", "x", "_meta"}
