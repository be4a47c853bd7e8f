"""Histories that a kill or another version has left, opened again: the agent alone, and behind the
bridge."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process.conftest import Start
from tests.agent.talking import of_kind
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.processes import all_gone

pytestmark = [pytest.mark.process, pytest.mark.slow]

REMEMBERS = """\
when: summarise it
text: They met.
gate: g
text: Ann.
when: who
remember
turn
text: fine
"""
ALWAYS = {"outcome": {"outcome": "selected", "optionId": "allow_always"}}


async def opened(client: RecordingClient, cwd: Path) -> str:
    await client.initialize({}, within=20)
    return await client.new_session(cwd)


async def killed(client: RecordingClient, mark: str) -> None:
    assert client.process is not None
    os.kill(client.process.pid, signal.SIGKILL)
    await client.wait()
    await all_gone(mark)


async def loaded(client: RecordingClient, session_id: str, cwd: Path) -> dict[str, Any]:
    await client.initialize({}, within=20)
    result: dict[str, Any] = await client.load_session(session_id, cwd)
    return result


def transcript(folder: Path) -> Path:
    (path,) = (folder / "home" / "agent").glob("*.jsonl")
    return path


def given(model_log: Path) -> list[Any]:
    """What the model's last call was given, without the system prompt."""
    messages = json.loads(model_log.read_text().splitlines()[-1])["messages"]
    return [message["content"] for message in messages[1:]]


@pytest.mark.hazard("K2", "C17")
async def test_killed_while_it_is_summarised_a_conversation_is_as_it_was(
    start: Start, cwd: Path, gates: Gates, mark: str, model_log: Path
) -> None:
    async with start(REMEMBERS) as client:
        session_id = await opened(client, cwd)
        await client.prompt("I am Ann", within=20)
        client.send_prompt("/compact")
        await gates.reached("g")
        await killed(client, mark)
    async with start(REMEMBERS) as client:
        await loaded(client, session_id, cwd)
        since = client.mark()
        await client.prompt("who am I?", within=20)
        assert client.text(since=since).endswith("You told me: I am Ann")
    assert given(model_log)[-3:] == ["I am Ann", "fine", "who am I?"]


@pytest.mark.hazard("K2.1", "R13")
async def test_a_history_that_ends_in_the_middle_of_a_line_keeps_all_before_it(
    start_either: Start, cwd: Path, tmp_path: Path, mark: str, request: pytest.FixtureRequest
) -> None:
    #: its own record brings back no mode that asks less; the bridge has the user's word.
    mode = "edit" if request.node.callspec.params["start_either"] == "acp_bridge" else "ask"
    dialogue = 'when: run\ncall: shell {"command": "echo hi"}\n---\ntext: ran\nturn\nremember'
    async with start_either(dialogue) as client:
        session_id = await opened(client, cwd)
        client.side.handlers["session/request_permission"] = lambda params: ALWAYS
        await client.request("session/set_mode", {"sessionId": session_id, "modeId": "edit"})
        await client.prompt("run it", within=20)
        await client.prompt("more", within=20)
        await killed(client, mark)
    path = transcript(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    for times in (1, 2):
        async with start_either(dialogue) as client:
            result = await loaded(client, session_id, cwd)
            assert result["modes"]["currentModeId"] == mode
            await client.prompt("run it", within=20)
            assert client.recording.requests("session/request_permission") == []
            users = [u["content"]["text"] for u in of_kind(client, "user_message_chunk")]
            assert users[:2] == ["run it", "more"]
            assert users.count("run it") >= times


@pytest.mark.hazard("K9", "R13.5")
async def test_a_history_of_the_version_before_has_no_rights_and_loses_nothing(
    start: Start, cwd: Path, tmp_path: Path, mark: str
) -> None:
    dialogue = 'when: run\ncall: shell {"command": "echo hi"}\n---\ntext: ran\nturn\nremember'
    async with start(dialogue) as client:
        session_id = await opened(client, cwd)
        client.side.handlers["session/request_permission"] = lambda params: ALWAYS
        await client.prompt("run it", within=20)
        await killed(client, mark)
    path = transcript(tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    before = [line for line in lines if line["t"] not in ("chosen", "always")]
    assert len(before) == len(lines) - 1
    later = {"t": "of a later version", "text": "x"}
    path.write_text("".join(json.dumps(line) + "\n" for line in [*before, later]))
    async with start(dialogue) as client:
        result = await loaded(client, session_id, cwd)
        assert result["modes"]["currentModeId"] == "ask"
        await client.prompt("run it", within=20)
        assert len(client.recording.requests("session/request_permission")) == 1
        since = client.mark()
        await client.prompt("and?", within=20)
        assert client.text(since=since) == "You told me: run it; run it"
