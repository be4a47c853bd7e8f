"""A hundred sessions in one bridge, awake and then asleep."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from tests.benchmarks.client import Client, bridge, now
from tests.benchmarks.figures import Figures, ms, p99
from tests.benchmarks.memory import pss_mb, tree
from tests.support.fixture_agents import fixture_command

SESSIONS, PROMPTS = 100, 5
#: minutes of rest: more than the sessions take to be opened and prompted.
_REST = 0.5


def hundred(home: Path) -> Figures:
    """Five prompts in each of a hundred sessions, then a rest; a fixture agent behind them."""
    command = [*bridge(home), "--sleep-after", str(_REST), "--", *fixture_command()]
    with Client(command, {"FIXTURE_HOME": str(home / "agent")}) as client:
        client.initialize()
        opened, sessions = [], []
        for _ in range(SESSIONS):
            began = now()
            sessions.append(client.new_session())
            opened.append(now() - began)
        _prompted(client, sessions[:1], 1)
        client.kill_agent()  # so that a reload of this agent is seen
        client.answer(client.prompt("say again", sessions[0]))
        times = _prompted(client, sessions, PROMPTS)
        awake = _taken(client, "hundred_awake")
        client.until(lambda: not client.guards(), 60 * _REST + 60)
        asleep = _taken(client, "hundred_asleep")
        began = now()
        seen = len(client.updates)
        client.prompt("say woken", sessions[-1])
        rest = client.until_updates(seen + 1) - began
    return {
        "hundred_new_median_ms": ms(statistics.median(opened)),
        "hundred_accept_median_ms": ms(statistics.median(times)),
        "hundred_accept_p99_ms": ms(p99(times)),
        **awake,
        **asleep,
        "hundred_woken_first_update_ms": ms(rest),
    }


def _prompted(client: Client, sessions: list[str], times: int) -> list[float]:
    """Seconds to `accepted` of each prompt; every turn is over when this returns."""
    taken, open_ = [], []
    for _ in range(times):
        for session in sessions:
            client.told.clear()
            began = now()
            open_.append(client.prompt("say hello", session))
            client.until(lambda: any(m["method"] == "_acp_bridge/accepted" for _, m in client.told))
            taken.append(client.told[0][0] - began)
    for request in open_:
        if "error" in (answer := client.answer(request)[1]):
            raise RuntimeError(f"a prompt failed: {answer}")
    return taken


def _taken(client: Client, name: str) -> Figures:
    """What the bridge and all that it has started take just now."""
    pids = tree(client.process.pid)
    return {
        f"{name}_descriptors": len(os.listdir(f"/proc/{client.process.pid}/fd")),
        f"{name}_processes": len(pids),
        f"{name}_front_mb": round(pss_mb(client.process.pid), 1),
        f"{name}_all_mb": round(sum(map(pss_mb, pids))),
    }
