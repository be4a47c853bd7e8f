"""An agent is started, introduces itself or does not, and is gone afterwards."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.settings import AgentProtocol
from acp_bridge.terminal.doctor.agent import check
from acp_bridge.terminal.doctor.findings import Finding
from tests.support.fixture_agents import FOLDER
from tests.support.processes import MARK, marked
from tests.terminal.doctor.subjects import levels, subject, texts
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process
PATIENCE = 30


@pytest.fixture(autouse=True)
async def nothing_is_left(mark: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Every process of an agent has ended when its trial has."""
    monkeypatch.setenv(MARK, mark)
    yield
    assert marked(mark) == []


async def tried(folder: Path, code: str, within: float = PATIENCE) -> list[Finding]:
    about = subject(folder, tiny_agent(folder, code), start_timeout=within)
    with anyio.fail_after(PATIENCE):
        return await check(about)


async def test_an_agent_that_works_is_timed(tmp_path: Path) -> None:
    found = await tried(tmp_path, "CAN = {'loadSession': True}")
    assert found[1].data["initializeMs"] > 0


async def test_the_session_of_a_trial_is_in_the_folder_of_agents_and_ends_with_it(
    tmp_path: Path,
) -> None:
    code = f"""
CAN = {{"sessionCapabilities": {{"close": {{}}, "delete": {{}}}}}}
def note(what):
    with open({str(tmp_path / "heard")!r}, "a") as heard:
        print(what, file=heard)
def session_new(id, params):
    note("new " + params["cwd"])
    return {{"sessionId": "s"}}
def session_close(id, params):
    note("close " + params["sessionId"])
    return {{"error": {{"code": -32603, "message": "not today"}}}}
def session_delete(id, params):
    note("delete " + params["sessionId"])
    return {{}}
def session_prompt(id, params):
    note("prompt")
"""
    found = await tried(tmp_path, code)
    assert "it opened a session; no prompt was sent" in texts(found)
    heard = (tmp_path / "heard").read_text().splitlines()
    assert heard == [f"new {Path.cwd()}", "close s", "delete s"]


async def test_an_agent_that_refuses_a_session_has_introduced_itself(tmp_path: Path) -> None:
    code = """
def session_new(id, params):
    data = {"details": "no such model"}
    return {"error": {"code": -32603, "message": "Internal error", "data": data}}
"""
    found = await tried(tmp_path, code)
    assert "answered `initialize`" in found[1].text
    assert "answered session/new with an error: Internal error: no such model" in found[-1].text
    assert levels(found)[-1] == "error"


async def test_an_agent_that_wants_a_login_for_a_session_is_a_warning(tmp_path: Path) -> None:
    code = """
def session_new(id, params):
    return {"error": {"code": -32000, "message": "log in first"}}
"""
    found = await tried(tmp_path, code)
    assert levels(found)[-1] == "warning"
    assert "the agent wants a login: log in first" in found[-1].text


async def test_lines_that_are_no_messages_are_noted_and_the_answer_still_counts(
    tmp_path: Path,
) -> None:
    found = await tried(tmp_path, "os.write(1, b'Loading...\\nready\\n')")
    assert "not ACP to its stdout: Loading..." in texts(found)
    assert "answered `initialize`" in texts(found)


async def test_an_agent_whose_child_keeps_its_stdout_has_ended_all_the_same(
    tmp_path: Path,
) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '600']); os._exit(0)"
    assert "ended before it answered initialize (exit code 0)" in texts(await tried(tmp_path, code))


async def test_an_agent_that_closes_its_stdout_and_lives_on_is_ended(tmp_path: Path) -> None:
    found = texts(await tried(tmp_path, "os.close(1); time.sleep(600)"))
    assert "closed its stdin or stdout before it answered initialize" in found


async def test_an_agent_that_asks_first_is_refused_and_may_go_on(tmp_path: Path) -> None:
    code = """
def initialize(id, params):
    send(id=1, method="fs/read_text_file", params={})
    answer = json.loads(sys.stdin.readline())
    return {"protocolVersion": 1, "agentInfo": {"name": answer["error"]["code"]}}
"""
    assert "-32601 answered" in texts(await tried(tmp_path, code))


async def test_a_check_tells_where_the_agent_is_and_what_it_can(tmp_path: Path) -> None:
    command = tiny_agent(tmp_path, "CAN = {'loadSession': True}")
    found = await check(subject(tmp_path, command))
    assert levels(found) == ["ok"] * 5
    assert f"is {sys.executable}" in found[0].text
    assert str(tmp_path) not in texts(found)  # arguments may hold secrets


async def test_a_secret_that_an_agent_says_is_masked_before_its_words_are_cut(
    tmp_path: Path,
) -> None:
    secret = "s3cret-value"
    code = f"print('x' * 295 + {secret!r}, file=sys.stderr); os._exit(1)"
    (tmp_path / "keys.env").write_text(f"ANY_NAME={secret}\n")
    assert "s3c" not in texts(await tried(tmp_path, code))


async def test_a_trial_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "up").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "up")
    code = f"open({str(tmp_path / 'up')!r}, 'w').close(); time.sleep(600)"
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check, subject(tmp_path, tiny_agent(tmp_path, code)))
            await anyio.to_thread.run_sync((tmp_path / "up").read_bytes)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["", "--strict", "--answers-2"])
async def test_an_agent_of_version_2_is_asked_for_it(tmp_path: Path, way: str) -> None:
    program = [sys.executable, "-I", "-S", str(FOLDER / "v2_agent.py"), *filter(None, [way])]
    found = texts(await check(subject(tmp_path, program)))
    assert "v2-agent 1 answered `initialize`" in found
    assert "in ACP version 2" in found
    assert "it has: load, resume, list, close, images" in found
    only = subject(tmp_path, program, agent_protocol=AgentProtocol.V1)
    assert "error" in levels(await check(only))
