"""The floors of a run: what each kind of time takes without the bridge, on the same machine.

A machine's speed drifts by a factor of two, and so a time says little by itself. Every run measures
the floors anew, and prints beside each time how many times its floor it is.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from acp_bridge.core.agents import guard
from tests.benchmarks.client import Client, cpu_seconds, now
from tests.benchmarks.figures import Figures, ms

FLOOR: Final = (sys.executable, str(Path(__file__).with_name("floor.py")))
#: the libraries that the bridge is built on.
_LIBRARIES: Final = "import asyncio, sqlite3, anyio, anyio._backends._asyncio"
#: a front without a bridge: it starts the guard, which executes the agent, and waits for its end.
_FRONT: Final = """
import _socket, os, sys
ours, its = _socket.socketpair()
os.set_inheritable(its.fileno(), True)
os.posix_spawn(sys.argv[1], [*sys.argv[1:], str(its.fileno()), "", "", "/bin/echo"], os.environ)
its.close()
while ours.recv(100): pass
"""
_UPDATES: Final = 10_000
#: words in the names of times, and the floor of the times that have one of them: the first counts.
_OF: Final = (
    ("accept", "floor_commit_ms"),
    ("initialize", "floor_libraries_ms"),
    ("early", "floor_libraries_ms"),
    ("keep_start", "floor_libraries_ms"),
    ("cpu_of_start", "floor_libraries_cpu_ms"),
    ("ps_", "floor_libraries_ms"),
    ("send_", "floor_libraries_ms"),
    ("chat", "floor_libraries_ms"),
    ("search", "floor_libraries_ms"),
    ("show", "floor_libraries_ms"),
    ("load_10000", "floor_stream_ms"),
    ("attach_10000", "floor_stream_ms"),
    ("", "floor_turn_ms"),
)


def floors(home: Path) -> Figures:
    """Libraries, guard, bare chain, a durable write, and a plain agent alone."""
    libraries, guards, chains, used = [], [], [], []
    for _ in range(9):
        before = os.times()
        libraries.append(_run([sys.executable, "-c", _LIBRARIES]))
        after = os.times()
        used.append(sum(after[2:4]) - sum(before[2:4]))
        guards.append(_guard())
        chains.append(_run([sys.executable, "-I", "-S", "-c", _FRONT, *guard.COMMAND_LINE]))
    with Client(FLOOR) as client:
        client.initialize()
        client.new_session()
        turns = [_timed(lambda: client.answer(client.prompt("stream 1 0"))) for _ in range(200)]
        before_it = cpu_seconds(client.process.pid)
        text = f"stream {_UPDATES} 0"
        streams = [_timed(lambda: client.answer(client.prompt(text))) for _ in range(5)]
        cpu = (cpu_seconds(client.process.pid) - before_it) / 5 / _UPDATES
    return {
        "floor_libraries_ms": ms(statistics.median(libraries)),
        "floor_libraries_cpu_ms": ms(statistics.median(used)),
        "floor_guard_ms": ms(statistics.median(guards)),
        "floor_chain_ms": ms(statistics.median(chains)),
        "floor_commit_ms": ms(statistics.median(_commits(home / "floor.db"))),
        "floor_turn_ms": ms(statistics.median(turns)),
        "floor_stream_ms": ms(statistics.median(streams)),
        "floor_cpu_us_per_update": round(cpu * 1e6, 1),
    }


def ratio(name: str, figures: Figures) -> float | None:
    """How many times its floor a figure is; None for what is no time, or is a plain agent's."""
    if any(word in name for word in ("alone", "floor", "import_acp")):
        return None
    if name.endswith("cpu_us_per_update"):
        floor = "floor_cpu_us_per_update"
    elif name.endswith("_ms"):
        floor = next(floor for word, floor in _OF if word in name)
    else:
        return None
    least = figures.get(floor)
    return figures[name] / least if least else None


def _timed(work: Callable[[], object]) -> float:
    began = now()
    work()
    return now() - began


def _run(command: list[str]) -> float:
    return _timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def _guard() -> float:
    """Seconds that a guard takes to start an agent that ends at once, and to end."""
    ours, its = socket.socketpair()
    with ours:
        began = now()
        with its:
            words = [*guard.COMMAND_LINE, str(its.fileno()), "", "", "/bin/echo"]
            process = subprocess.Popen(words, pass_fds=[its.fileno()], stdout=subprocess.DEVNULL)
        process.wait(10)
        return now() - began


def _commits(path: Path) -> list[float]:
    """Seconds of each of 200 durable writes of one row, as the journal makes them."""
    file = sqlite3.connect(path, isolation_level=None)
    try:
        for setting in ("journal_mode = wal", "synchronous = full"):
            file.execute(f"PRAGMA {setting}")
        file.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, words TEXT)")
        insert = "INSERT INTO rows (words) VALUES (?)"
        return [_timed(lambda: file.execute(insert, ("word" * 20,))) for _ in range(200)]
    finally:
        file.close()
