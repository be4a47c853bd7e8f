"""acpx, a headless client, against the bridge with a fixture agent or the built-in one behind it.

acpx keeps a process of its own in the background (the queue owner), which starts the bridge and
holds a session open from one command to the next. `sessions close` ends it.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.clients_not_ours.conftest import CODING, Tape
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.processes import command_line, gone

pytestmark = pytest.mark.process
#: seconds for one command of acpx.
LIMIT = 30
LONGEST_LINE = 1 << 20
Json = dict[str, Any]


class Output:
    """The JSON lines that a command of acpx has printed."""

    def __init__(self, lines: list[Json]) -> None:
        self.lines = lines

    @property
    def stop_reason(self) -> Any:
        answers = (line["result"] for line in self.lines if "result" in line)
        return next((a["stopReason"] for a in answers if "stopReason" in a), None)

    @property
    def methods(self) -> list[str]:
        return [line["method"] for line in self.lines if "method" in line]

    @property
    def text(self) -> str:
        """What the agent said."""
        return "".join(u["content"]["text"] for u in self._updates("agent_message_chunk"))

    def cards(self) -> list[str]:
        """How each tool call ended."""
        cards: dict[str, str] = {}
        for update in self._updates("tool_call", "tool_call_update"):
            cards[update["toolCallId"]] = update.get("status") or cards[update["toolCallId"]]
        return list(cards.values())

    def _updates(self, *kinds: str) -> list[Json]:
        told = (line for line in self.lines if line.get("method") == "session/update")
        updates = (line["params"]["update"] for line in told)
        return [update for update in updates if update["sessionUpdate"] in kinds]


@dataclass(frozen=True, slots=True)
class Acpx:
    words: list[str]
    env: dict[str, str]
    cwd: Path

    async def run(self, *arguments: str) -> Output:
        """A command, which must exit with 0."""
        with anyio.fail_after(LIMIT):
            done = await anyio.run_process(
                [*self.words, *arguments],
                stdin=subprocess.DEVNULL,
                env=self.env,
                cwd=self.cwd,
                check=False,
            )
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return Output([json.loads(line) for line in done.stdout.splitlines()])

    @asynccontextmanager
    async def streaming(self, *arguments: str) -> AsyncIterator[Output]:
        """A command whose agent has begun to speak; read to its end after the body."""
        with anyio.fail_after(LIMIT):
            async with await anyio.open_process(
                [*self.words, *arguments],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self.env,
                cwd=self.cwd,
            ) as process:
                assert process.stdout is not None
                stdout = BufferedByteReceiveStream(process.stdout)
                output = Output([])
                while not output.text:
                    output.lines.append(json.loads(await stdout.receive_until(b"\n", LONGEST_LINE)))
                yield output
                while not output.stop_reason:
                    output.lines.append(json.loads(await stdout.receive_until(b"\n", LONGEST_LINE)))
                assert await process.wait() == 0


@pytest.fixture
def acpx_home() -> Iterator[str]:
    """Not under pytest's tmp_path: acpx has a socket there, whose path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="acpx-", ignore_cleanup_errors=True) as home:
        yield home


@asynccontextmanager
async def opened(
    modules: Path, bridge: list[str], env: dict[str, str], cwd: Path
) -> AsyncIterator[Acpx]:
    node = shutil.which("node")
    assert node, "there is no node"
    options = ("--agent", shlex.join(bridge), "--format", "json", "--approve-all")
    acpx = Acpx([node, str(modules / "acpx" / "dist" / "cli.js"), *options], env, cwd)
    await acpx.run("sessions", "new")
    yield acpx
    await acpx.run("sessions", "close")


async def test_a_session_is_prompted_cancelled_listed_and_resumed_after_its_bridge_was_killed(
    modules: Path,
    tape: Tape,
    folder: Path,
    client_env: dict[str, str],
    acpx_home: str,
    agent_log: FixtureLog,
) -> None:
    """One session, since acpx starts a bridge and two processes of Node for each."""
    env = {**client_env, "HOME": acpx_home}
    async with opened(modules, tape.command(*fixture_command()), env, folder) as acpx:
        await prompted_in_two_modes(acpx, agent_log)
        await served(acpx, folder)
        async with acpx.streaming("prompt", "stream 1000000 5") as prompt:
            (cancelled,) = (await acpx.run("cancel")).lines
            assert cancelled["cancelled"] is True
        assert prompt.stop_reason == "cancelled"
        (listed,) = (await acpx.run("sessions", "list")).lines
        assert [row["cwd"] for row in listed["sessions"]] == [str(folder)]
        await resumed(acpx, tape)


async def prompted_in_two_modes(acpx: Acpx, agent_log: FixtureLog) -> None:
    first = await acpx.run("prompt", "say one two")
    assert (first.text, first.stop_reason) == ("one two", "end_turn")
    await acpx.run("set-mode", "edit")
    second = await acpx.run("prompt", "history")
    assert (second.text, second.stop_reason) == ("say one two", "end_turn")
    turns = agent_log.turns()
    assert [turn["mode"] for turn in turns] == ["plan", "edit"]
    assert len({turn["session"] for turn in turns}) == 1


async def served(acpx: Acpx, folder: Path) -> None:
    """What the agent asks acpx for it gets."""
    file = folder / "file"
    asks = f"permission; write {file}; read {file}; terminal echo hi; terminal-wait"
    answer = await acpx.run("prompt", f"{asks}; terminal-output; terminal-release")
    assert answer.text.startswith("[permission allow][write ok][read written]")
    assert answer.text.endswith("[wait_for_exit ok][output ok][release ok]")
    assert file.read_text() == "written"


async def resumed(acpx: Acpx, tape: Tape) -> None:
    """Another bridge has the session, and all that was said, the cancelled prompt too."""
    bridges = tape.bridges()
    (killed,) = [pid for pid in bridges if command_line(pid)]
    os.kill(killed, signal.SIGKILL)
    await gone(killed)
    answer = await acpx.run("prompt", "history")
    assert "session/resume" in answer.methods
    assert answer.text.startswith("say one two | history | ")
    assert answer.text.endswith(" | stream 1000000 5")
    assert answer.stop_reason == "end_turn"
    assert tape.bridges()[-1] not in bridges


async def test_the_built_in_agent_mends_a_file_with_every_tool(
    modules: Path, tape: Tape, folder: Path, client_env: dict[str, str], acpx_home: str
) -> None:
    (folder / "greeting.py").write_text("print('helo')\n")
    env = {**client_env, "HOME": acpx_home, "ACP_BRIDGE_MODEL": CODING}
    async with opened(modules, tape.command(), env, folder) as acpx:
        answer = await acpx.run("prompt", "Please mend it")
        assert (answer.text, answer.stop_reason) == ("I look around.Now it says hello.", "end_turn")
        assert (folder / "greeting.py").read_text() == "print('hello')\n"
        assert (folder / "docs" / "log.txt").read_text() == "The greeting was mended.\n"
        assert answer.cards() == ["completed"] * 6  # a plan has no card
        await acpx.run("set-mode", "plan")
        assert (await acpx.run("prompt", "Write a note")).cards() == ["failed"]
