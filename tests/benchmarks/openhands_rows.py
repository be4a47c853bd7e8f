"""Three headline scenarios of OpenHands' agent-server, on the real one (`make bench-openhands`).

Each is done by a client of the server itself, then by an ACP client of the bridge before it. The
conversation's agent is an ACP agent, because only such a run is superseded by a message: the
fixture agent, which answers at once.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.__main__ import commit, machine
from tests.benchmarks.client import Client, now
from tests.benchmarks.figures import Figures, ms, p99
from tests.benchmarks.openhands_wire import DirectClient
from tests.benchmarks.table import DOCUMENT
from tests.openhands_not_ours.environment import CannotSetUp
from tests.openhands_not_ours.model import ModelServer
from tests.openhands_not_ours.server import KEY, AgentServer
from tests.openhands_not_ours.stand import bridge
from tests.support.fixture_agents import fixture_command

RESULTS = Path(__file__).with_name("openhands_results.json")
BEGIN = "<!-- agent-server: written by make bench-openhands -->"
END = "<!-- end of agent-server -->"
ACCEPTS, DELTAS, INTERRUPTS = 50, 5, 7
_FOREVER = "stream 1000000 20"
#: what the people of the agent-server measured
THEIRS = {"accept": "2.04 ms, not durable", "deltas": "0 before, 1 after", "interrupt": "2.010 s"}


def direct(port: int, profile: str, cwd: str) -> Figures:
    """By a client of the server itself."""
    with DirectClient(port, KEY, profile, cwd) as client:
        client.say("say warm")
        client.until_status("finished", 0)
        figures = _direct_deltas(client)
        figures |= _direct_accepts(client)
    with DirectClient(port, KEY, profile, cwd) as client:
        return figures | _direct_interrupts(client)


def _direct_deltas(client: DirectClient) -> Figures:
    counts = []
    for number in range(DELTAS):
        since = len(client.events)
        client.say(f"say delta{number}")
        client.until_status("finished", since)
        counts.append(sum(f"delta{number}" in event.words for event in client.events[since:]))
    return {"direct_deltas": statistics.median(counts)}


def _direct_accepts(client: DirectClient) -> Figures:
    since = len(client.events)
    client.say(_FOREVER)
    client.until_words("3 ", since)
    times = []
    for number in range(ACCEPTS):
        sent, answered = client.say(f"say later{number}", run=False)
        times.append(answered - sent)
    return {
        "direct_accept_median_ms": ms(statistics.median(times)),
        "direct_accept_p99_ms": ms(p99(times)),
    }


def _direct_interrupts(client: DirectClient) -> Figures:
    running, spoken = [], []
    for number in range(INTERRUPTS):
        since = len(client.events)
        client.say(_FOREVER)
        client.until_words("3 ", since)
        since = len(client.events)
        sent, _ = client.say(f"say replaced{number}")
        running.append(client.until_status("running", since).at - sent)
        spoken.append(client.until_words(f"replaced{number}", since).at - sent)
        client.until_status("finished", since)
    return {
        "direct_running_median_ms": ms(statistics.median(running)),
        "direct_replaced_median_ms": ms(statistics.median(spoken)),
        "direct_replaced_max_ms": ms(max(spoken)),
    }


def bridged(command: list[str], home: Path, cwd: str, name: str) -> Figures:
    """By an ACP client of the bridge, whatever stands behind it; `name` begins its figures."""
    env = {"OPENHANDS_SESSION_API_KEY": KEY, "ACP_BRIDGE_HOME": str(home)}
    with Client(command, env) as client:
        client.initialize()
        answer = client.call("session/new", {"cwd": cwd, "mcpServers": []})
        client.session_id = answer["result"]["sessionId"]
        client.answer(client.prompt("say warm"))
        figures = _deltas(client) | _interrupts(client) | _accepts(client)
        client.process.kill()
    return {f"{name}_{figure}": value for figure, value in figures.items()}


def _deltas(client: Client) -> Figures:
    counts = []
    for number in range(DELTAS):
        seen = len(client.updates)
        client.answer(client.prompt(f"say delta{number}"))
        counts.append(sum(f"delta{number}".encode() in line for _, line in client.updates[seen:]))
    return {"deltas": statistics.median(counts)}


def _until_words(client: Client, text: str, seen: int) -> float:
    def spoken() -> float | None:
        found = (at for at, line in client.updates[seen:] if _chunk(line, text))
        return next(found, None)

    client.until(lambda: spoken() is not None)
    at = spoken()
    assert at is not None
    return at


def _chunk(line: bytes, text: str) -> bool:
    return b"agent_message_chunk" in line and text.encode() in line


def _interrupts(client: Client) -> Figures:
    times = []
    for number in range(INTERRUPTS):
        seen = len(client.updates)
        client.prompt(_FOREVER)
        _until_words(client, "3 ", seen)
        seen = len(client.updates)
        block = {"type": "text", "text": f"say replaced{number}"}
        meta = {"acp_bridge": {"delivery": "interrupt"}}
        params = {"sessionId": client.session_id, "prompt": [block], "_meta": meta}
        began = now()
        request = client.ask("session/prompt", params)
        times.append(_until_words(client, f"replaced{number}", seen) - began)
        client.answer(request)
    return {"replaced_median_ms": ms(statistics.median(times)), "replaced_max_ms": ms(max(times))}


def _accepts(client: Client) -> Figures:
    seen = len(client.updates)
    client.prompt(_FOREVER)
    _until_words(client, "3 ", seen)
    times = []
    for number in range(ACCEPTS):
        client.told.clear()
        began = now()
        client.prompt(f"say later{number}")
        client.until(lambda: any(m["method"] == "_acp_bridge/accepted" for _, m in client.told))
        times.append(client.told[0][0] - began)
    return {"accept_median_ms": ms(statistics.median(times)), "accept_p99_ms": ms(p99(times))}


def _profile(server: AgentServer, cwd: str, fixture: list[str]) -> str:
    """The id of a profile whose agent is the fixture."""
    about = {"agent_kind": "acp", "acp_server": "custom", "acp_command": " ".join(fixture)}
    with DirectClient(server.port, KEY, _active(server), cwd) as client:
        client.ask("POST", "/api/agent-profiles/fixture", about)
        profiles = client.ask("GET", "/api/agent-profiles")["profiles"]
    return next(str(each["id"]) for each in profiles if each["name"] == "fixture")


def _active(server: AgentServer) -> str:
    import httpx

    answer = httpx.get(f"{server.url}/api/agent-profiles", headers={"X-Session-API-Key": KEY})
    return str(answer.json()["active_agent_profile_id"])


def measure(home: Path) -> Figures:
    work = home / "work"
    work.mkdir()
    fixture = fixture_command()
    with ModelServer() as model, AgentServer(home / "server", model.url) as server:
        profile = _profile(server, str(work), fixture)
        figures = direct(server.port, profile, str(work))
        command = bridge(server.url, "fixture")
        figures |= bridged(command, home / "bridge", str(work), "bridged")
    alone = [sys.executable, "-m", "acp_bridge", "--", *fixture]
    return figures | bridged(alone, home / "alone", str(work), "without")


def table(results: dict[str, Any]) -> str:
    f = results["figures"]
    row: Callable[..., str] = lambda *cells: f"| {' | '.join(cells)} |"  # noqa: E731
    lines = [
        row("what", "theirs", "the agent-server itself", "behind acp-bridge", "no agent-server"),
        "|---|---|---|---|---|",
        row(
            "a second message accepted while the first runs: median, p99",
            THEIRS["accept"],
            f"{f['direct_accept_median_ms']:g} ms, {f['direct_accept_p99_ms']:g} ms",
            *(
                f"{f[f'{each}_accept_median_ms']:g} ms, {f[f'{each}_accept_p99_ms']:g} ms, on disk"
                for each in ("bridged", "without")
            ),
        ),
        row(
            "pieces streamed of an answer of one piece",
            THEIRS["deltas"],
            *(f"{f[f'{each}_deltas']:g}" for each in ("direct", "bridged", "without")),
        ),
        row(
            "a new message that interrupts, to the first word of its answer: median, max",
            f"{THEIRS['interrupt']} (to its running)",
            *(
                f"{f[f'{each}_replaced_median_ms']:g} ms, {f[f'{each}_replaced_max_ms']:g} ms"
                for each in ("direct", "bridged", "without")
            ),
        ),
        "",
        f"Measured {results['date']} at {results['commit']} on: {results['machine']}. The agent of"
        " the conversation is a fixture (`fixtures/agents`), an ACP agent that the agent-server"
        " started itself; in the last column the bridge did. To the replacement's running, as the"
        f" server's own client sees it: {f['direct_running_median_ms']:g} ms. Raw figures:"
        " `tests/benchmarks/openhands_results.json`.",
    ]
    return "\n".join(lines)


def main() -> int:
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            figures = measure(Path(home))
    except CannotSetUp as trouble:
        print(f"FAILED: {trouble}")
        return 1
    about = {"commit": commit(), "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    results = {**about, "figures": figures}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")
    for figure, value in figures.items():
        print(f"  {figure:36} {value:g}")
    print(f"written: {RESULTS.name}, and the table in docs/benchmarks.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
