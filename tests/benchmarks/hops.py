"""How many of our files and functions a message passes in a real bridge: `make hops`.

The bridge runs under a profiler that notes each call of a function of `acp_bridge`, with its time;
what is counted lies between two moments that the client or the agent saw. `--tree DIR` counts in
another checkout of the bridge.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

ROOT = Path(__file__).parents[2]
#: seconds in which a bridge ends what it does behind an answer.
_QUIET = 0.5


# --- in the bridge -------------------------------------------------------------------------------


def serve(out: str) -> None:
    """Serve as `python -m acp_bridge` does, and write down every call at the end."""
    calls: list[tuple[int, str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "/acp_bridge/" in code.co_filename:
            calls.append((time.monotonic_ns(), code.co_filename, code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        runpy.run_module("acp_bridge", run_name="__main__", alter_sys=True)
    finally:
        sys.setprofile(None)
        Path(out).write_text(json.dumps(calls))


# --- beside it -----------------------------------------------------------------------------------


def counted(calls: Iterable[tuple[int, str, str]], begin: float, end: float) -> dict[str, int]:
    """Return how many files were entered between two moments in seconds, and how often."""
    found = [file for at, file, _ in calls if begin * 1e9 <= at <= end * 1e9]
    return {"files": len(set(found)), "calls": len(found)}


def looked_again(calls: Iterable[tuple[int, str, str]], begin: float, end: float) -> int:
    """Return how often a part looked whether the session's state concerns it."""
    names = Counter(name.rpartition(".")[2] for at, _, name in calls if begin <= at / 1e9 <= end)
    return names["look_again"] + names["follow"]


Ways = dict[str, tuple[float, float]]
_DEAF = "a deaf cancel, until the session is idle"
#: what else happens at a moment is counted too, so each is counted so often, and the least is told.
_ROUNDS = 3


async def measure(tree: Path) -> dict[str, dict[str, int]]:
    """Return the figures of each way, by its name."""
    rounds = [await _round(tree) for _ in range(_ROUNDS)]
    return {
        way: {name: min(each[way][name] for each in rounds) for name in figures}
        for way, figures in rounds[0].items()
    }


async def _round(tree: Path) -> dict[str, dict[str, int]]:
    from tests.support.client import RecordingClient
    from tests.support.fixture_agents import FixtureLog, fixture_command
    from tests.support.gates import Gates

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        out, log = folder / "calls.json", FixtureLog(folder / "agent.log")
        agent = fixture_command("ignores-cancel")
        serving = [sys.executable, __file__, "--serve", str(out), "--drain-timeout", "0.5", "--"]
        async with Gates() as gates:
            home = {"ACP_BRIDGE_HOME": str(folder / "home"), "FIXTURE_HOME": str(folder / "a")}
            env = {**gates.env, **log.env, **home, "PYTHONPATH": str(tree)}
            start = RecordingClient.start([*serving, *agent], env=env, cwd=tree, exit_within=30)
            async with start as client:
                await client.initialize({"_meta": {"acp_bridge": {"state": True}}})
                await client.new_session(folder)
                await client.prompt("say warm")
                ways = await _prompted(client) | await _loaded(client, folder)
                client.send_prompt("say words; gate g")
                await gates.reached("g")
                ways |= await _cancelled(client, log)
        calls = json.loads(out.read_text())
    figures = {name: counted(calls, *moments) for name, moments in ways.items()}
    figures[_DEAF]["looks"] = looked_again(calls, *ways[_DEAF])
    return figures


async def _prompted(client: Any) -> Ways:
    await anyio.sleep(_QUIET)
    asked = client.send_prompt("say words")
    await client.answer_to(asked)
    return {"a prompt, until it is answered": _between(client, asked)}


async def _loaded(client: Any, folder: Path) -> Ways:
    from tests.support.joined import joined, listening

    found = await listening(folder / "home")
    async with joined(str(found.socket)) as other:
        await other.initialize()
        await anyio.sleep(_QUIET)
        params = {"sessionId": client.session_id, "cwd": str(folder), "mcpServers": []}
        load = other.send_request("session/load", params)
        await other.answer_to(load)
        return {"a second client's load, until it is answered": _between(other, load)}


async def _cancelled(client: Any, log: Any) -> Ways:
    await anyio.sleep(_QUIET)
    begun, since = time.monotonic(), client.mark()
    client.notify("session/cancel", {"sessionId": client.session_id})
    idle = await client.until(_is_idle, since=since, within=20)
    ended = next(each.time for each in client.recording if each.message is idle)
    received = [event for event in log.events("received") if event["time"] > begun]
    sent = next(e["time"] for e in received if e["message"].get("method") == "session/cancel")
    return {"a cancel, until it is sent": (begun, sent), _DEAF: (begun, ended)}


def _is_idle(message: dict[str, Any]) -> bool:
    params = message.get("params") or {}
    return message.get("method") == "_acp_bridge/state" and params["state"] == "idle"


def _between(client: Any, request_id: object) -> tuple[float, float]:
    """Return when a request was written, and when its answer was read."""
    times = {}
    for record in client.recording:
        message = record.message or {}
        if message.get("id") == request_id:
            asks = record.direction == "out" and "method" in message
            times["begin" if asks else "end"] = record.time
    return times["begin"], times["end"]


def main() -> None:
    """Print the figures as JSON, or serve."""
    if sys.argv[1:2] == ["--serve"]:
        out = sys.argv[2]
        sys.argv = ["acp-bridge", *sys.argv[3:]]
        sys.path[0] = os.getcwd()
        serve(out)
        return
    parser = argparse.ArgumentParser(prog="make hops", description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout of the bridge")
    print(json.dumps(anyio.run(measure, parser.parse_args().tree), indent=2))


if __name__ == "__main__":
    main()
