"""The signals that ask the bridge to end, and what is in force for them when."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.runtime import signals

ROOT = Path(__file__).parents[2]
#: the command up to the end of its first lines, where it becomes what is given
FIRST_LINES = """
import sys
before = set(sys.modules)
from acp_bridge import __main__
from acp_bridge.core.runtime import signals
loaded = set(sys.modules) - before
import acp_bridge, types
cli = types.ModuleType("acp_bridge.terminal.cli")
"""


def run(code: str) -> "subprocess.CompletedProcess[str]":
    """Run code in which the bridge's first lines have been loaded."""
    command = [sys.executable, "-c", FIRST_LINES + code]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )


@pytest.mark.process
@pytest.mark.hazard("P2.1")
def test_nothing_is_loaded_before_the_signals_are_taken() -> None:
    done = run("print(*sorted(loaded))")
    assert done.stdout.split() == [
        "acp_bridge",
        "acp_bridge.__main__",
        "acp_bridge.core",
        "acp_bridge.core.runtime",
        "acp_bridge.core.runtime.signals",
    ]


@pytest.mark.process
@pytest.mark.hazard("P2")
def test_no_signal_loses_its_handler_before_that_has_run() -> None:
    """Python would say on stderr that the signal was "ignored due to race condition"."""
    done = run("""
import signal
change, blocked = signals._signal.signal, []
def noted(number, handler):
    blocked.append(set(signals.ENDING) <= signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    return change(number, handler)
signals._signal.signal = noted
signals.ignore()
print(*blocked, len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
""")
    assert done.stdout.split() == ["True", "True", "True", "0"], done.stderr


@pytest.mark.process
@pytest.mark.hazard("P2")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("when", ["before it serves", "after it has served"])
def test_a_signal_that_nobody_reads_ends_the_command_well_or_not_at_all(
    name: str, when: str
) -> None:
    kill = f"import os; os.kill(os.getpid(), {signal.Signals[name]:d})"
    served, after = (kill, "") if when == "before it serves" else ("pass", kill)
    code = f"""
def run(arguments):
    {served}
    return 5
cli.run = run
sys.modules["acp_bridge.terminal.cli"] = cli
code = __main__.main()
{after}
sys.exit(code)
"""
    done = run(code)
    assert (done.returncode, done.stderr) == (5 if after else 0, "")


@pytest.mark.process
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("when", ["before it is known", "before it is loaded", "while it loads"])
def test_a_command_that_a_signal_ends_before_it_has_begun_is_not_said_to_be_done(
    name: str, when: str
) -> None:
    kill = f"os.kill(os.getpid(), {signal.Signals[name]:d})"
    code = f"""
import os
sys.argv[1:] = ["run", "a prompt"]
if {when!r} == "before it is known":
    def run(arguments):
        {kill}
    cli.run = run
    sys.modules["acp_bridge.terminal.cli"] = cli
else:
    from acp_bridge.terminal import cli
    from acp_bridge.terminal.cli import commands
    if {when!r} == "before it is loaded":
        before = cli.run
        def run(arguments):
            {kill}
            return before(arguments)
        cli.run = run
    else:
        def import_module(name):
            {kill}
        commands.import_module = import_module
sys.exit(__main__.main())
"""
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.hazard("P2")
async def test_each_signal_is_read_once_and_what_was_in_force_before_comes_back() -> None:
    before = [signal.getsignal(number) for number in signals.ENDING]
    with signals.Received() as outer, signals.Received() as inner:
        os.kill(os.getpid(), signal.SIGTERM)
        with anyio.fail_after(5):
            await anyio.wait_readable(inner)
        assert os.read(inner, 16) == bytes([signal.SIGTERM])
        with pytest.raises(BlockingIOError):
            os.read(outer, 16)
    assert [signal.getsignal(number) for number in signals.ENDING] == before


@pytest.mark.hazard("P2")
async def test_a_flood_of_signals_neither_blocks_nor_raises() -> None:
    with signals.Received() as received:
        for _ in range(70_000):
            signal.raise_signal(signal.SIGHUP)
        assert os.read(received, 100_000)


def test_two_that_do_not_end_in_order_leave_nothing_that_hurts() -> None:
    before = [signal.getsignal(number) for number in signals.ENDING]
    one, other = signals.Received(), signals.Received()
    one.__enter__()
    other.__enter__()
    one.__exit__()
    other.__exit__()
    signal.raise_signal(signal.SIGTERM)
    for number, handler in zip(signals.ENDING, before, strict=True):
        signal.signal(number, handler)
