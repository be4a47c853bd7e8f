"""A question beside a session: by the agent itself, or in a fork of which nothing is left."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    ASK,
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_FORK,
    SESSION_PROMPT,
    SET_MODE,
)
from acp_bridge.features.asking import ask as notices
from acp_bridge.features.asking.ask import Ask
from tests.core.session.journals import recorded
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent, refusal
from tests.core.session.waiting import until

ABLE: Json = {"_meta": {"acp_bridge": {"ask": True}}}
FORKS: Json = {"sessionCapabilities": {"fork": {}}}
CARD = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "rm -r", "kind": "execute"}


def asks(here: Living, question: Any = "why?") -> int:
    """Send `_acp_bridge/ask`; returns the request's id."""
    request = here.request(ASK, question=question)

    async def work(request: ClientRequest, params: Json) -> Json:
        answer: Json = await here.session.features.answers[ASK](request, params)
        return answer

    here.client.client.run(here.context.tasks, request, work, request.params)
    return int(str(request.call.id))


def in_fork(agent: PlayedAgent, fork: str, **update: Any) -> None:
    agent.says({"method": "session/update", "params": {"sessionId": fork, "update": update}})


def says(agent: PlayedAgent, fork: str, text: str) -> None:
    content = {"type": "text", "text": text}
    in_fork(agent, fork, sessionUpdate="agent_message_chunk", content=content)


async def forked(agent: PlayedAgent, **result: Any) -> Json:
    """Let the agent make the fork `f`; returns the prompt that it gets there."""
    agent.answer(await agent.asked(SESSION_FORK), {"sessionId": "f", **result})
    return await agent.asked(SESSION_PROMPT)


def answers(agent: PlayedAgent) -> list[Json]:
    return [message for message in agent.sent.messages if "method" not in message]


async def hidden(here: Living) -> frozenset[str]:
    return await here.context.journal.known_agent_ids(AgentIdentity("a"))


# --- an agent that answers questions itself -----------------------------------------------------


async def test_the_agent_is_asked_at_once_during_a_turn_and_the_session_keeps_nothing(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        running = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        before, shown = await recorded(here.journal), len(here.updates())
        question = asks(here)
        asked = await agent.asked(ASK)
        assert asked["params"] == {"sessionId": "0", "question": "why?"}
        agent.answer(asked, {"answer": "so"})
        assert await here.answered(question) == {"answer": "so"}
        assert (await recorded(here.journal), len(here.updates())) == (before, shown)
        agent.answer(turn, DONE)
        assert await here.answered(running) == DONE


async def test_a_typed_question_is_answered_in_words_and_is_not_recorded(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        typed = here.prompt("/queue ask  why,\n and how? ")
        asked = await agent.asked(ASK)
        assert asked["params"]["question"] == "why,\n and how?"
        agent.answer(asked, {"answer": "so"})
        assert await here.answered(typed) == DONE
        assert here.texts() == [notices.answered_beside("so")]
        assert (await recorded(here.journal), here.states()) == ([], [])
        assert here.journal.info.title is None


@pytest.mark.parametrize(
    "result", [None, {}, {"answer": 5}, {"answer": ""}, "so", refusal(-32603, "no model")]
)
async def test_what_is_no_answer_is_one_error(tmp_path: Path, result: Any, no_errors: None) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        question, typed = asks(here), here.prompt("/queue ask why?")
        for _ in range(2):
            agent.answer(await agent.asked(ASK), result)
        assert (await here.answered(question))["code"] == -32603
        assert await here.answered(typed) == DONE
        assert here.texts()[0].startswith("[acp-bridge] Not answered: ")


@pytest.mark.parametrize("question", [None, "", " \n", 5, ["why"]])
async def test_a_question_is_a_text(tmp_path: Path, question: object, no_errors: None) -> None:
    async with living(tmp_path, first=first(), capabilities=ABLE) as here:
        assert (await here.answered(asks(here, question)))["code"] == -32602


async def test_an_agent_that_can_do_neither_is_one_clear_error(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        error = await here.answered(asks(here))
        assert (error["code"], error["message"]) == (-32601, notices.CANNOT_ASK)
        assert await here.answered(here.prompt("/queue ask why?")) == DONE
        assert here.texts() == [notices.not_answered(notices.CANNOT_ASK)]
        assert agent.heard == ["initialize"]


async def test_a_session_without_a_process_gets_one_and_no_prompt_waits_for_the_answer(
    tmp_path: Path, no_errors: None
) -> None:
    async with living(tmp_path, capabilities=ABLE) as here:
        question, prompt = asks(here), here.prompt()
        agent = await here.agent()
        asked = await agent.asked(ASK)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE
        agent.answer(asked, {"answer": "so"})
        assert await here.answered(question) == {"answer": "so"}


@pytest.mark.hazard("C6")
async def test_a_question_excuses_no_leak_of_a_cancelled_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        running = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.says_text("before", "m")
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(running) == CANCELLED
        question = asks(here)
        await agent.asked(ASK)
        agent.says_text("stray", "n")
        agent.says_text("leaked", "m")
        assert here.texts() == ["before"]
        assert (await here.answered(question))["code"] == -32603  # its process is replaced


# --- how a question ends ------------------------------------------------------------------------


@pytest.mark.hazard("Q9", "C23")
@pytest.mark.parametrize("how", ["stop", "cancel request"])
async def test_a_typed_question_is_stopped_and_answered_cancelled(
    tmp_path: Path, how: str, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        typed = here.prompt("/queue ask why?")
        asked = await agent.asked(ASK)
        if how == "stop":
            here.session.features.note_stop(here.client.client)
        else:
            assert here.session.cancel_request(here.client.client, typed)
        assert await here.answered(typed) == CANCELLED
        assert agent.params("$/cancel_request") == [{"requestId": asked["id"]}]
        shown = len(here.got)
        agent.answer(asked, {"answer": "late"})
        await anyio.wait_all_tasks_blocked()
        assert here.got[shown:] == []
        assert not here.session.cancel_request(here.client.client, typed)


@pytest.mark.parametrize("how", ["stop", "cancel request", "close"])
async def test_a_typed_question_is_stopped_by_what_is_read_right_behind_it(
    tmp_path: Path, how: str, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        typed = here.prompt("/queue ask why?")
        if how == "stop":
            here.session.audience.cancel(here.client.client)
        elif how == "cancel request":
            assert here.session.cancel_request(here.client.client, typed)
        else:
            here.session.close()
        assert await here.answered(typed) == CANCELLED
        assert agent.params(ASK) == []


async def test_a_method_is_ended_by_its_cancel_request_and_not_by_a_stop(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        question = asks(here)
        asked = await agent.asked(ASK)
        here.session.features.note_stop(here.client.client)
        await anyio.wait_all_tasks_blocked()
        assert question not in here.answers()
        assert here.client.client.cancel_request(question)
        assert (await here.answered(question))["code"] == -32800
        assert agent.params("$/cancel_request") == [{"requestId": asked["id"]}]


async def test_a_cancel_of_a_request_that_is_not_there_leaves_a_question_alone(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        question = asks(here)
        asked = await agent.asked(ASK)
        assert not here.session.cancel_request(here.client.client, "none")
        agent.answer(asked, {"answer": "so"})
        assert await here.answered(question) == {"answer": "so"}


@pytest.mark.hazard("Q9")
async def test_a_close_ends_them_all_and_a_dead_agent_too(tmp_path: Path, no_errors: None) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        question, typed = asks(here), here.prompt("/queue ask why?")
        await agent.asked(ASK)
        here.session.close()
        assert (await here.answered(question))["code"] == -32800
        assert await here.answered(typed) == CANCELLED
    other = first()
    async with living(tmp_path / "other", first=other, capabilities=ABLE) as here:
        question = asks(here)
        await other.asked(ASK)
        other.dies()
        assert (await here.answered(question))["code"] == -32603


async def test_an_agent_that_never_answers_is_given_up(tmp_path: Path, no_errors: None) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        here.feature(Ask)._patience = 0
        error = await here.answered(asks(here))
        assert (error["code"], "did not answer" in error["message"]) == (-32603, True)


# --- in a fork ----------------------------------------------------------------------------------


@pytest.mark.hazard("P12")
async def test_an_agent_that_forks_is_asked_in_a_fork_which_is_hidden_closed_and_deleted(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first("close", "delete")
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        running = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        question = asks(here)
        asked = await forked(agent)
        assert agent.params(SESSION_FORK) == [{"sessionId": "0", "cwd": "/w", "mcpServers": []}]
        assert await hidden(here) == {"0", "f"}
        assert asked["params"]["sessionId"] == "f"
        assert asked["params"]["prompt"][0]["text"].endswith("why?")
        says(agent, "f", "be")
        in_fork(agent, "f", sessionUpdate="available_commands_update", availableCommands=[])
        says(agent, "f", "cause")
        agent.answer(asked, DONE)
        agent.answer(await agent.asked(SESSION_CLOSE), {})
        agent.answer(await agent.asked(SESSION_DELETE), {})
        assert await here.answered(question) == {"answer": "because"}
        assert [agent.params(m) for m in (SESSION_CLOSE, SESSION_DELETE)] == [
            [{"sessionId": "f"}]
        ] * 2
        assert (SESSION_CANCEL in agent.heard, here.updates()) == (False, [])
        agent.answer(turn, DONE)
        assert await here.answered(running) == DONE
        assert len(here.context.agents) == 1


@pytest.mark.hazard("C18")
async def test_whatever_the_agent_asks_for_in_the_fork_is_refused_also_later(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        question = asks(here)
        asked = await forked(agent)
        options = [
            {"kind": "allow_once", "optionId": "y"},
            {"kind": "reject_once", "optionId": "n"},
        ]
        wanted: list[tuple[str, Json]] = [
            (REQUEST_PERMISSION, {"options": options}),
            (REQUEST_PERMISSION, {"options": "odd"}),
            ("fs/write_text_file", {"path": "/x", "content": ""}),
            ("terminal/create", {"command": "rm"}),
        ]
        for n, (method, more) in enumerate(wanted):
            agent.says({"id": n, "method": method, "params": {"sessionId": "f", **more}})
        chosen, odd, *refused = answers(agent)
        assert chosen["result"] == {"outcome": {"outcome": "selected", "optionId": "n"}}
        assert odd["result"] == {"outcome": {"outcome": "cancelled"}}
        assert [each["error"]["code"] for each in refused] == [-32600] * 2
        says(agent, "f", "so")
        agent.answer(asked, DONE)
        assert await here.answered(question) == {"answer": "so"}
        agent.says({"id": 9, "method": "terminal/create", "params": {"sessionId": "f"}})
        assert answers(agent)[-1]["error"]["code"] == -32600
        assert [m for m in here.got if "method" in m] == []


@pytest.mark.parametrize("kind", ["execute", "edit", "other", None])
async def test_a_tool_call_that_may_change_something_ends_the_question(
    tmp_path: Path, kind: str | None, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        question = asks(here)
        await forked(agent)
        in_fork(
            agent, "f", **{key: value for key, value in {**CARD, "kind": kind}.items() if value}
        )
        error = await here.answered(question)
        assert "rm -r" in error["message"]
        assert agent.params(SESSION_CANCEL) == [{"sessionId": "f"}]


async def test_a_call_that_only_looks_is_let_be(tmp_path: Path, no_errors: None) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        question = asks(here)
        asked = await forked(agent)
        in_fork(agent, "f", **{**CARD, "kind": "read"})
        in_fork(agent, "f", sessionUpdate="tool_call_update", toolCallId="t", status="in_progress")
        says(agent, "f", "so")
        agent.answer(asked, DONE)
        assert await here.answered(question) == {"answer": "so"}


async def test_a_mode_that_only_reads_is_chosen_before_the_question(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        question = asks(here)
        modes = {"currentModeId": "yolo", "availableModes": [{"id": "yolo"}, {"id": "plan"}]}
        agent.answer(await agent.asked(SESSION_FORK), {"sessionId": "f", "modes": modes})
        mode = await agent.asked(SET_MODE)
        assert mode["params"] == {"sessionId": "f", "modeId": "plan"}
        agent.answer(mode, refusal(-32603))
        asked = await agent.asked(SESSION_PROMPT)
        says(agent, "f", "so")
        agent.answer(asked, DONE)
        assert await here.answered(question) == {"answer": "so"}


@pytest.mark.hazard("P13")
@pytest.mark.parametrize("result", [{}, {"sessionId": "0"}, {"sessionId": 5}, None])
async def test_a_fork_without_an_id_of_its_own_is_not_asked(
    tmp_path: Path, result: Any, no_errors: None
) -> None:
    agent = first("close", "delete")
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        question = asks(here)
        agent.answer(await agent.asked(SESSION_FORK), result)
        assert (await here.answered(question))["code"] == -32603
        assert {SESSION_PROMPT, SESSION_CLOSE, SESSION_DELETE}.isdisjoint(agent.heard)


async def test_a_fork_that_says_nothing_is_an_error_and_the_agents_own_passes(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        question = asks(here)
        agent.answer(await forked(agent), DONE)
        assert "no answer in words" in (await here.answered(question))["message"]
        question = asks(here)
        agent.answer(await agent.asked(SESSION_FORK), refusal(-32603, "not now"))
        assert (await here.answered(question))["message"] == "not now"


async def test_a_question_that_is_cancelled_lets_go_of_its_fork_also_of_one_that_comes_later(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first("close", "delete")
    async with living(tmp_path, first=agent, capabilities=FORKS) as here:
        question = asks(here)
        await forked(agent)
        here.client.client.cancel_request(question)
        agent.answer(await agent.asked(SESSION_CLOSE), {})
        agent.answer(await agent.asked(SESSION_DELETE), {})
        assert (await here.answered(question))["code"] == -32800
        assert agent.params(SESSION_CANCEL) == [{"sessionId": "f"}]
        question = asks(here)
        fork = await agent.asked(SESSION_FORK)
        here.client.client.cancel_request(question)
        assert (await here.answered(question))["code"] == -32800
        agent.answer(fork, {"sessionId": "late"})
        await until(lambda: {"sessionId": "late"} in agent.params(SESSION_DELETE))
        assert {"sessionId": "late"} in agent.params(SESSION_CLOSE)
