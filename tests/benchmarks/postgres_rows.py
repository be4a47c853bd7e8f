"""Sessions in a database beside sessions in files: the same rows, at some distances of its server.

make bench ARGS=--postgres   prints the table (about 6 minutes); nothing is written
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import psycopg

from tests.benchmarks.client import Client, bridge, now
from tests.benchmarks.distance import away
from tests.benchmarks.figures import Figures, ms
from tests.benchmarks.floors import FLOOR
from tests.benchmarks.journals import filled
from tests.benchmarks.rows import accept, delay, throughput
from tests.support.postgres import Cluster, cluster

#: milliseconds there and back; None: no database.
_DISTANCES: Final = (None, 0.0, 1.0, 5.0)
_SESSIONS: Final = 20
_MESSAGES: Final = 10_000
_SOCKET: Final = ".s.PGSQL.5432"
_ROWS: Final = {
    "round trip to the database, median": ("round_trip_ms", "ms"),
    "prompt accepted while a turn streams, median": ("accept_median_ms", "ms"),
    "... p99": ("accept_p99_ms", "ms"),
    "... beside a second bridge that streams, median": ("accept_beside_another_median_ms", "ms"),
    "... p99 ": ("accept_beside_another_p99_ms", "ms"),
    "delay added to an update, 50 ms apart, median": ("delay_added_median_ms", "ms"),
    "...  p99": ("delay_added_p99_ms", "ms"),
    "updates a second (the agent alone: {updates_per_s_alone:,.0f})": ("updates_per_s_behind", ""),
    "front's CPU for an update": ("front_cpu_us_per_update", "us"),
    "delay of an update of one session, median": ("one_lag_ms", "ms"),
    "20 sessions stream: worst median delay of one": ("twenty_worst_lag_ms", "ms"),
    "load of 10,000 messages, from another machine": ("load_ms", "ms"),
}


def postgres() -> list[str]:
    """Measure everything; returns the lines of a table."""
    taken: list[Figures] = []
    with cluster() as server:
        for distance in _DISTANCES:
            with _journal(server, distance) as url:
                found = _measured(url)
            print(distance, found, flush=True)
            taken.append(found)
    heads = ["SQLite", *(f"{distance:g} ms" for distance in _DISTANCES[1:])]
    lines = [f"| what | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for what, (name, unit) in _ROWS.items():
        values = (f"{each[name]:,g} {unit}".strip() if name in each else "" for each in taken)
        lines.append(f"| {what.format(**taken[0])} | {' | '.join(values)} |")
    return lines


@contextmanager
def _journal(server: Cluster, distance: float | None) -> Iterator[str | None]:
    """Give the URL of a database at this distance; bridges use it meanwhile."""
    if distance is None:
        yield None
        return
    url = server.new_database()
    with ExitStack() as stack:
        if distance:
            folder = url.partition("host=")[2].partition("&")[0]
            near = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(away(Path(folder, _SOCKET), Path(near, _SOCKET), distance))
            url = url.replace(folder, near)
        os.environ["ACP_BRIDGE_JOURNAL"] = url
        try:
            yield url
        finally:
            del os.environ["ACP_BRIDGE_JOURNAL"]


def _measured(url: str | None) -> Figures:
    found: Figures = {} if url is None else {"round_trip_ms": _round_trip(url)}
    for row in (accept, delay, throughput, _twenty):
        with tempfile.TemporaryDirectory() as home:
            found |= row(Path(home))
    with tempfile.TemporaryDirectory() as home:
        return found | {"load_ms": _load(Path(home), url)}


def _round_trip(url: str) -> float:
    times = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(200):
            began = now()
            connection.execute("SELECT 1")
            times.append(now() - began)
    return ms(statistics.median(times))


def _twenty(home: Path) -> Figures:
    """Delays of words, 50 ms apart: of one session, and of each while all stream."""
    with Client(bridge(home, *FLOOR)) as client:
        client.initialize()
        sessions = [client.new_session() for _ in range(_SESSIONS)]
        client.answer(client.prompt("stream 100 50"))
        one = statistics.median(client.lags())
        seen = len(client.updates)
        for request in [client.prompt("stream 100 50", session) for session in sessions]:
            client.answer(request)
        each = [statistics.median(client.lags(seen, session)) for session in sessions]
    return {"one_lag_ms": ms(one), "twenty_worst_lag_ms": ms(max(each))}


def _load(home: Path, url: str | None) -> float:
    """Milliseconds for the load of a session that another machine has had."""
    session_id = uuid4().hex
    filled(home / "first", session_id, _MESSAGES, FLOOR)
    at = home / "first"
    if url:
        words = [sys.executable, "-m", "acp_bridge", "journal", "copy", str(at), url]
        subprocess.run(words, check=True, capture_output=True)
        at = home / "another"
    with Client(bridge(at, *FLOOR)) as client:
        client.initialize()
        params = {"sessionId": session_id, "cwd": "/tmp", "mcpServers": []}
        began = now()
        answer = client.call("session/load", params)
        if "error" in answer or len(client.updates) < _MESSAGES:
            raise RuntimeError(f"the load failed: {answer}, {len(client.updates)} updates")
        return ms(now() - began)
