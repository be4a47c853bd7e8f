"""A session of 1,000 messages that sleeps: from a prompt to its first update."""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path

from tests.benchmarks.agent_rows import MODEL, model_server
from tests.benchmarks.client import Client, bridge, children, now
from tests.benchmarks.figures import Figures, ms
from tests.benchmarks.memory import tree
from tests.support.fixture_agents import fixture_command

_TURNS, _TIMES = 500, 5
#: minutes of rest before a session sleeps; no turn here takes as long.
_REST = 0.05


def asleep(home: Path) -> Figures:
    """Of the built-in agent; and of a fixture agent, beside what its own start and load take."""
    with model_server() as url:
        env = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        words = [*bridge(home), "--model", MODEL, "--sleep-after", str(_REST)]
        built_in, _ = _woken(words, env, "stream 1 0")
    env = {"FIXTURE_HOME": str(home / "agent")}
    words = [*bridge(home), "--sleep-after", str(_REST), "--", *fixture_command()]
    foreign, session = _woken(words, env, "say hello")
    alone = [_started_and_loaded(env, session) for _ in range(_TIMES)]
    return {
        "asleep_built_in_median_ms": ms(statistics.median(built_in)),
        "asleep_foreign_median_ms": ms(statistics.median(foreign)),
        "asleep_foreign_alone_median_ms": ms(statistics.median(alone)),
    }


def _woken(command: list[str], env: dict[str, str], text: str) -> tuple[list[float], str]:
    """Seconds to the first update of prompts to a sleeping session, and its id at the agent."""
    with Client(command, env) as client:
        client.initialize()
        answer = client.call("session/new", {"cwd": "/tmp", "mcpServers": []})["result"]
        client.session_id = answer["sessionId"]
        for _ in range(_TURNS):
            client.answer(client.prompt(text))
        _kill_agent(client)  # a session only sleeps when a reload of its agent has been seen
        client.answer(client.prompt(text))
        times = []
        for _ in range(_TIMES):
            while not _sleeps(client):
                time.sleep(0.1)
            times.append(_first_update(client, text))
    return times, answer["_meta"]["acp_bridge"]["agentSessionId"]


def _kill_agent(client: Client) -> None:
    """Kill every process below the bridge that has started none."""
    for pid in tree(client.process.pid)[1:]:
        if not children(pid):
            os.kill(pid, signal.SIGKILL)


def _sleeps(client: Client) -> bool:
    (session,) = client.call("session/list", {})["result"]["sessions"]
    return bool(session.get("_meta", {}).get("acp_bridge", {}).get("asleep"))


def _first_update(client: Client, text: str) -> float:
    seen, began = len(client.updates), now()
    client.answer(client.prompt(text))
    return client.updates[seen][0] - began


def _started_and_loaded(env: dict[str, str], session_id: str) -> float:
    """Seconds from the agent's start through the load to the first update of a prompt."""
    with Client(fixture_command(), env) as client:
        client.initialize()
        params = {"cwd": "/tmp", "mcpServers": [], "sessionId": session_id}
        client.call("session/load", params)
        client.session_id, seen = session_id, len(client.updates)
        client.answer(client.prompt("say hello"))
        return client.updates[seen][0] - client.began
