"""A client that is not ours: the official Python SDK's, against the bridge and its own agent."""

import os
import sys
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    FileEditToolCallContent,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
)

pytestmark = pytest.mark.process
DIALOGUE = """
turn
call: read_file {"path": "a.py"}
---
call: edit_file {"path": "a.py", "old": "1", "new": "2"}
---
text: Done.
"""
BRIDGE = (sys.executable, "-m", "acp_bridge")


class Editor:
    """Collects what it is shown; its files are the disk's; allows once what it is asked."""

    def __init__(self) -> None:
        self.text = ""
        self.spoken = anyio.Event()
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text
            self.spoken.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> Any:
        self.asked.append(tool_call)
        option = next(option for option in options if option.kind == "allow_once")
        chosen = AllowedOutcome(outcome="selected", option_id=option.option_id)
        return RequestPermissionResponse(outcome=chosen)

    async def read_text_file(self, path: str, session_id: str, **kwargs: Any) -> Any:
        return ReadTextFileResponse(content=await anyio.Path(path).read_text())


def _bridge(editor: Any, home: Path, **settings: str) -> Any:
    env = {**os.environ, "ACP_BRIDGE_HOME": str(home), **settings}
    return acp.spawn_agent_process(editor, *BRIDGE, env=env, use_unstable_protocol=True)


async def _initialize(connection: Any) -> Any:
    fs = FileSystemCapabilities(read_text_file=True)
    return await connection.initialize(
        protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities(fs=fs)
    )


async def test_the_sdks_client_prompts_cancels_lists_and_loads(tmp_path: Path) -> None:
    editor = Editor()
    with anyio.fail_after(30):
        async with _bridge(editor, tmp_path) as (connection, _):
            agreed = await _initialize(connection)
            assert agreed.protocol_version == 1
            assert agreed.agent_capabilities.load_session
            session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            sid = session.session_id
            words = [acp.text_block("BENCH n=3 gap=0 tag=A")]
            answer = await connection.prompt(session_id=sid, prompt=words)
            assert answer.stop_reason == "end_turn"
            assert editor.text.count("@") == 3

            editor.spoken = anyio.Event()
            answers: list[str] = []

            async def run_long() -> None:
                long = [acp.text_block("BENCH n=100000 gap=5 tag=B")]
                answer = await connection.prompt(session_id=sid, prompt=long)
                answers.append(answer.stop_reason)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_long)
                await editor.spoken.wait()
                await connection.cancel(session_id=sid)
            assert answers == ["cancelled"]

            listed = await connection.list_sessions(cwd=str(tmp_path))
            assert [row.session_id for row in listed.sessions] == [sid]
            await connection.close_session(session_id=sid)
        shown = editor.text

    editor = Editor()
    with anyio.fail_after(30):
        async with _bridge(editor, tmp_path) as (connection, _):
            await _initialize(connection)
            await connection.load_session(session_id=sid, cwd=str(tmp_path), mcp_servers=[])
            assert editor.text == f"{shown}\n\n[acp-bridge] Stopped.\n\n"  # the answer said it


async def test_the_sdks_client_allows_an_edit_whose_diff_it_was_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    dialogue = tmp_path / "dialogue.txt"
    dialogue.write_text(DIALOGUE)
    editor = Editor()
    with anyio.fail_after(30):
        model = f"scripted:{dialogue}"
        async with _bridge(editor, tmp_path, ACP_BRIDGE_MODEL=model) as (connection, _):
            await _initialize(connection)
            session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            words = [acp.text_block("Change it")]
            answer = await connection.prompt(session_id=session.session_id, prompt=words)
    assert answer.stop_reason == "end_turn"
    diff = FileEditToolCallContent(
        type="diff", path=str(file), old_text="x = 1\n", new_text="x = 2\n"
    )
    (asked,) = editor.asked
    assert asked.content == [diff]
    assert file.read_text() == diff.new_text
    shown = [update.content for update in editor.updates if _about(update, asked.tool_call_id)]
    assert shown[-1] == [diff]
    assert editor.text == "Done."


def _about(update: Any, call: str) -> bool:
    return getattr(update, "tool_call_id", "") == call
