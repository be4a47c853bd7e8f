"""`acp-bridge run` as a script uses it: real processes, their output and their exit codes."""

import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import anyio
import pytest
from anyio.abc import Process

from tests.support import processes
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.processes import all_gone
from tests.whole.bridge_support import ROOT

pytestmark = pytest.mark.process

#: for what starts several interpreters
_SECONDS = 30.0


@dataclass(frozen=True)
class Terminal:
    """Where commands are run."""

    folder: Path
    env: dict[str, str]

    @asynccontextmanager
    async def start(
        self, *arguments: str, stdout: int, stderr: int | None = None
    ) -> AsyncIterator[Process]:
        command = [sys.executable, "-m", "acp_bridge", *arguments, "--", *fixture_command()]
        env = {**os.environ, **self.env}
        with anyio.fail_after(_SECONDS):
            async with await anyio.open_process(
                command, stdout=stdout, stderr=stderr, cwd=self.folder, env=env
            ) as process:
                yield process

    async def run(
        self, *arguments: str, stdin: bytes = b"", agent: Sequence[str] = ()
    ) -> tuple[int, str, str]:
        """The exit code, stdout and stderr of a command with an agent."""
        return await self.command(*arguments, "--", *fixture_command(*agent), stdin=stdin)

    async def command(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """The exit code, stdout and stderr of a command."""
        command = [sys.executable, "-m", "acp_bridge", *arguments]
        with anyio.fail_after(_SECONDS):
            done = await processes.run(command, self.env, self.folder, stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
async def terminal(tmp_path: Path, agent_env: dict[str, str], mark: str) -> AsyncIterator[Terminal]:
    """A terminal in a project's folder; no process is left of what is run there."""
    folder = tmp_path / "project"
    folder.mkdir()
    yield Terminal(folder, {**agent_env, "ACP_BRIDGE_HOME": str(tmp_path / "home")})
    await all_gone(mark)


async def test_a_script_gets_the_answer_and_goes_on_with_the_session(
    terminal: Terminal, agent_log: FixtureLog
) -> None:
    code, out, err = await terminal.run("run", "-", stdin=b"say hello; permission")
    assert (code, out) == (3, "hello\n\n[permission reject]\n")
    assert "acp-bridge: denied: " in err
    code, out, _ = await terminal.run("run", "--json", "--continue", "say more")
    *_, outcome = map(json.loads, out.splitlines())
    assert (code, outcome["stopReason"]) == (0, "end_turn")
    assert [turn["prompt"] for turn in agent_log.turns()] == ["say hello; permission", "say more"]
    assert agent_log.turns()[1]["history"] == ["say hello; permission"]
    session = str(outcome["sessionId"])
    code, out, _ = await terminal.run("run", "--session", session[:6], "say again")
    assert (code, out) == (0, "again\n")


@pytest.mark.hazard("A1.13")
async def test_a_run_that_allows_all_does_not_answer_for_hooks_that_can_not_be_read(
    terminal: Terminal,
) -> None:
    home = anyio.Path(terminal.env["ACP_BRIDGE_HOME"])
    await home.mkdir()
    await (home / "hooks.toml").symlink_to("nowhere")
    code, out, err = await terminal.run("run", "--permissions", "allow", "permission")
    assert (code, out) == (3, "[permission reject]\n")
    assert "leads nowhere" in err


async def test_a_signal_cancels_the_turn_and_waits_for_its_end(
    terminal: Terminal, agent_log: FixtureLog, gates: Gates
) -> None:
    async with terminal.start("run", "gate middle; say never", stdout=DEVNULL) as process:
        await gates.reached("middle")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert agent_log.received("session/cancel")
    assert [event["stop"] for event in agent_log.events("answered")] == ["cancelled"]


async def test_with_keep_the_turn_goes_on_when_the_terminal_has_gone(
    terminal: Terminal, agent_log: FixtureLog, gates: Gates
) -> None:
    run = terminal.start(
        "run", "--keep", "8h", "gate middle; say done", stdout=DEVNULL, stderr=PIPE
    )
    async with run as process:
        await gates.reached("middle")
        process.send_signal(signal.SIGHUP)
        assert process.stderr
        told = b"".join([each async for each in process.stderr]).decode()
        assert await process.wait() == 130
    session = re.search(r"the turn goes on: acp-bridge attach (\w+) shows it", told)
    assert session
    gates.open("middle")
    code, out, _ = await terminal.command("send", session[1], "--wait", "say after")
    assert (code, out) == (0, "after\n")
    assert [event["stop"] for event in agent_log.events("answered")] == ["end_turn"] * 2
    assert not agent_log.received("session/cancel")
    code, _, _ = await terminal.command("close", session[1])
    assert code == 0
    for each in (Path(terminal.env["ACP_BRIDGE_HOME"]) / "run").glob("*.json"):
        os.kill(json.loads(each.read_bytes())["pid"], signal.SIGTERM)


async def test_each_hint_names_the_data_folder_that_the_user_has_chosen(
    terminal: Terminal, tmp_path: Path
) -> None:
    home = anyio.Path(tmp_path / "my sessions")
    await home.mkdir()
    await (home / "permissions.toml").write_text('unattended = "wait"')
    named = f"--home '{home}'"
    run = terminal.start(
        "run", "--home", str(home), "permission; say done", stdout=PIPE, stderr=PIPE
    )
    async with run as process:
        assert process.stderr
        told = b""
        while not (found := re.search(rb"to answer: (.+) (\w+), or deny", told)):
            told += await process.stderr.receive()
        assert found[1].decode() == f"acp-bridge approve {named}"
        session = found[2].decode()
        _, listed, _ = await terminal.command("ps", "--home", str(home))
        assert f"(acp-bridge approve {named} {session}, or deny)" in listed
        words = shlex.split(f"{found[1].decode()} {session} --option allow")[1:]
        approved, _, _ = await terminal.command(*words)
        assert approved == 0
        assert await process.wait() == 0
    for path in (tmp_path / "my sessions" / "sessions").glob("*"):
        path.write_bytes(b"damaged")
    code, _, late = await terminal.command("show", "--home", str(home), session)
    assert code == 1
    assert f"`acp-bridge doctor {named}` says where" in late


async def test_when_nobody_reads_stdout_the_turn_is_cancelled(
    terminal: Terminal, agent_log: FixtureLog, gates: Gates
) -> None:
    reader, stdout = os.pipe()
    async with terminal.start("run", "gate middle; say unread; gate end", stdout=stdout) as process:
        os.close(stdout)
        await gates.reached("middle")
        os.close(reader)
        gates.open("middle")
        assert await process.wait() == 130
    assert agent_log.received("session/cancel")


async def test_on_one_terminal_progress_stands_below_the_line_of_the_answer(
    terminal: Terminal,
) -> None:
    prompt = "say one two three; tool t; permission; stop refusal"
    command = [sys.executable, "-m", "acp_bridge", "run", prompt, "--", *fixture_command()]
    env = {**os.environ, **terminal.env}
    with anyio.fail_after(_SECONDS):
        done = await anyio.run_process(
            command, stderr=STDOUT, cwd=terminal.folder, env=env, check=False
        )
    session, answer, card, *rest = done.stdout.decode().splitlines()
    assert (session.partition(" session ")[1], answer) == (" session ", "one two three")
    assert card.startswith("- ")
    assert rest[0].startswith("- ") or rest[0].startswith("acp-bridge: denied: ")
    assert rest[-1] == "acp-bridge: the agent refused"
    assert done.stdout.endswith(b"[permission reject]\nacp-bridge: the agent refused\n")


async def test_a_full_disk_behind_stdout_is_told_and_is_an_error(
    terminal: Terminal, agent_log: FixtureLog
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    command = [sys.executable, "-m", "acp_bridge", "run", "say a b c; gate never"]
    try:
        with anyio.fail_after(_SECONDS):
            done = await anyio.run_process(
                [*command, "--", *fixture_command()],
                stdout=full,
                stderr=PIPE,
                cwd=terminal.folder,
                env={**os.environ, **terminal.env},
                check=False,
            )
    finally:
        os.close(full)
    assert done.returncode == 1
    assert b"acp-bridge: stdout can't be written: No space left on device\n" in done.stderr
    assert done.stderr.endswith(b"acp-bridge: the turn was cancelled\n")
    assert agent_log.received("session/cancel")


async def test_an_agent_that_is_not_there_or_wants_a_login_has_an_exit_code_of_its_own(
    terminal: Terminal,
) -> None:
    code, out, err = await terminal.run("run", "hello", agent=["needs-auth"])
    assert (code, out) == (9, "")
    assert "the agent wants a login" in err
    code, _, err = await terminal.run("run", "--session", "nope", "hello")
    assert (code, err) == (1, "acp-bridge run: no session has an id that begins with 'nope'\n")


async def test_commands_that_the_built_in_agent_did_not_run_are_not_listed_as_run(
    terminal: Terminal,
) -> None:
    said = terminal.folder / "said.txt"
    calls = [f'call: shell {{"command": "touch made{number}"}}' for number in (1, 2)]
    said.write_text("\n".join(["turn", *calls, "---", "text: Well.", ""]))
    model = ("--model", f"scripted:{said}")
    _, out, _ = await terminal.command("run", *model, "--json", "go")
    *told, end = [json.loads(line) for line in out.splitlines()]
    ended = [each for each in told if each.get("update", {}).get("status") == "failed"]
    assert [each["_meta"] for each in ended] == [{"acp_bridge": {"ran": False}}] * 2
    _, out, _ = await terminal.command("show", end["sessionId"], "--files")
    assert out == "Nothing was read, edited or run.\n"


async def test_the_tokens_of_the_built_in_agent_are_counted(terminal: Terminal) -> None:
    said = terminal.folder / "said.txt"
    calls = ["turn", 'call: shell {"command": "true"}', "---", "text: one two three", ""]
    said.write_text("\n".join(calls))
    code, *_ = await terminal.command("run", "--model", f"scripted:{said}", "go")
    assert code == 3  # the command was denied
    _, out, _ = await terminal.command("cost", "--json")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert (row["turns"], row["untold"], row["uncounted"]) == (1, 0, [])
    tokens = row["tokens"]
    assert tokens["outputTokens"] >= 3
    assert tokens["totalTokens"] == tokens["inputTokens"] + tokens["outputTokens"]


async def test_without_a_key_the_demo_does_not_answer(terminal: Terminal) -> None:
    command = [sys.executable, "-m", "acp_bridge", "run", "hello"]
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env |= terminal.env
    with anyio.fail_after(2 * _SECONDS):
        done = await anyio.run_process(command, cwd=terminal.folder, env=env, check=False)
        assert (done.returncode, done.stdout) == (9, b"")
        assert b"no key of any provider" in done.stderr
        assert b"acp-bridge key" in done.stderr


async def test_an_error_that_the_log_has_more_of_says_which_log(
    terminal: Terminal, tmp_path: Path
) -> None:
    dialogue, home = tmp_path / "dialogue.txt", tmp_path / "home"
    dialogue.write_text("turn\nerror: other Wait a minute.\n")
    command = [sys.executable, "-m", "acp_bridge", "run", "--model", f"scripted:{dialogue}", "hi"]
    with anyio.fail_after(_SECONDS):
        env = {**os.environ, **terminal.env}
        done = await anyio.run_process(command, cwd=terminal.folder, env=env, check=False)
    told = re.search(r"The log has more under id (\w+): (\S+)\.\)", done.stderr.decode())
    assert told
    assert told[2] == str(home / "bridge.log")
    text = (home / "bridge.log").read_text()
    assert f"error id={told[1]}" in text
    assert "ModelError: Wait a minute." in text
    assert (home / "bridge.log").stat().st_mode & 0o777 == 0o600


async def test_closed_standard_descriptors_get_nothing_of_others(terminal: Terminal) -> None:
    command = [sys.executable, "-m", "acp_bridge", "run", "say hello", "--", *fixture_command()]
    env = {**os.environ, **terminal.env}
    with anyio.fail_after(_SECONDS):
        shell = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command]
        done = await anyio.run_process(shell, cwd=terminal.folder, env=env, check=False)
        assert (done.returncode, done.stdout) == (0, b"hello\n")
        shell[2] = 'exec "$@" >&-'
        done = await anyio.run_process(shell, cwd=terminal.folder, env=env, check=False)
        assert (done.returncode, b"there is no stdout" in done.stderr) == (1, True)


async def test_what_a_run_has_edited_is_shown_as_git_shows_it(terminal: Terminal) -> None:
    shutil.copytree(ROOT / "fixtures/example", terminal.folder, dirs_exist_ok=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        await anyio.run_process([*git, *words], cwd=terminal.folder)
    run = ["run", "--permissions", "allow", "--model", "scripted:answers"]
    code, _, _ = await terminal.command(*run, "parser.py fails on empty lines, fix it")
    assert code == 0
    code, ours, _ = await terminal.command("show", "--diff")
    theirs = (await anyio.run_process([*git, "diff"], cwd=terminal.folder)).stdout.decode()
    assert code == 0
    assert "+    return [line for line in lines if line and" in ours
    assert ours.splitlines() == [each for each in theirs.splitlines() if each[:6] != "index "]
    _, turns, _ = await terminal.command("show", "--turns", "--json")
    assert [each["by"] for each in json.loads(turns)["decided"]] == ["client"]
