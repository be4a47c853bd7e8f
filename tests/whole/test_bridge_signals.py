"""Signals at every moment of a bridge's life, from its first line to its last.

Moments are told by the CPU time that the bridge has used, so that a busy machine moves none.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_bridge import serving
from acp_bridge.core.runtime import waits
from tests.support.fixture_agents import fixture_command
from tests.support.processes import Process, all_gone, kill_marked, marked, start_piped
from tests.whole.bridge_support import ROOT, World

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("whole_starts")]

INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'
#: Each does the same, so that moments take turns with them.
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
#: takes the right to kill other users' processes from what it becomes
WITHOUT_KILLING = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 5, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_KILL
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
#: has a child that belongs to another user, and becomes an agent
OF_TWO_USERS = """
import os, sys, time
if os.fork() == 0:
    os.setuid(65534)
    os.write(2, b"child is there\\n")
    time.sleep(1000)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Bridge:
    """A bridge process, from exec on, with its pipes."""

    def __init__(self, process: Process, pipes: tuple[int, int, int]) -> None:
        self.process = process
        self.stdin, self.stdout, self.stderr = pipes

    async def is_ours(self) -> None:
        """Until its first line has run: SIGHUP is the last of the signals that it takes."""
        with anyio.fail_after(20):
            while not self._caught() & 1 << signal.SIGHUP - 1:
                await anyio.lowlevel.checkpoint()

    def _caught(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("SigCgt:")[2].split()[0], 16)

    async def has_used(self, milliseconds: float) -> None:
        """Until it has used that much more CPU time, or waits for something."""
        start = before = self._used()
        still = 0
        with anyio.fail_after(20):
            while self._used() - start < milliseconds * 1_000_000 and still < 100:
                await anyio.lowlevel.checkpoint()
                now = self._used()
                still = still + 1 if now == before and self._waits() else 0
                before = now

    def _used(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0])

    def _waits(self) -> bool:
        """It waits for something, or has ended and waits to be collected."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] in "SZ"

    async def has_answered(self) -> None:
        """Until it has written to its stdout."""
        with anyio.fail_after(20):
            await anyio.wait_readable(self.stdout)

    async def ended(self) -> int:
        """Its exit code; a busy machine may take a while beside what the bridge may."""
        with anyio.fail_after(waits.ENDED + 2):
            await anyio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
        return self.process.wait()

    def said(self) -> tuple[bytes, bytes]:
        """Everything on stdout and stderr, once it has ended."""
        return os.read(self.stdout, 1 << 16), os.read(self.stderr, 1 << 16)


@contextmanager
def born(world: World, *wrapped: str, agent: list[str] | None = None) -> Iterator[Bridge]:
    env = {**world.env, "ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, *wrapped, "-m", "acp_bridge", "--", *(agent or fixture_command())]
    process, pipes = start_piped(words, env)
    try:
        yield Bridge(process, pipes)
    finally:
        process.kill()
        process.wait()
        for fd in pipes:
            os.close(fd)


@pytest.mark.hazard("P2.1")
async def test_a_signal_at_any_moment_of_the_start_ends_the_bridge_well(world: World) -> None:
    for milliseconds, number in zip(range(0, 240, 30), cycle(SIGNALS), strict=False):
        with born(world) as bridge:
            await bridge.is_ours()
            await bridge.has_used(milliseconds)
            os.kill(bridge.process.pid, number)
            assert await bridge.ended() == 0, milliseconds
            os.set_blocking(bridge.stderr, False)
            assert bridge.said() == (b"", b""), milliseconds


@pytest.mark.hazard("P2.1")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
async def test_a_signal_just_before_the_client_is_served_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    listening = serving._listening

    def signalled(*begun: Any) -> Any:
        bridge = listening(*begun)
        os.kill(os.getpid(), signal.Signals[name])
        return bridge

    monkeypatch.setattr(serving, "_listening", signalled)
    async with world.inside(initialized=False) as client:
        with anyio.fail_after(5):
            await client.closed.wait()


@pytest.mark.hazard("P2", "P1")
async def test_a_signal_while_the_agent_is_born_leaves_no_process(world: World) -> None:
    for milliseconds, number in zip(range(0, 30, 5), cycle(SIGNALS), strict=False):
        with born(world) as bridge:
            await bridge.is_ours()
            await bridge.has_used(10_000)  # until it waits for the client
            os.write(bridge.stdin, INITIALIZE)
            await bridge.has_used(milliseconds)
            os.kill(bridge.process.pid, number)
            assert await bridge.ended() == 0, milliseconds
            await all_gone(world.mark, within=1)


@pytest.mark.hazard("P2")
async def test_signals_while_the_bridge_ends_change_nothing(world: World) -> None:
    with born(world) as bridge:
        os.write(bridge.stdin, INITIALIZE)
        await bridge.has_answered()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, bridge.stdin)  # the client's end is closed
        os.close(null)
        with anyio.fail_after(20):
            while bridge.process.poll() is None:
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    bridge.process.send_signal(number)  # which collects one that has ended
                if bridge.process.returncode is None:
                    await bridge.has_used(0.2)  # or nothing but signals would get the processor
        assert bridge.process.returncode == 0
        assert b"Traceback" not in bridge.said()[1]
    await all_gone(world.mark)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a child of another user")
async def test_a_process_that_cannot_be_killed_holds_up_no_end(world: World) -> None:
    agent = [sys.executable, "-c", OF_TWO_USERS, *fixture_command()[1:]]
    with born(world, "-c", WITHOUT_KILLING, agent=agent) as bridge:
        os.write(bridge.stdin, INITIALIZE)
        await bridge.has_answered()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, bridge.stdin)  # the client's end is closed
        os.close(null)
        assert await bridge.ended() == 0
        assert len(marked(world.mark)) == 2  # the guard goes on trying
        kill_marked(world.mark)
