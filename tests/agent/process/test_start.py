"""The agent as a process and what it is started with: keys, secrets, MCP servers, libraries."""

import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from tests.agent.mcp_servers.support import odd, stdio
from tests.agent.process.conftest import ROOT, Start
from tests.agent.talking import error_of
from tests.support.client import RecordingClient
from tests.support.processes import MARK, all_gone, marked
from tests.support.recording import RpcError

pytestmark = [pytest.mark.process, pytest.mark.slow]

HELLO = "turn\ntext: fine"
MODEL = "openai/gpt-4o"
#: no key of the machine's is used by a test
NO_KEYS = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "OPENAI_API_BASE": ""}
KEY = "sk-made-up-0123456789"


async def opened(client: RecordingClient, cwd: Path, *servers: object) -> str:
    """Without files and terminals of the client's."""
    await client.initialize({}, within=20)
    return await client.new_session(cwd, mcpServers=list(servers))


# libraries


def test_no_model_library_is_needed_to_answer_initialize() -> None:
    code = "import sys, agent.serve.connection, agent.providers.all_models, agent.tools.standard"
    check = "print({'litellm', 'openai', 'mcp', 'httpx', 'dotenv'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {check}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.hazard("P2", "P4")
async def test_the_import_of_the_model_library_holds_up_neither_answers_nor_the_end(
    start: Start, cwd: Path
) -> None:
    async with start("", model=MODEL, env={**NO_KEYS, "OPENAI_API_KEY": KEY}) as client:
        await opened(client, cwd)
        client.terminate()
        assert await client.wait(within=3) == 0
        assert all(record.message is not None for record in client.recording)


async def test_a_model_of_an_unknown_form_is_told_by_the_prompt(start: Start, cwd: Path) -> None:
    async with start("", model="nonsense/nothing") as client:
        await opened(client, cwd)
        with pytest.raises(RpcError, match=r"-32603 .*nonsense") as caught:
            await client.prompt("x", within=30)
        assert caught.value.data == {"details": caught.value.message}
        assert all(record.message is not None for record in client.recording)


# keys


async def test_a_key_written_into_the_file_of_keys_is_found_without_a_restart(
    start: Start, cwd: Path, tmp_path: Path
) -> None:
    async with start("", model=MODEL, env=NO_KEYS) as client:
        await client.initialize(within=20)
        error = await error_of(client, "session/new", {"cwd": str(cwd), "mcpServers": []})
        assert (error.code, "OPENAI_API_KEY" in error.message) == (-32000, True)
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / "keys.env").write_text(f"OPENAI_API_KEY={KEY}\n")
        assert await client.request("authenticate", {"methodId": "api-key"}) == {}
        await client.new_session(cwd)
        assert KEY not in str(client.recording)


@pytest.mark.hazard("K5.1")
async def test_a_key_from_the_file_of_keys_is_masked_too(
    start: Start, cwd: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    keys = tmp_path / "home" / "keys.env"
    keys.write_text(f"OPENAI_API_KEY={KEY}\n")
    dialogue = f'turn\ncall: read_file {{"path": "{keys}"}}\n---\ntext: {{result}}'
    async with start(dialogue, env=NO_KEYS) as client:
        await opened(client, cwd)
        client.side.permission = "allow"
        await client.prompt("x")
        assert "OPENAI_API_KEY=***" in client.text()
        assert KEY not in str(client.recording)


# secrets


@pytest.mark.hazard("K5.1")
async def test_secrets_reach_neither_client_nor_model_nor_disk_and_tools_get_no_key(
    start: Start, cwd: Path, tmp_path: Path, model_log: Path
) -> None:
    (cwd / "note.txt").write_text(f"the key is {KEY}, keep it")
    shell = """call: shell {"command": "echo $DEPLOY_TOKEN, [$OPENAI_API_KEY]"}"""
    dialogue = f'turn\ncall: read_file {{"path": "note.txt"}}\n{shell}\n---\ntext: {{result}}'
    env = {"OPENAI_API_KEY": KEY, "DEPLOY_TOKEN": "deploy-0123456789"}
    async with start(dialogue, env=env) as client:
        await opened(client, cwd)
        client.side.permission = "allow"
        await client.prompt("go")
        assert client.text() == "***, []\n"
        kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
        assert kept
        written = "".join(path.read_text() for path in [*kept, model_log])
        for secret in env.values():
            assert secret not in written + str(client.recording) + client.stderr.decode()


@pytest.mark.hazard("K5", "K7.2")
@pytest.mark.usefixtures("whole_starts")
async def test_no_process_of_ours_shows_a_key_in_proc(
    start_either: Start, cwd: Path, mark: str
) -> None:
    """Also to root, and to a command of the model's, which is a process of the same user."""
    key = f"sk-{uuid4().hex}"
    command = "cat /proc/$PPID/environ /proc/[0-9]*/environ >seen 2>/dev/null; env >>seen"
    dialogue = f'turn\ncall: shell {{"command": "{command}"}}\n---\ntext: done'
    keys = {"OPENAI_API_KEY": key, "MISTRAL_API_KEY": f"x{key}"}
    env = {**NO_KEYS, **keys, "ACP_BRIDGE_DEBUGGABLE": ""}
    async with start_either(dialogue, env=env) as client:
        await opened(client, cwd)
        client.side.permission = "allow"
        await client.prompt("go")
        seen = (cwd / "seen").read_bytes()
    assert f"{MARK}={mark}".encode() in seen
    assert key.encode() not in seen


# tools


@pytest.mark.hazard("C10.3", "P1")
async def test_what_a_command_that_kills_its_guard_leaves_is_dead_when_the_call_has_ended(
    start: Start, cwd: Path, mark: str
) -> None:
    command = "setsid sleep 600 & setsid setsid sleep 600 & sleep 600 & kill -9 $PPID; sleep 600"
    call = f'call: shell {{"command": "{command}"}}'
    async with start(f"turn\n{call}\n---\ntext: {{result}}") as client:
        await opened(client, cwd)
        client.side.permission = "allow"
        await client.prompt("go")
        assert client.text() == "[ended by SIGKILL]"
        assert client.process is not None
        assert marked(mark) == [client.process.pid]


# MCP servers


@pytest.mark.hazard("P1", "P2", "P7.1")
@pytest.mark.parametrize("way", ["eof", "close"])
async def test_no_mcp_server_outlives_its_session_however_stubborn(
    start: Start, cwd: Path, mark: str, way: str
) -> None:
    servers = odd("polite", mark=mark), odd("stubborn", "stubborn", "child", mark=mark)
    async with start(HELLO) as client:
        session_id = await opened(client, cwd, *servers)
        await client.prompt("x", within=20)
        if way == "close":
            await client.request("session/close", {"sessionId": session_id}, within=10)
            assert client.process is not None
            assert marked(mark) == [client.process.pid]
            return
        client.close_stdin()
        assert await client.wait(within=4) == 0
        await all_gone(mark)


async def test_a_dead_server_is_told_and_the_tools_of_others_work(
    start: Start, cwd: Path, mark: str
) -> None:
    dead = stdio("dead", "/no/such/server", mark=mark)
    dialogue = 'turn\ncall: mcp__polite__echo {"text": "hello"}\n---\ntext: {result}'
    async with start(dialogue) as client:
        await opened(client, cwd, dead, odd("polite", mark=mark))
        client.side.permission = "allow"
        assert (await client.prompt("x", within=20))["stopReason"] == "end_turn"
        assert ("dead" in client.text(), "hello" in client.text()) == (True, True)


@pytest.mark.hazard("C4")
def test_a_stderr_that_nobody_reads_holds_up_nothing_that_is_logged_or_printed() -> None:
    flood = """
import logging, os, sys
from agent import __main__ as agent

async def serve(stdin, stdout, *rest):
    for _ in range(100):
        logging.getLogger("litellm").warning("l" * 5000)
        print("p" * 5000)
        print("e" * 5000, file=sys.stderr)
    os.write(stdout, b"done")
    os._exit(0)

agent._serve = serve
sys.argv[1:] = ["--model", "demo"]
agent.main()
"""
    command = [sys.executable, "-c", flood]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        killer = threading.Timer(20, process.kill)
        killer.start()
        assert process.stdout
        said = process.stdout.read()
        killer.cancel()
    assert said == b"done"
