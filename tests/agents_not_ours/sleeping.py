"""Ten sessions of each agent, awake and asleep: `python -m tests.agents_not_ours.sleeping`.

It prints what they take (PSS), and how long the first prompt after the sleep takes to its first
update, beside the agent's own start and load. Nothing is judged.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import anyio

from tests.agents_not_ours.agents import AGENTS, AgentNotOurs, install
from tests.agents_not_ours.model_server import ModelServer
from tests.support.client import RecordingClient
from tests.support.processes import descendants

SESSIONS = 10
#: minutes of rest: more than the sessions take to be woken together.
REST = float(os.environ.get("REST", "1.5"))
PATIENCE = 120


def pss_mb(pid: int) -> float:
    """Memory of a process, what it shares divided among those that share it."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return 0.0


def taken(client: RecordingClient) -> str:
    """What the bridge and all that it has started take just now."""
    assert client.process is not None
    pids = [client.process.pid, *descendants(client.process.pid)]
    front = pss_mb(client.process.pid)
    return f"{len(pids)} processes, {sum(map(pss_mb, pids)):.0f} MB, of which the front {front:.0f}"


async def until_first_update(client: RecordingClient, session_id: str, tag: str) -> float:
    """Seconds from a prompt to the first word of its answer."""
    began, seen = time.monotonic(), client.mark()
    request = client.send_prompt(f"COUNT 3 0 {tag}", session_id)
    await client.until_text(f"{tag}0", since=seen, within=PATIENCE)
    first = time.monotonic() - began
    await client.answer_to(request, within=PATIENCE)
    return first


async def own_load(agent: AgentNotOurs, home: Path, port: int) -> float:
    """Seconds of the agent alone from its start to a prompt's first update in a loaded session."""
    env = agent.env(home, port)
    async with RecordingClient.start(agent.words(), env=env) as client:
        await client.initialize(within=PATIENCE)
        session_id = await client.new_session(home, PATIENCE)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
    began = time.monotonic()
    async with RecordingClient.start(agent.words(), env=env) as client:
        await client.initialize(within=PATIENCE)
        await client.load_session(session_id, home, PATIENCE)
        loaded = time.monotonic() - began
        first = await until_first_update(client, session_id, "L")
    return loaded + first


async def trial(agent: AgentNotOurs, home: Path, server: ModelServer) -> None:
    alone = [await own_load(agent, home / f"alone{n}", server.port) for n in range(2)]
    print("alone, start to the first update after a load:", [round(each, 2) for each in alone])
    log = home / "log"
    options = ["--sleep-after", str(REST), "--log-file", str(log)]
    words = [sys.executable, "-m", "acp_bridge", *options, "--", *agent.words()]
    env = {**agent.env(home, server.port), "ACP_BRIDGE_HOME": str(home / "bridge")}
    async with RecordingClient.start(words, env=env) as client:
        assert client.process is not None
        await client.initialize(within=PATIENCE)
        ids, warm = [await client.new_session(home, PATIENCE)], []
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        guard = descendants(client.process.pid)[0]
        os.kill(descendants(guard)[0], signal.SIGKILL)  # so that a reload of this agent is seen
        await anyio.sleep(1)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        for _ in range(SESSIONS - 1):
            ids.append(await client.new_session(home, PATIENCE))
            await client.prompt("COUNT 5 0 H", within=PATIENCE)
            warm.append(await until_first_update(client, ids[-1], "W"))
        with anyio.fail_after(60 * REST + PATIENCE):
            while len(descendants(client.process.pid)) > 0:  # noqa: ASYNC110
                await anyio.sleep(1)
        fell = log.read_text().count("session.asleep")
        print(f"asleep ({fell} times):", taken(client), flush=True)
        woken = [await until_first_update(client, each, "M") for each in ids[:3]]
        print("warm, prompt to first update:", [round(each, 2) for each in warm])
        print("woken, prompt to first update:", [round(each, 2) for each in woken])
        print("remembered:", "COUNT 5 0 H" in server.given_for("M"), flush=True)
        for request in [client.send_prompt("COUNT 3 0 N", each) for each in ids]:
            await client.answer_to(request, within=SESSIONS * PATIENCE)
        print("awake:", taken(client), flush=True)


def main() -> int:
    if trouble := install():
        print(f"FAILED: the agents could not be installed: {trouble}")
        return 1
    for agent in AGENTS:
        if sys.argv[1:] in ([], [agent.name]):
            print(f"{agent.name}: {SESSIONS} sessions", flush=True)
            with (
                tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
                ModelServer() as server,
            ):
                anyio.run(trial, agent, Path(home), server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
