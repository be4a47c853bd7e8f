"""An agent is started, introduces itself or does not, and is gone afterwards."""

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from acp_bridge.commands.doctor import agent
from acp_bridge.commands.doctor import trial as trials
from acp_bridge.commands.doctor.agent import check
from acp_bridge.commands.doctor.trial import Trial, try_agent
from acp_bridge.keys.masking import Mask
from acp_bridge.settings import AgentProtocol
from tests.commands.doctor.subjects import levels, subject, texts
from tests.process.tiny_agent import tiny_agent
from tests.support.fixture_agents import FOLDER
from tests.support.processes import MARK, marked

pytestmark = pytest.mark.process
PATIENCE = 30


@pytest.fixture(autouse=True)
async def nothing_is_left(mark: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Every process of an agent has ended when its trial has."""
    monkeypatch.setenv(MARK, mark)
    yield
    assert marked(mark) == []


async def tried(folder: Path, code: str, within: float = PATIENCE) -> Trial:
    with anyio.fail_after(PATIENCE):
        return await try_agent(tiny_agent(folder, code), within)


async def test_an_agent_that_works_is_timed(tmp_path: Path) -> None:
    trial = await tried(tmp_path, "CAN = {'loadSession': True}")
    assert trial.result == {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    assert trial.seconds > 0


async def test_lines_that_are_no_messages_are_noted_and_the_answer_still_counts(
    tmp_path: Path,
) -> None:
    trial = await tried(tmp_path, "os.write(1, b'Loading...\\nready\\n')")
    assert trial.noise == "Loading..."
    assert trial.result is not None


async def test_an_agent_that_ends_at_once_says_how_and_its_last_words_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_LAST_MOMENT", PATIENCE)
    trial = await tried(tmp_path, "print('no config', file=sys.stderr); os._exit(3)")
    assert (trial.ended, trial.exit and trial.exit.code) == (True, 3)
    assert list(trial.stderr) == ["no config"]


async def test_an_agent_whose_child_keeps_its_stdout_has_ended_all_the_same(
    tmp_path: Path,
) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '600']); os._exit(0)"
    trial = await tried(tmp_path, code)
    assert (trial.ended, trial.exit and trial.exit.code) == (True, 0)


async def test_an_agent_that_closes_its_stdout_and_lives_on_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_LAST_MOMENT", 0.1)
    trial = await tried(tmp_path, "os.close(1); time.sleep(600)")
    assert (trial.ended, trial.exit, trial.answer) == (True, None, None)


async def test_an_agent_that_never_answers_is_given_up(tmp_path: Path) -> None:
    trial = await tried(tmp_path, "def initialize(id, params): pass", within=0.5)
    assert (trial.answer, trial.ended, trial.failed) == (None, False, None)


async def test_an_agent_that_asks_first_is_refused_and_may_go_on(tmp_path: Path) -> None:
    code = """
def initialize(id, params):
    send(id=1, method="fs/read_text_file", params={})
    answer = json.loads(sys.stdin.readline())
    return {"protocolVersion": 1, "said": answer["error"]["code"]}
"""
    trial = await tried(tmp_path, code)
    assert trial.result["said"] == -32601


async def test_an_error_is_an_answer(tmp_path: Path) -> None:
    code = "def initialize(id, params): return {'error': {'code': -32000, 'message': 'log in'}}"
    trial = await tried(tmp_path, code)
    assert trial.error is not None
    assert (trial.error.code, trial.error.message) == (-32000, "log in")


async def test_a_script_whose_interpreter_is_gone_does_not_start(tmp_path: Path) -> None:
    script = tmp_path / "agent"
    script.write_text("#!/gone/python\n")
    os.chmod(script, 0o755)
    found = await agent.check(subject(tmp_path, [str(script)]))
    assert levels(found) == ["ok", "error"]
    assert "does not start: command not found" in texts(found)
    assert "the interpreter exist that its first line names" in texts(found)


async def test_a_check_tells_where_the_agent_is_and_what_it_can(tmp_path: Path) -> None:
    command = tiny_agent(tmp_path, "CAN = {'loadSession': True}")
    found = await agent.check(subject(tmp_path, command))
    assert levels(found) == ["ok"] * 4
    assert f"is {sys.executable}" in found[0].text
    assert str(tmp_path) not in texts(found)  # arguments may hold secrets


async def test_a_secret_that_an_agent_says_is_masked_before_its_words_are_cut(
    tmp_path: Path,
) -> None:
    secret = "s3cret-value"
    code = f"print('x' * 295 + {secret!r}, file=sys.stderr); os._exit(1)"
    about = replace(subject(tmp_path, tiny_agent(tmp_path, code)), mask=Mask([secret]))
    assert "s3c" not in texts(await agent.check(about))


async def test_an_agent_that_is_not_there_is_not_started(tmp_path: Path) -> None:
    found = await agent.check(subject(tmp_path, ["no-such-agent"]))
    assert levels(found) == ["error"]


async def test_a_trial_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "up").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "up")
    code = f"open({str(tmp_path / 'up')!r}, 'w').close(); time.sleep(600)"
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(try_agent, tiny_agent(tmp_path, code), 600)
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
