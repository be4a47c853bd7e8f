"""The part of the system prompt that a client gives: `systemPrompt` of the requests that open."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.session.system_prompt import GivenPrompt
from tests.agent.conftest import Talk
from tests.agent.session.test_prompting import given, system_of
from tests.agent.session.test_prompting import model_log as model_log
from tests.agent.talking import error_of, opened

SAYS = "turn\ntext: fine"
OWN = "You are a coding agent."


def prompt(mode: str, *texts: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text} for text in texts]
    return {"systemPrompt": {"mode": mode, "content": content}}


@pytest.mark.parametrize("mode", ["append", "override"])
async def test_the_model_is_told_it_in_every_process_and_after_a_compaction(
    talk: Talk, cwd: Path, model_log: Path, mode: str
) -> None:
    more = prompt(mode, "Speak in verse.", "Be kind.")
    async with talk(SAYS) as client:
        session_id = await opened(client, cwd, **more)
        await client.prompt("a")
    async with talk(SAYS) as client:
        await client.initialize()
        await client.load_session(session_id, cwd, **more)
        await client.prompt("b")
        await client.prompt("/compact")
        await client.prompt("c")
    told = [system_of(each) for each in given(model_log) if "summar" not in str(each[0]).lower()]
    assert len(set(told)) == 1
    assert "Speak in verse.\n\nBe kind." in told[0]
    assert (OWN in told[0]) == (mode == "append")
    assert str(cwd) in told[0]


async def test_a_load_that_says_nothing_of_it_leaves_it_and_one_with_another_replaces_it(
    talk: Talk, cwd: Path, model_log: Path
) -> None:
    async with talk(SAYS) as client:
        session_id = await opened(client, cwd, **prompt("append", "Be kind."))
        for more in ({}, prompt("append", "Be brave.")):
            await client.load_session(session_id, cwd, **more)
            await client.prompt("a")
    first, second = [system_of(each) for each in given(model_log)]
    assert "Be kind." in first
    assert ("Be kind." in second, "Be brave." in second) == (False, True)


async def test_a_question_before_the_first_prompt_is_answered_under_it(
    talk: Talk, cwd: Path, model_log: Path
) -> None:
    async with talk(SAYS) as client:
        session_id = await opened(client, cwd, **prompt("append", "Be kind."))
        asked = {"sessionId": session_id, "question": "who are you?"}
        await client.request("_acp_bridge/ask", asked)
    (told,) = given(model_log)
    assert "Be kind." in system_of(told)


@pytest.mark.parametrize(
    "method", ["session/new", "session/load", "session/resume", "session/fork"]
)
@pytest.mark.parametrize(
    "wrong",
    [
        prompt("prepend", "x"),
        prompt("append"),
        {"systemPrompt": {"mode": "append", "content": [{"type": "image", "data": ""}]}},
        {"systemPrompt": {"content": [{"type": "text", "text": "x"}]}},
        {"systemPrompt": "x"},
    ],
)
async def test_one_that_it_cannot_take_is_refused_and_named(
    talk: Talk, cwd: Path, method: str, wrong: dict[str, Any]
) -> None:
    async with talk(SAYS) as client:
        session_id = await opened(client, cwd)
        params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": [], **wrong}
        error = await error_of(client, method, params)
        assert (error.code, "systemPrompt" in error.message) == (-32602, True)


def test_its_words_are_in_no_representation() -> None:
    assert "key" not in repr(GivenPrompt("key"))
    assert "key" not in json.dumps(repr([GivenPrompt("key")]))
