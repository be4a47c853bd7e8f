"""`acp-bridge chat` as a person uses it: a real terminal, a real bridge, a real agent."""

import json
import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE

import anyio
import pytest

from acp_bridge.core.journal.reading import all_sessions
from acp_bridge.core.settings import NOTIFY_FILE
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.person import Person, person
from tests.support.processes import all_gone
from tests.whole.test_bridge_fork import AGENT as FORKING_AGENT
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

#: for what starts several interpreters
_SECONDS = 30.0

#: a shell with job control, as far as Ctrl-Z and `fg` need one: runs its arguments as a job, and
#: puts the job into the foreground again after a line.
SHELL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
if not (job := os.fork()):
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, how = os.waitpid(job, os.WUNTRACED)
    if not os.WIFSTOPPED(how):
        sys.exit(os.waitstatus_to_exitcode(how))
    os.tcsetpgrp(0, os.getpgrp())
    print("the shell again", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
"""
AGENT = ["--", *fixture_command()]
CHAT = ["chat", *AGENT]
#: stands on the first screen of each session, and in the refusal to leave one.
BEGUN, BUSY = "/help lists keys", "a turn runs or a prompt waits"


@pytest.fixture
def env(agent_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**agent_env, "ACP_BRIDGE_HOME": str(tmp_path / "home"), "PYTHONPATH": root}


async def test_a_person_talks_answers_stops_leaves_and_comes_back(
    tmp_path: Path, env: dict[str, str], gates: Gates, agent_log: FixtureLog, mark: str
) -> None:
    (tmp_path / "notes.txt").touch()
    async with person(["chat", "--bell", *AGENT], tmp_path, env) as there:
        before = there.modes()
        await there.sees("»")
        for words in (tmp_path.name, "fixture-agent", "/help"):  # the line may be wrapped
            await there.sees(words)
        await there.sees("/help lists keys")
        there.type("say hello there @notes.txt\r")
        await there.sees("hello there @notes.txt")
        await there.hears(1)
        there.type("permission; say after\r")
        await there.sees("1 or y: Allow")
        await there.hears(2)
        await there.answers("y")
        await there.sees("[permission allow]")
        there.type("gate never; say unseen\r")
        await gates.reached("never")
        there.type("say queued\r")
        await there.sees("waits: say queued")
        there.type("\x03")
        await there.sees("stopped")
        await there.sees("» say queued")
        there.type("/exit\r")
        assert await there.process.wait() == 0
        await there.sees("acp-bridge chat --resume")
        assert there.modes() == before
    await all_gone(mark)
    prompt = agent_log.received("session/prompt")[0]["params"]["prompt"]
    assert [part["type"] for part in prompt] == ["text", "resource_link"]
    async with person(["chat", "--resume", *AGENT], tmp_path, env) as there:
        await there.sees("queued")
        there.type("\x04")
        assert await there.process.wait() == 0


async def test_ctrl_x_ctrl_e_edits_the_line_in_an_editor_and_nothing_is_printed_meanwhile(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    os.mkfifo(tmp_path / "go")
    editor = tmp_path / "editor"
    editor.write_text(
        '#!/bin/sh\necho "the editor opens"\nread line < go\n'
        'echo "say $(cat "$1") words" > "$1"\necho "the editor closes"\n'
    )
    editor.chmod(0o700)
    env = {**env, "VISUAL": "", "EDITOR": str(editor)}
    async with person(CHAT, tmp_path, env) as owner:
        await owner.sees(BEGUN)
        owner.type("gate middle; say meanwhile\r")
        await gates.reached("middle")
        owner.type("edited\x18\x05")
        await owner.sees("the editor opens")
        async with person(["attach"], tmp_path, env) as guest:
            await guest.sees("gate middle")
            gates.open("middle")
            await guest.sees("\nmeanwhile")
            (tmp_path / "go").write_text("\n")
            await owner.sees("» say edited words")
            owner.type("\r")
            await owner.until(lambda: "\nedited words" in owner.seen)
        shown = owner.seen
        assert shown.index("the editor closes") < shown.index("\nmeanwhile")
        assert shown.count("\nmeanwhile") == 1


async def test_one_who_attaches_sees_types_answers_and_leaves_the_session_to_the_other(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / NOTIFY_FILE).write_text('notify = ["bell"]')
    async with person(CHAT, tmp_path, env) as owner:
        await owner.sees("»")
        owner.type("say before; permission; gate middle; say after\r")
        await owner.sees("1 or y: Allow")
        async with person(["attach"], tmp_path, env) as guest:
            await guest.sees("before")
            await guest.hears(1)
            await owner.hears(1)
            await guest.sees("1 or y: Allow")
            await guest.answers("y")
            await owner.sees("no longer asked: ")
            await owner.sees("Allowed by a person")
            await gates.reached("middle")
            guest.type("say of the guest\r")
            await guest.sees("waits: say of the guest")
            await owner.sees("2 waits, another's: say of the guest")
            gates.open("middle")
            await owner.sees("» say of the guest")
            await guest.sees("» say of the guest")
            guest.type("\x04")
            assert await guest.process.wait() == 0
            await guest.sees("The session goes on")
        owner.type("say still here\r")
        await owner.sees("\nstill here")


async def test_ctrl_z_gives_the_terminal_back_to_the_shell_and_fg_goes_on(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    async with person(CHAT, tmp_path, env, before=[sys.executable, "-c", SHELL]) as there:
        await there.sees("/help lists keys")
        there.type("say before; gate open; say meanwhile\r")
        await there.sees("\nbefore")
        there.type("\x1a")
        await there.sees("the shell again")
        gates.open("open")
        there.type("fg\r")
        await there.sees("\nmeanwhile")
        there.type("say after\r")
        await there.sees("\nafter")
        there.type("\x04")
        assert await there.process.wait() == 0


async def leaves(there: Person, command: str) -> None:
    """Type a command that leaves the session; returns when it is left, or the chat has refused."""

    def answers() -> int:
        return there.seen.count(BEGUN) + there.seen.count(BUSY)

    before = answers()
    there.type(f"{command}\r")
    await there.until(lambda: answers() > before)


async def test_a_chat_begins_a_new_session_and_goes_on_with_another(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    home = tmp_path / "home"
    async with person(CHAT, tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("say the first; gate open\r")
        await gates.reached("open")
        there.type("/new\r")
        await there.sees(BUSY)
        gates.open("open")
        while there.seen.count(BEGUN) == 1:  # refused until the answer has come, behind the words
            await leaves(there, "/clear")
        there.type("say the second\r")
        await there.sees("\nthe second")
        (first,) = [each for each in all_sessions(home) if each.session_id[:8] in there.seen]
        there.type("/sessions\r")
        await there.sees("/sessions ID goes on with one")
        assert all(each.session_id[:8] in there.seen for each in all_sessions(home))
        there.type(f"/sessions {first.session_id[:8]}\r")
        await there.until(lambda: there.seen.count("/help lists keys") == 3)
        assert there.seen.count("\nthe first") == 2
        there.type("/export\r")
        await there.sees("written:")
        exported = tmp_path / f"session-{first.session_id[:8]}.md"
        assert "the first" in exported.read_text()
        assert exported.stat().st_mode & 0o777 == 0o600
        there.type("/export\r")
        await there.sees("is there already")
        there.type("/fork\r")
        await there.sees("this agent can't fork a session")
        there.type("\x04")
        assert await there.process.wait() == 0


async def test_cost_shows_what_was_used_and_the_limits_that_the_agent_reports(
    tmp_path: Path, env: dict[str, str]
) -> None:
    async with person(["chat", "--", *fixture_command("quotas")], tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("say hello\r")
        await there.sees("\nhello")
        there.type("/cost\r")
        for words in ("MODEL", "5-hour limit", "10 %", "As of "):
            await there.sees(words)
        there.type("\x04")
        assert await there.process.wait() == 0


async def test_a_chat_goes_on_in_a_fork_of_its_session(tmp_path: Path, env: dict[str, str]) -> None:
    agent = tiny_agent(tmp_path, FORKING_AGENT)
    async with person(["chat", "--", *agent], tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("one\r")
        await there.sees("\nnothing")
        there.type("/fork\r")
        await there.until(lambda: there.seen.count("/help lists keys") == 2)
        assert there.seen.count("\nnothing") == 2
        there.type("two\r")
        await there.sees("\none.")
        assert len(all_sessions(tmp_path / "home")) == 2
        there.type("\x04")
        assert await there.process.wait() == 0


async def test_prompts_that_did_not_run_are_named_when_the_chats_bridge_dies(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    async with person(CHAT, tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("gate never\r")
        await gates.reached("never")
        there.type("say queued\r")
        await there.sees("waits: say queued")
        async with person(["attach"], tmp_path, env) as guest:
            await guest.sees("2 waits, another's: say queued")
            (bridge,) = (tmp_path / "home" / "run").glob("*.json")
            os.kill(json.loads(bridge.read_bytes())["pid"], signal.SIGKILL)
            for each, again in ((there, " -- /"), (guest, " -- COMMAND")):
                await each.sees(
                    "One prompt has not run:\n  2: say queued\nacp-bridge chat --resume"
                )
                await each.sees(again)
                await each.sees("There /queue run runs what is left over")
                assert await each.process.wait() == 1


async def test_where_the_agent_wants_a_login_its_ways_and_the_prompt_that_waited_are_named(
    tmp_path: Path, env: dict[str, str]
) -> None:
    agent = ["--", *fixture_command("needs-auth")]
    async with person(["chat", "say hello", *agent], tmp_path, env) as there:
        await there.sees("authentication required")
        await there.sees("the agent wants a login first: Token, Browser")
        await there.sees("Use its own command for that.")
        await there.sees("One prompt was not sent:\n  1. say hello")
        assert await there.process.wait() == 9


async def test_with_keep_the_work_goes_on_when_the_chat_is_left_and_a_chat_comes_back_to_it(
    tmp_path: Path, env: dict[str, str], gates: Gates, mark: str
) -> None:
    keeping = ["chat", "--keep", "8h", "gate middle; say the end", *AGENT]
    async with person(keeping, tmp_path, env) as there:
        await gates.reached("middle")
        there.type("say queued\r")
        await there.sees("waits: say queued")
        there.type("/exit\r")
        await there.sees("The work goes on.\nacp-bridge chat --resume")
        assert await there.process.wait() == 0
        assert "not run" not in there.seen
    async with person(["chat", "--resume", "--keep", "8h", *AGENT], tmp_path, env) as there:
        await there.sees("» gate middle; say the end")
        gates.open("middle")
        await there.sees("\nthe end")
        await there.sees("\nqueued")
        there.type("/exit\r")
        assert await there.process.wait() == 0
    ended = [
        json.loads(each.read_bytes())["pid"] for each in (tmp_path / "home/run").glob("*.json")
    ]
    for pid in ended:
        os.kill(pid, signal.SIGTERM)
    await all_gone(mark)


async def test_while_the_agent_starts_commands_answer_and_what_was_not_sent_is_named_at_the_end(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    async with person(["chat", "--", *fixture_command("slow-start")], tmp_path, env) as there:
        await there.sees("starting")
        await gates.reached("initialize")
        there.type("/help\r")
        await there.sees("Enter sends; Ctrl-J")
        there.type("/mode auto\r")
        await there.sees("the session is not open yet")
        there.type("say early\r")
        await there.sees("waits: say early")
        there.type("\x04")
        await there.sees("One prompt was not sent:\n  1. say early\nUp brings back")
        assert await there.process.wait() == 0


async def test_a_prompt_that_is_taken_back_is_not_shown_as_stopped_in_the_turn_that_runs(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    async with person(CHAT, tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("gate open; say after\r")
        await gates.reached("open")
        there.type("say queued\r")
        await there.sees("waits: say queued")
        there.type("\x1b[A")
        await there.sees("» say queued")
        there.type("\x15/queue\r")  # its answer comes behind that of what was taken back
        await there.sees("Nothing is waiting.")
        assert "stopped" not in there.seen
        gates.open("open")
        await there.sees("\nafter")
        there.type("\x04")
        assert await there.process.wait() == 0


async def test_a_session_in_which_nothing_was_said_is_not_offered_again(
    tmp_path: Path, env: dict[str, str]
) -> None:
    async with person(CHAT, tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("/export\r")
        await there.sees("nothing was said here yet")
        there.type("/fork\r")
        await there.until(lambda: there.seen.count("nothing was said here yet") == 2)
        there.type("\x04")
        assert await there.process.wait() == 0
        assert "--resume" not in there.seen


async def test_a_data_folder_that_can_not_be_made_is_one_sentence(
    tmp_path: Path, env: dict[str, str]
) -> None:
    (tmp_path / "home").touch()
    async with person(CHAT, tmp_path, env) as there:
        await there.sees("can't be made")
        assert await there.process.wait() == 1
        assert "Traceback" not in there.seen


async def test_at_a_terminal_what_speaks_to_clients_alone_says_so_and_ends_with_ctrl_d(
    tmp_path: Path, env: dict[str, str]
) -> None:
    async with person(["--model", "demo"], tmp_path, env) as there:
        await there.sees("speaks ACP on stdin and stdout")
        await there.sees("'acp-bridge chat' talks with")
        there.type("\x04")
        assert await there.process.wait() == 0


async def test_what_is_no_terminal_is_told_what_to_use(tmp_path: Path, env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "acp_bridge", "chat", "--", *fixture_command()]
    with anyio.fail_after(_SECONDS):
        done = await anyio.run_process(
            command, cwd=tmp_path, env={**os.environ, **env}, check=False, stdout=PIPE, stderr=PIPE
        )
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"use acp-bridge run" in done.stderr
