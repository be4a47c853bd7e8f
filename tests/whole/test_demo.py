"""`acp-bridge demo` as a user runs it: whole, broken, and interrupted."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from acp_bridge.terminal.demo import main
from tests.support.processes import MARK, all_gone, kill_marked, marked

pytestmark = pytest.mark.process

DEMO = [sys.executable, "-m", "acp_bridge", "demo"]


@pytest.fixture
def env(tmp_path: Path, mark: str) -> dict[str, str]:
    """With a place of its own for temporary files, and no colour asked for or forbidden."""
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return {**kept, "TMPDIR": str(tmp_path / "tmp"), MARK: mark, "TERM": "xterm"}


@asynccontextmanager
async def running(env: Mapping[str, str], *command: str) -> AsyncIterator[Process]:
    async with await anyio.open_process(command, env=env, stdin=subprocess.DEVNULL) as process:
        yield process


async def output_of(process: Process) -> str:
    """All of its stdout."""
    assert process.stdout is not None
    return b"".join([data async for data in process.stdout]).decode()


async def ended(process: Process, env: Mapping[str, str]) -> int:
    """The exit code, once nothing is left: no process and no file."""
    code = await process.wait()
    await all_gone(env[MARK])
    assert os.listdir(env["TMPDIR"]) == []
    return code


@pytest.mark.slow
@pytest.mark.hazard("C8", "C9", "K1", "P1", "Q9", "R12")
async def test_the_demo_passes_reads_well_and_leaves_nothing(
    env: dict[str, str], tmp_path: Path
) -> None:
    # What the user has set for a bridge of their own is not meant for the demo's.
    env |= {"ACP_BRIDGE_DELIVERY": "interrupt", "ACP_BRIDGE_MODEL": "scripted:/nowhere"}
    with anyio.fail_after(60):
        async with running(env, *DEMO, "--record", str(tmp_path / "record")) as process:
            output = await output_of(process)
            assert await ended(process, env) == 0, output
    lines = output.splitlines()
    checks = [line for line in lines if re.match(r"ok {3}\d [a-z0-9 ]+ [0-9.]+ m?s  \S", line)]
    assert {line[5] for line in checks} == set("1234567")
    assert lines[-1].startswith(f"{len(checks)} of {len(checks)} checks passed in ")
    assert "FAIL" not in output
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in output
    assert "\r" not in output
    recorded = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert {line["client"] for line in recorded} == {"built-in", "singer", "after kill -9"}
    assert {line["direction"] for line in recorded} == {"in", "out", "note"}
    assert all(isinstance(json.loads(line["line"]), dict) for line in recorded)


def test_a_bridge_that_does_not_start_fails_the_demo_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([], bridge=[sys.executable, "-c", "import sys; sys.exit('broken here')"]) == 1
    output = capsys.readouterr().out
    assert re.search(r"FAIL 1 three at once +the step could not be finished", output)
    assert "the bridge ended" in output
    assert "log:      broken here" in output
    assert main([], bridge=["/nowhere/acp-bridge"]) == 1
    assert "No such file or directory: /nowhere/acp-bridge" in capsys.readouterr().out


async def test_a_signal_ends_the_demo_cleanly(env: dict[str, str]) -> None:
    number = signal.SIGINT
    with anyio.fail_after(60):
        async with running(env, *DEMO) as process:
            assert process.stdout is not None
            output = b""
            while b"\nok " not in output:
                output += await process.stdout.receive()
            assert len(marked(env[MARK])) > 3
            process.send_signal(number)
            process.send_signal(number)
            output += (await output_of(process)).encode()
            try:
                assert await ended(process, env) == 128 + number, output
            finally:
                kill_marked(env[MARK])
    assert output.endswith(b"Interrupted.\n")


def on_a_terminal(env: Mapping[str, str]) -> str:
    """What a demo without a bridge prints there."""
    demo = "import sys; from acp_bridge.terminal.demo import main"
    code = f"{demo}; sys.exit(main([], bridge=['/nowhere']))"
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, stdout=theirs, timeout=30, check=False
        )
        assert done.returncode == 1
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colour_is_shown_on_a_terminal_unless_the_user_wants_none(env: dict[str, str]) -> None:
    assert "\x1b[31mFAIL " in on_a_terminal(env)
    assert "\x1b[3" not in on_a_terminal({**env, "NO_COLOR": "1"})
    assert "\x1b" not in on_a_terminal({**env, "TERM": "dumb"})


def test_the_help_is_short_and_narrow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 30


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["now"], "unrecognized arguments: now"),
        (["--record"], "expected one argument"),
        (["--record", "/nowhere/record"], "--record /nowhere/record: No such file or directory"),
    ],
)
def test_wrong_usage_says_why_and_exits_2(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert why in shown.err
    assert shown.out == ""
