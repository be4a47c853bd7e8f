"""The agent-server behind the bridge, under clients that are not ours.

The scenarios of the TypeScript SDK's client stand in tests/clients_not_ours/sdk_scenarios.mjs, with
the words of this model. Every message of theirs is judged by the SDK's schema.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.schema import AllowedOutcome, ClientCapabilities, RequestPermissionResponse

from tests.clients_not_ours.conftest import HERE, Tape
from tests.clients_not_ours.test_acpx import Acpx, opened
from tests.openhands_not_ours.model import ModelServer, words
from tests.openhands_not_ours.server import SECOND, AgentServer, Api
from tests.openhands_not_ours.stand import adapter, bridge, numbers, run_command
from tests.support.processes import gone

pytestmark = pytest.mark.process
#: seconds for a scenario: its processes start on a machine that may be busy
LIMIT = 120
LANGUAGE: dict[str, Any] = {
    "words": {tag: f"SAY {tag} 20" for tag in "ABC"},
    "forever": "SAY X 99 GATE never AT 9",
    "permission": run_command("echo P-done"),
    "decided": ["DONE P-done", "DONE Action"],
    "mode": "always",
    "option": {"configId": "model", "value": SECOND},
}


@pytest.fixture
async def asking(server: AgentServer) -> AsyncIterator[None]:
    """New conversations ask about every action, as the server's own settings have it."""
    api = Api(server.url)
    for mode in (True, False):
        settings = {"confirmation_mode": mode, "security_analyzer": None}
        await api.ask("PATCH", "/api/settings", {"conversation_settings_diff": settings})
        if mode:
            yield
    await api.close()


@pytest.mark.parametrize(
    "scenario",
    [
        "three-prompts-at-once",
        "cancel-mid-stream",
        "cancel-of-one-request",
        "permission-round-trip",
        "mode-and-options",
        "load-after-the-bridge-was-killed",
    ],
)
async def test_the_typescript_sdks_client(
    scenario: str,
    server: AgentServer,
    asking: None,
    modules: Path,
    tape: Tape,
    folder: Path,
    client_env: dict[str, str],
) -> None:
    node = shutil.which("node")
    assert node, "there is no node"
    command = tape.of(*bridge(server.url))
    given = {"command": command, "tape": str(tape.path), "cwd": str(folder), **LANGUAGE}
    with anyio.fail_after(LIMIT):
        done = await anyio.run_process(
            [node, str(HERE / "sdk_scenarios.mjs"), scenario],
            env={**client_env, "GIVEN": json.dumps(given)},
            check=False,
            stderr=subprocess.STDOUT,
        )
    assert done.returncode == 0, done.stdout.decode()
    assert "session/prompt" in tape.judge().methods


@pytest.fixture
async def acpx(
    server: AgentServer,
    modules: Path,
    tape: Tape,
    folder: Path,
    client_env: dict[str, str],
    acpx_home: str,
) -> AsyncIterator[Acpx]:
    env = {**client_env, "HOME": acpx_home}
    async with opened(modules, tape.of(*bridge(server.url)), env, folder) as acpx:
        yield acpx


async def test_acpx_prompts_cancels_and_goes_on(acpx: Acpx, model: ModelServer) -> None:
    first = await acpx.run("prompt", "SAY A 5")
    assert (first.stop_reason, numbers(first.text, "A")) == ("end_turn", [0, 1, 2, 3, 4])
    await acpx.run("set-mode", "never")
    ran = await acpx.run("prompt", run_command("echo from-acpx"))
    assert (ran.cards(), ran.stop_reason) == (["completed"], "end_turn")
    async with acpx.streaming("prompt", "SAY X 9 GATE acpx AT 3") as prompt:
        (cancelled,) = (await acpx.run("cancel")).lines
        assert cancelled["cancelled"] is True
    assert prompt.stop_reason == "cancelled"
    model.open("acpx")
    assert numbers((await acpx.run("prompt", "SAY B 3")).text, "B") == [0, 1, 2]


async def test_acpx_resumes_after_the_bridge_was_killed_and_the_model_remembers(
    acpx: Acpx, tape: Tape, model: ModelServer
) -> None:
    await acpx.run("prompt", "SAY A 5")
    first = tape.bridges()[-1]
    os.kill(first, signal.SIGKILL)
    await gone(first)
    resumed = await acpx.run("prompt", "SAY RESUMED 2")
    assert (resumed.stop_reason, numbers(resumed.text, "RESUMED")) == ("end_turn", [0, 1])
    (body,) = model.asked("SAY RESUMED 2")
    assert "SAY A 5" in model.heard(body)


class Editor:
    """The Python SDK's client: collects what it is shown, allows what it is asked."""

    def __init__(self) -> None:
        self.text = ""
        self.spoken = anyio.Event()
        self.asked: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
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


async def _prompt(connection: Any, session: str, text: str) -> str:
    answer = await connection.prompt(session_id=session, prompt=[acp.text_block(text)])
    return str(answer.stop_reason)


@asynccontextmanager
async def _connected(command: list[str], editor: Any, env: dict[str, str]) -> AsyncIterator[Any]:
    """The SDK's connection, initialized."""
    with anyio.fail_after(LIMIT):
        async with acp.spawn_agent_process(
            editor, *command, env=env, use_unstable_protocol=True
        ) as (connection, _):
            await connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities()
            )
            yield connection


@pytest.mark.parametrize("make", [adapter, bridge], ids=["alone", "bridged"])
async def test_the_python_sdks_client(
    make: Any, server: AgentServer, asking: None, folder: Path, client_env: dict[str, str]
) -> None:
    editor, again, command = Editor(), Editor(), make(server.url)
    async with _connected(command, editor, client_env) as connection:
        session = (await connection.new_session(cwd=str(folder), mcp_servers=[])).session_id
        assert await _prompt(connection, session, "SAY A 5") == "end_turn"
        assert words("A", 5) in editor.text
        assert await _prompt(connection, session, run_command("echo allowed")) == "end_turn"
        assert len(editor.asked) == 1
        assert "DONE allowed" in editor.text
        editor.spoken = anyio.Event()
        answers: list[str] = []

        async def run_long() -> None:
            answers.append(await _prompt(connection, session, "SAY X 99 GATE never AT 9"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_long)
            await editor.spoken.wait()
            await connection.cancel(session_id=session)
        assert answers == ["cancelled"]
        assert await _prompt(connection, session, "SAY B 2") == "end_turn"
    async with _connected(command, again, client_env) as connection:
        await connection.load_session(session_id=session, cwd=str(folder), mcp_servers=[])
        assert numbers(again.text, "A") == [0, 1, 2, 3, 4]
        assert numbers(again.text, "B") == [0, 1]
