"""What is measured: each function returns named figures, in the units of their names."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.benchmarks import (
    agent_rows,
    asleep_rows,
    client_rows,
    fork_rows,
    hundred_rows,
    looking_back_rows,
    remote_rows,
    spare_rows,
)
from tests.benchmarks.client import Client, bridge, cpu_seconds, now, peak_mb
from tests.benchmarks.figures import Figures, ms, p99
from tests.benchmarks.floors import FLOOR, floors
from tests.benchmarks.journals import filled
from tests.benchmarks.memory import pss_mb, tree
from tests.support.fixture_agents import fixture_command


def _accepts(client: Client, count: int) -> list[float]:
    times = []
    for _ in range(count):
        client.told.clear()
        began = now()
        client.prompt("stream 1 0")
        client.until(lambda: any(m["method"] == "_acp_bridge/accepted" for _, m in client.told))
        times.append(client.told[0][0] - began)
    return times


def accept(home: Path) -> Figures:
    """Prompts accepted (fsync) while a turn streams; then with a second bridge streaming too."""
    with Client(bridge(home, *FLOOR)) as client, Client(bridge(home, *FLOOR)) as other:
        for each in (client, other):
            each.initialize()
            each.new_session()
        client.prompt("stream 1000000 2")
        client.until_updates(10)
        alone = _accepts(client, 200)
        other.prompt("stream 1000000 2")
        other.until_updates(10)
        both = _accepts(client, 200)
        client.process.kill()
        other.process.kill()
    return {
        "accept_median_ms": ms(statistics.median(alone)),
        "accept_p99_ms": ms(p99(alone)),
        "accept_beside_another_median_ms": ms(statistics.median(both)),
        "accept_beside_another_p99_ms": ms(p99(both)),
    }


def _cancels(client: Client, count: int) -> tuple[list[float], list[float]]:
    """Cancel to `cancelled`; cancel to the first update of the prompt that waited."""
    answered, following = [], []
    for _ in range(count):
        seen = len(client.updates)
        running = client.prompt("stream 1000000 5")
        client.until_updates(seen + 3)
        waiting = client.prompt("stream 1 0")
        client.read(0.02)
        began = client.cancel()
        answered.append(client.answer(running)[0] - began)
        at = client.answer(waiting)[0]
        following.append(max(t for t, _ in client.updates if t <= at) - began)
    return answered, following


def cancel(home: Path) -> Figures:
    """The bridge's own share of a cancel, and how soon the next prompt speaks."""
    with Client(FLOOR) as floor, Client(bridge(home, *FLOOR)) as client:
        for each in (floor, client):
            each.initialize()
            each.new_session()
        alone = _plain_cancels(floor, 30)
        behind, following = _cancels(client, 30)
    return {
        "cancel_alone_median_ms": ms(statistics.median(alone)),
        "cancel_behind_median_ms": ms(statistics.median(behind)),
        "cancel_share_median_ms": ms(statistics.median(behind) - statistics.median(alone)),
        "cancel_to_next_update_median_ms": ms(statistics.median(following)),
        "cancel_to_next_update_max_ms": ms(max(following)),
    }


def _plain_cancels(client: Client, count: int) -> list[float]:
    answered = []
    for _ in range(count):
        seen = len(client.updates)
        running = client.prompt("stream 1000000 5")
        client.until_updates(seen + 3)
        began = client.cancel()
        answered.append(client.answer(running)[0] - began)
    return answered


def stubborn(home: Path) -> Figures:
    """An agent that ignores cancel: to `cancelled`, and from there to the next prompt's words."""
    agent = fixture_command("ignores-cancel")
    env = {"FIXTURE_HOME": str(home / "agent")}
    with Client(agent, env) as alone:
        start = alone.initialize()
    cancelled, following = [], []
    with Client(bridge(home, *agent), env) as client:
        client.initialize()
        client.new_session()
        for _ in range(3):
            seen = len(client.updates)
            running = client.prompt("stream 100000000")
            client.until_updates(seen + 3)
            waiting = client.prompt("say next")
            began = client.cancel()
            at = client.answer(running)[0]
            cancelled.append(at - began)
            client.answer(waiting)
            following.append(client.updates[-1][0] - at)
    return {
        "stubborn_drain_timeout_ms": 2000.0,
        "stubborn_cancelled_median_ms": ms(statistics.median(cancelled)),
        "stubborn_next_update_median_ms": ms(statistics.median(following)),
        "stubborn_agent_start_ms": ms(start),
    }


def killed(home: Path) -> Figures:
    """`kill -9` of the agent in a turn, to the error answer."""
    times = []
    with Client(bridge(home, *FLOOR)) as client:
        client.initialize()
        client.new_session()
        for _ in range(7):
            seen = len(client.updates)
            running = client.prompt("stream 1000000 5")
            client.until_updates(seen + 3)
            began = client.kill_agent()
            times.append(client.answer(running)[0] - began)
    return {
        "agent_killed_median_ms": ms(statistics.median(times)),
        "agent_killed_max_ms": ms(max(times)),
    }


def _rate(client: Client, count: int) -> float:
    seen = len(client.updates)
    running = client.prompt(f"stream {count} 0")
    first = client.until_updates(seen + 1)
    client.answer(running, 120)
    return count / (client.updates[-1][0] - first)


def throughput(home: Path) -> Figures:
    """Updates a second behind the bridge and alone; the front's CPU for each."""
    count = 40_000
    with Client(FLOOR) as floor, Client(bridge(home, *FLOOR)) as client:
        for each in (floor, client):
            each.initialize()
            each.new_session()
            _rate(each, 2000)
        alone, behind, cpu = [], [], []
        for _ in range(5):
            alone.append(_rate(floor, count))
            before = cpu_seconds(client.process.pid)
            behind.append(_rate(client, count))
            cpu.append((cpu_seconds(client.process.pid) - before) / count)
    return {
        "updates_per_s_alone": round(statistics.median(alone)),
        "updates_per_s_behind": round(statistics.median(behind)),
        "front_cpu_us_per_update": round(statistics.median(cpu) * 1e6, 1),
    }


def delay(home: Path) -> Figures:
    """What the bridge adds to the way of an update, 50 ms apart."""
    with Client(FLOOR) as floor, Client(bridge(home, *FLOOR)) as client:
        lags = []
        for each in (floor, client):
            each.initialize()
            each.new_session()
            each.answer(each.prompt("stream 200 50"))
            lags.append(each.lags())
    alone, behind = lags
    return {
        "lag_alone_median_ms": ms(statistics.median(alone)),
        "lag_behind_median_ms": ms(statistics.median(behind)),
        "delay_added_median_ms": ms(statistics.median(behind) - statistics.median(alone)),
        "delay_added_p99_ms": ms(p99(behind) - p99(alone)),
    }


def start(home: Path) -> Figures:
    """Spawn to `initialize` of the built-in agent, beside importing the SDK."""
    bridges, imports, alone = [], [], []
    for _ in range(7):
        with Client(bridge(home)) as client:
            bridges.append(client.initialize())
        with Client(FLOOR) as floor:
            alone.append(floor.initialize())
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import acp"], check=True)
        imports.append(time.monotonic() - began)
    return {
        "spawn_to_initialize_ms": ms(statistics.median(bridges)),
        "spawn_to_initialize_floor_ms": ms(statistics.median(alone)),
        "import_acp_ms": ms(statistics.median(imports)),
    }


def early(home: Path) -> Figures:
    """Spawn to `initialize` of an agent that takes some 300 ms itself: alone and behind, in turns.

    One that starts at once shows how soon the bridge itself can answer.
    """
    slow = (*FLOOR, "0.28")
    commands = {
        "slow_alone": slow,
        "slow_behind": bridge(home, *slow),
        "quick_alone": FLOOR,
        "quick_behind": bridge(home, *FLOOR),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    used, memory = [], []
    for _ in range(15):
        for name, command in commands.items():
            with Client(command) as client:
                times[name].append(client.initialize())
                if name == "quick_behind":
                    used.append(sum(map(cpu_seconds, tree(client.process.pid))))
                    memory.append(peak_mb(client.process.pid))
    took = {name: statistics.median(taken) for name, taken in times.items()}
    return {
        "cpu_of_start_ms": ms(statistics.median(used)),
        "front_idle_mb": round(statistics.median(memory), 1),
        **{f"early_{name}_ms": ms(taken) for name, taken in took.items()},
    } | {
        f"early_{which}_added_ms": ms(took[f"{which}_behind"] - took[f"{which}_alone"])
        for which in ("slow", "quick")
    }


def memory(home: Path) -> Figures:
    """Peak memory after 20,000 updates and 100 prompts; what is left after one of 64 MB."""
    with Client(bridge(home, *FLOOR)) as client:
        client.initialize()
        client.new_session()
        client.answer(client.prompt("stream 20000 0"))
        for _ in range(100):
            client.answer(client.prompt("stream 2 0"))
        figures = {
            "front_peak_mb": round(peak_mb(client.process.pid), 1),
            "guard_peak_mb": round(max(peak_mb(pid) for pid in client.guards()), 1),
        }
        client.answer(client.prompt(f"stream 2 0 {'x' * 64_000_000}"))
        client.answer(client.prompt("stream 2 0"))
        return figures | {"front_after_64_mb_mb": round(pss_mb(client.process.pid), 1)}


def load(home: Path) -> Figures:
    """A session of 10,000 messages, loaded; and what more memory it takes than one of 100."""
    figures: Figures = {}
    for messages in (100, 10_000):
        session_id = uuid4().hex
        filled(home, session_id, messages, FLOOR)
        with Client(bridge(home, *FLOOR)) as client:
            client.initialize()
            params = {"sessionId": session_id, "cwd": "/tmp", "mcpServers": []}
            began = now()
            answer = client.call("session/load", params)
            if "error" in answer or len(client.updates) < messages:
                raise RuntimeError(f"the load failed: {answer}, {len(client.updates)} updates")
            figures[f"load_{messages}_ms"] = ms(now() - began)
            figures[f"load_{messages}_peak_mb"] = round(peak_mb(client.process.pid), 1)
    return figures


ROWS: dict[str, Callable[[Path], Figures]] = {
    "floors": floors,
    "accept": accept,
    "cancel": cancel,
    "stubborn": stubborn,
    "killed": killed,
    "throughput": throughput,
    "delay": delay,
    "start": start,
    "early": early,
    "memory": memory,
    "load": load,
    "second": client_rows.second,
    "keep": client_rows.keep,
    "attach": client_rows.attach,
    "commands": client_rows.commands,
    "looking-back": looking_back_rows.looking_back,
    "remote": remote_rows.remote,
    "spare": spare_rows.spare,
    "hundred": hundred_rows.hundred,
    "forks": fork_rows.forks,
    "asleep": asleep_rows.asleep,
    "first-words": agent_rows.first_words,
    "words": agent_rows.words,
    "stop": agent_rows.stop,
}
#: Rows that are asked for by one name.
GROUPS: dict[str, tuple[str, ...]] = {"clients": ("second", "keep", "attach", "commands", "remote")}
