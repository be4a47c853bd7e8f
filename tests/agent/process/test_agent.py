"""The agent as a process: killed, stopped and left, at moments that gates force."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
)

from agent.conversation.entries import INTERRUPTED
from tests.agent.process.conftest import ROOT, Start
from tests.agent.support import Fifo
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.processes import all_gone, marked

pytestmark = [pytest.mark.process, pytest.mark.slow]

STORY = """\
when: story
text: Once upon
gate: middle
text: a time
when: who
remember
turn
text: Noted.
"""
#: the command says that it runs to a fifo of the test's, and has children that would outlive it
COMMAND = """\
turn
text: Look:
call: shell {"command": "(sleep 600 & wait) & sleep 600 & echo >running; wait"}
---
text: done
"""


async def opened(client: RecordingClient, cwd: Path) -> str:
    # no terminals: the agent runs commands itself
    await client.initialize({"fs": {"readTextFile": True}}, within=20)
    return await client.new_session(cwd)


def given(model_log: Path) -> list[dict[str, Any]]:
    """The messages of the model's last call, without the system prompt."""
    messages: list[dict[str, Any]] = json.loads(model_log.read_text().splitlines()[-1])["messages"]
    assert messages[0]["role"] == "system"
    return messages[1:]


def shown_again(client: RecordingClient, since: int) -> list[tuple[str, str]]:
    """What a replay says: (kind, text)."""
    return [
        (update["sessionUpdate"], update["content"]["text"])
        for update in client.updates(since=since)
        if isinstance(update.get("content"), dict)
    ]


# killed


@pytest.mark.hazard("K1", "C17", "R1", "P12")
async def test_killed_in_the_middle_what_was_shown_is_shown_again_and_given_to_the_model(
    start: Start, cwd: Path, gates: Gates, model_log: Path
) -> None:
    async with start(STORY) as client:
        session_id = await opened(client, cwd)
        await client.prompt("I am Ann")
        client.send_prompt("A story")
        await gates.reached("middle")
        await client.until_text("Once upon")
        client.kill()
        await client.wait()
    async with start(STORY) as client:
        await client.initialize(within=20)
        since = client.mark()
        await client.load_session(session_id, cwd)
        assert shown_again(client, since) == [
            ("user_message_chunk", "I am Ann"),
            ("agent_message_chunk", "Noted."),
            ("user_message_chunk", "A story"),
            ("agent_message_chunk", "Once upon"),
        ]
        since = client.mark()
        await client.prompt("who am I?")
        assert client.text(since=since) == "You told me: I am Ann; A story"
    assert given(model_log) == [
        {"role": "user", "content": "I am Ann"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "A story"},
        {"role": "assistant", "content": "Once upon"},
        {"role": "user", "content": "who am I?"},
    ]


@pytest.mark.hazard("C17.2", "C16")
async def test_killed_while_the_user_is_asked_the_call_has_a_result_after_the_load(
    start: Start, cwd: Path, model_log: Path
) -> None:
    async with start(COMMAND) as client:
        session_id = await opened(client, cwd)
        client.side.permission = "never"
        client.send_prompt("go")
        await client.until_request("session/request_permission")
        client.kill()
        await client.wait()
    async with start("turn\ntext: fine") as client:
        await client.initialize(within=20)
        since = client.mark()
        await client.request(
            "session/load", {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        )
        cards = [u["status"] for u in client.updates(since=since) if "toolCallId" in u]
        assert cards == ["pending", "failed"]
        await client.prompt("again", session_id)
    roles = [message["role"] for message in given(model_log)]
    assert roles == ["user", "assistant", "tool", "user"]
    assert given(model_log)[2]["content"] == INTERRUPTED


# cancelled


@pytest.mark.hazard("C10.3", "C16.2", "C17.2")
async def test_cancelled_in_a_command_its_tree_is_dead_when_the_prompt_is_answered(
    start: Start, cwd: Path, running: Fifo, mark: str, model_log: Path
) -> None:
    async with start(COMMAND) as client:
        await opened(client, cwd)
        client.side.permission = "allow"
        prompt = client.send_prompt("go")
        await running.lines()
        assert len(marked(mark)) > 1
        client.cancel()
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
        assert client.process is not None
        assert marked(mark) == [client.process.pid]
        cards = [u["status"] for u in client.updates() if "toolCallId" in u]
        assert cards == ["pending", "in_progress", "failed"]
        client.side.permission = "reject"
        await client.prompt("again")
    results = [m["content"] for m in given(model_log) if m["role"] == "tool"]
    assert results == [INTERRUPTED, "The user did not allow it."]


@pytest.mark.hazard("C4.2", "C3")
async def test_a_cancel_is_read_in_the_middle_of_a_flood(start: Start, cwd: Path) -> None:
    async with start("turn\ntext: x") as client:
        await opened(client, cwd)
        running = client.send_prompt("BENCH n=1000000 gap=0 tag=F")
        await client.until_text("F100@")
        client.cancel()
        assert (await client.answer_to(running))["result"] == {"stopReason": "cancelled"}
        since = client.mark()
        await client.prompt("BENCH n=2 gap=0 tag=G")
        assert "F" not in client.text(since=since)


# ended


@pytest.mark.hazard("P2.2", "P1.1", "P1.3")
@pytest.mark.parametrize("way", ["eof", signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.usefixtures("whole_starts")
async def test_on_every_way_out_it_exits_with_0_and_leaves_no_process(
    start: Start, cwd: Path, running: Fifo, mark: str, way: str | signal.Signals
) -> None:
    async with start(COMMAND) as client:
        await opened(client, cwd)
        client.side.permission = "allow"
        prompt = client.send_prompt("go")
        await running.lines()
        if isinstance(way, signal.Signals):
            client.terminate(way)
        else:
            client.close_stdin()
        assert await client.wait(within=3) == 0
        await all_gone(mark)
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}


@pytest.mark.hazard("P2")
async def test_a_model_that_ignores_cancellation_does_not_keep_the_process(
    start: Start, cwd: Path, gates: Gates
) -> None:
    async with start("turn\ndeaf\ngate: never") as client:
        await opened(client, cwd)
        client.send_prompt("x")
        await gates.reached("never")
        client.terminate()
        assert await client.wait(within=4) == 0


STUBBORN = """
import agent.__main__, agent.providers.all_models, asyncio
from agent.model import ModelInfo
from tests.agent.support import OneModel

class Stubborn:
    id = "stubborn"

    async def info(self):
        return ModelInfo()

    async def complete(self, messages, tools, on_token):
        await on_token("listening")
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

agent.providers.all_models.AllModels = lambda *_, **__: OneModel(Stubborn())
agent.__main__.main()
"""


@pytest.mark.hazard("P2")
async def test_a_model_that_swallows_cancellation_does_not_either(
    process_env: dict[str, str], cwd: Path
) -> None:
    command = [sys.executable, "-c", STUBBORN]
    async with RecordingClient.start(command, env=process_env) as client:
        await opened(client, cwd)
        client.send_prompt("x")
        await client.until_text("listening")
        client.close_stdin()
        assert await client.wait(within=5) == 0


@pytest.mark.hazard("P2")
async def test_a_client_that_reads_nothing_does_not_keep_the_process(
    start: Start, cwd: Path
) -> None:
    async with start("turn\ntext: x") as client:
        await opened(client, cwd)
        client.send_prompt("BENCH n=1000000 gap=0 tag=F")
        await client.until_text("F100@")
        client.pipe.pause_reading()
        client.terminate()
        assert await client.wait(within=5) == 0


@pytest.mark.hazard("P4.1")
async def test_what_a_command_prints_by_itself_never_reaches_stdout(
    start: Start, cwd: Path
) -> None:
    dialogue = 'turn\ncall: shell {"command": "echo from the command; echo e >&2"}\n---\ntext: ok'
    async with start(dialogue) as client:
        await opened(client, cwd)
        client.side.permission = "allow"
        await client.prompt("x")
        assert all(record.message is not None for record in client.recording)


# started


@pytest.mark.parametrize("argument", ["scripted:/nowhere", "scripted:"])
def test_a_dialogue_that_is_none_is_told_in_one_line(argument: str) -> None:
    done = run_agent("--model", argument)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_setting_that_is_none_is_told_in_one_line() -> None:
    done = run_agent(ACP_BRIDGE_MAX_CALLS="many")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agent: ACP_BRIDGE_MAX_CALLS: a whole number from 1\n"


def test_help_is_shown_without_waiting_for_the_sdk() -> None:
    code = "import sys, agent.__main__ as a; sys.argv[1:] = ['--help']; "
    check = "sys.stderr.write(str({'acp', 'pydantic', 'anyio', 'litellm'} & set(sys.modules)))"
    program = f"{code}\ntry: a.main()\nfinally: {check}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "usage: acp-bridge agent" in done.stdout
    assert done.stderr == "set()"


def run_agent(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )


# the official SDK's own client


class Editor:
    """A client as the SDK wants it: allows what it is asked."""

    def __init__(self) -> None:
        self.updates: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        chosen = next(option.option_id for option in options if option.kind == "allow_once")
        outcome = AllowedOutcome(outcome="selected", option_id=chosen)
        return RequestPermissionResponse(outcome=outcome)


def words(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


async def test_the_official_client_prompts_allows_cancels_and_loads(
    cwd: Path, process_env: dict[str, str], gates: Gates, tmp_path: Path
) -> None:
    dialogue = tmp_path / "d.txt"
    dialogue.write_text('when: run\ncall: shell {"command": "echo hi"}\n---\necho\n' + STORY)
    editor: Any = Editor()
    command = [sys.executable, "-m", "agent", "--model", f"scripted:{dialogue}"]
    env = {**os.environ, **process_env}
    with anyio.fail_after(30):
        async with acp.spawn_agent_process(
            editor, *command, env=env, use_unstable_protocol=True
        ) as (agent, process):
            await agent.initialize(protocol_version=1)
            session = (await agent.new_session(cwd=str(cwd), mcp_servers=[])).session_id
            ran = await agent.prompt(session_id=session, prompt=[words("run it")])
            assert ran.stop_reason == "end_turn"
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await gates.reached("middle")
                    await agent.cancel(session_id=session)

                tasks.start_soon(cancel)
                told = await agent.prompt(session_id=session, prompt=[words("story")])
            assert told.stop_reason == "cancelled"
            before = len(editor.updates)
            await agent.load_session(cwd=str(cwd), session_id=session, mcp_servers=[])
            kinds = [update.session_update for update in editor.updates[before:]]
            assert kinds[0] == "user_message_chunk"
            assert kinds.count("tool_call") == kinds.count("tool_call_update") == 1
            await agent.close_session(session_id=session)
        assert process.returncode == 0
