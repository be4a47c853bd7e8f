"""A question beside the conversation: answered on a copy, of which nothing is left."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent.conftest import Talk
from tests.agent.talking import error_of, opened
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message

SAYS = """
when: asks this beside
text: You said {history}

when: work
text: working
gate: g
text: done

turn
text: fine
"""
TOOLS = """
when: asks this beside
text: Let me look.
call: write_file {"path": "new.txt", "content": "x"}
---
text: I would write it.

turn
text: fine
"""
STUBBORN = TOOLS.replace("text: I would", 'call: shell {"command": "touch new.txt"}\ntext: I would')


def params(client: RecordingClient, question: Any = "what?") -> Message:
    return {"sessionId": client.session_id, "question": question}


def transcripts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "sessions").iterdir()}


async def ask(client: RecordingClient, question: str = "what?") -> str:
    result = await client.request("_acp_bridge/ask", params(client, question))
    assert result.keys() == {"answer"}
    return str(result["answer"])


async def listed(client: RecordingClient) -> list[str]:
    return [row["sessionId"] for row in (await client.request("session/list", {}))["sessions"]]


async def test_a_question_is_answered_from_memory_and_nothing_of_it_is_left(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    async with talk(SAYS) as client:
        session = await opened(client, cwd)
        await client.prompt("I am Ann")
        before, seen = transcripts(tmp_path), client.mark()
        assert (await ask(client)).startswith("You said I am Ann")
        assert transcripts(tmp_path) == before
        assert client.updates(since=seen) == []
        assert await listed(client) == [session]
        assert await client.prompt("and now?") == {"stopReason": "end_turn"}
        assert b"beside" not in b"".join(transcripts(tmp_path).values())


async def test_it_is_answered_while_a_turn_runs_and_the_turn_goes_on(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        turn = client.send_prompt("work")
        await gates.reached("g")
        assert "work" in await ask(client)
        gates.open("g")
        assert (await client.answer_to(turn))["result"] == {"stopReason": "end_turn"}
        assert client.text() == "working done"


async def test_before_the_first_prompt_the_model_knows_where_it_is(
    talk: Talk, cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACP_BRIDGE_MODEL_LOG", str(log := tmp_path / "model.log"))
    async with talk(SAYS) as client:
        await opened(client, cwd)
        await ask(client, "where are you?")
        system, question = json.loads(log.read_text())["messages"]
        assert str(cwd) in system["content"]
        assert question["content"].endswith("where are you?")


@pytest.mark.parametrize("said", [TOOLS, STUBBORN])
async def test_no_tool_runs_and_the_user_is_not_asked(talk: Talk, cwd: Path, said: str) -> None:
    async with talk(said) as client:
        client.side.permission = "allow"
        await opened(client, cwd)
        await client.request("session/set_mode", {"sessionId": client.session_id, "modeId": "auto"})
        assert await ask(client) == "Let me look.\n\nI would write it."
        assert not (cwd / "new.txt").exists()
        assert client.recording.requests("session/request_permission") == []


async def test_a_model_that_only_calls_tools_is_an_error_after_a_few_tries(
    talk: Talk, cwd: Path
) -> None:
    once = 'when: asks\ncall: shell {"command": "touch a"}\n'
    async with talk(once + "---\n" + 'call: shell {"command": "touch a"}\n---\n' * 5) as client:
        await opened(client, cwd)
        error = await error_of(client, "_acp_bridge/ask", params(client))
        assert (error.code, "no answer in words" in error.message) == (-32603, True)
        assert not (cwd / "a").exists()


@pytest.mark.hazard("C10.3")
async def test_it_can_be_cancelled_and_its_model_call_ends(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    said = "when: asks\ntext: a\ngate: g\ntext: b\nturn\ntext: fine"
    async with talk(said) as client:
        await opened(client, cwd)
        question = client.send_request("_acp_bridge/ask", params(client))
        await gates.reached("g")
        client.notify("$/cancel_request", {"requestId": question})
        answer = await client.answer_to(question)
        assert answer["error"]["code"] == -32800
        client.notify("$/cancel_request", {"requestId": question})  # too late
        assert await client.prompt("go on") == {"stopReason": "end_turn"}


async def test_a_close_ends_the_questions_of_its_session_and_a_stop_ends_none(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    said = "when: asks\ngate: g\ntext: b\nturn\ntext: fine"
    async with talk(said) as client:
        await opened(client, cwd)
        question = client.send_request("_acp_bridge/ask", params(client))
        await gates.reached("g")
        client.cancel()
        await client.prompt("go on")
        await client.request("session/close", {"sessionId": client.session_id})
        assert (await client.answer_to(question))["error"]["code"] == -32800


@pytest.mark.parametrize("question", [None, "", "  ", 5, ["a"]])
async def test_a_question_is_a_text(talk: Talk, cwd: Path, question: object) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        error = await error_of(client, "_acp_bridge/ask", params(client, question))
        assert error.code == -32602


@pytest.mark.parametrize("method", ["pause", "go", "ask"])
async def test_the_methods_want_an_open_session(talk: Talk, cwd: Path, method: str) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        odd: list[tuple[Message, int]] = [({}, -32602), ({"sessionId": 5}, -32602)]
        for given, code in [*odd, ({"sessionId": "x"}, -32002)]:
            error = await error_of(client, f"_acp_bridge/{method}", {"question": "q", **given})
            assert error.code == code
        assert (await error_of(client, "_acp_bridge/hold", params(client))).code == -32601


async def test_a_pause_on_the_wire_is_answered_when_the_turn_waits(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    said = 'when: work\ngate: g\ncall: list_files {"path": "."}\n---\ntext: done\nturn\ntext: fine'
    async with talk(said) as client:
        session = {"sessionId": await opened(client, cwd)}
        assert await client.request("_acp_bridge/pause", session) == {"paused": False}
        turn = client.send_prompt("work")
        await gates.reached("g")
        pause = client.send_request("_acp_bridge/pause", session)
        gates.open("g")
        assert (await client.answer_to(pause))["result"] == {"paused": True}
        assert "in_progress" not in str(client.updates())
        assert await client.request("_acp_bridge/go", session) == {}
        assert (await client.answer_to(turn))["result"] == {"stopReason": "end_turn"}
        assert await client.request("_acp_bridge/go", session) == {}
        with anyio.fail_after(5):
            turn = client.send_prompt("work")
            await gates.reached("g", 2)
            pause = client.send_request("_acp_bridge/pause", session)
            client.cancel()
            assert (await client.answer_to(turn))["result"] == {"stopReason": "cancelled"}
            assert (await client.answer_to(pause))["result"] == {"paused": False}
