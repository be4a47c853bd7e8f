"""Sessions of the built-in agent after the first: with forks, and in the same run without."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.agent_rows import MODEL, PLAIN, model_server
from tests.benchmarks.client import Client, children, now
from tests.benchmarks.figures import Figures, ms
from tests.benchmarks.memory import private_mb, pss_mb, tree

_FURTHER, _STREAMING = 4, 20
#: bridges whose sessions are measured; without forks each takes half a minute.
_BRIDGES = {True: 3, False: 1}
#: a bridge in which no system can fork
_WITHOUT = (
    "import sys; from acp_bridge.core.agents import parent; parent.can_fork = lambda: False;"
    " from acp_bridge import __main__; sys.exit(__main__.main())"
)


def forks(home: Path) -> Figures:
    """Each figure with forks, and `without_forks_...` on the same bridge that never forks."""
    with model_server() as url:
        found: Figures = {}
        for forking in (False, True):
            taken = _taken(home / str(forking), url, forking=forking)
            prefix = "forks" if forking else "without_forks"
            found |= {f"{prefix}_{name}": value for name, value in taken.items()}
        found["plain_first_prompt_ms"] = ms(_plain_first_prompt(home, url))
    return found


def _plain_first_prompt(home: Path, url: str) -> float:
    """Seconds from a cold start's first prompt to the first word, of a model without LiteLLM."""
    waits = []
    for number in range(5):
        with _client(home / f"plain{number}", url, forking=True, model=PLAIN) as client:
            client.initialize()
            client.new_session()
            waits.append(_first_update(client))
    return statistics.median(waits)


def _taken(home: Path, url: str, *, forking: bool) -> Figures:
    runs = [
        _second(home / str(number), url, forking=forking) for number in range(_BRIDGES[forking])
    ]
    figures = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    with _client(home / "more", url, forking=forking) as client:
        figures |= _restarts(client)
    with _client(home / "many", url, forking=forking) as client:
        figures |= _streaming(client)
    return figures


@contextmanager
def _client(home: Path, url: str, *, forking: bool, model: str = MODEL) -> Iterator[Client]:
    """Before `initialize`."""
    env = {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "none",
        "ACP_BRIDGE_DEBUGGABLE": "1",  # or no memory could be read
    }
    start = ["-m", "acp_bridge"] if forking else ["-c", _WITHOUT]
    command = [sys.executable, *start, "--home", str(home), "--model", model]
    with Client(command, env) as client:
        yield client


def _second(home: Path, url: str, *, forking: bool) -> Figures:
    """The first session from the start on, the second once that had its turn, and further ones."""
    with _client(home, url, forking=forking) as client:
        initialized = client.initialize()
        opened = _new_session(client)
        first_prompt = _first_update(client)
        one = statistics.median(_first_update(client) for _ in range(10))
        time.sleep(1)  # what was begun in the background is over
        alone = sum(map(pss_mb, tree(client.process.pid)[1:]))
        known = set(tree(client.process.pid))
        second = _new_session(client)
        second_prompt = _first_update(client)
        warm = statistics.median(_first_update(client) for _ in range(10))
        further = []
        for _ in range(_FURTHER):
            _new_session(client)
            _first_update(client)
            further.append(set(tree(client.process.pid)) - known)
            known |= further[-1]
        private = [sum(map(private_mb, pids)) for pids in further]
    return {
        "initialize_ms": ms(initialized),
        "first_new_ms": ms(opened),
        "first_prompt_ms": ms(first_prompt),
        "second_new_ms": ms(second),
        "second_prompt_ms": ms(second_prompt),
        "warm_prompt_ms": ms(statistics.median((one, warm))),
        "one_session_mb": round(alone, 1),
        "further_private_mb": round(statistics.median(private), 1),
    }


def _new_session(client: Client) -> float:
    began = now()
    client.new_session()
    return now() - began


def _first_update(client: Client) -> float:
    """Seconds from a prompt to the model's first word; the turn is over when this returns."""
    seen, began = len(client.updates), now()
    request = client.prompt("stream 1 0")
    client.answer(request)
    return _first_word(client, seen) - began


def _first_word(client: Client, seen: int) -> float:
    return next(at for at, line in client.updates[seen:] if b'"text":"@' in line)


def _restarts(client: Client) -> Figures:
    """The second session's agent is deaf, then killed; seconds to the next prompt's first word."""
    client.initialize()
    client.new_session()
    _first_update(client)
    client.new_session()
    _first_update(client)
    time.sleep(10)  # also a parent that was started by the second session has loaded
    deaf, killed = [], []
    for _ in range(3):
        agent = _agent_in_turn(client)
        os.kill(agent, signal.SIGSTOP)
        client.cancel()
        running, seen = client.last, len(client.updates)
        waiting = client.prompt("stream 1 0")
        at = client.answer(running)[0]
        client.answer(waiting)
        deaf.append(_first_word(client, seen) - at)
        os.kill(_agent_in_turn(client), signal.SIGKILL)
        at = client.answer(client.last)[0]
        seen = len(client.updates)
        client.answer(client.prompt("stream 1 0"))
        killed.append(_first_word(client, seen) - at)
    return {
        "deaf_next_update_ms": ms(statistics.median(deaf)),
        "killed_next_update_ms": ms(statistics.median(killed)),
    }


def _agent_in_turn(client: Client) -> int:
    """Prompt the session; returns its agent, the one that the model's words come from."""
    seen = len(client.updates)
    before = {pid: _cpu(pid) for pid in _agents(client)}
    client.prompt("stream 1000000 1")
    client.until(lambda: len(client.lags(seen)) > 100)
    return max(before, key=lambda pid: _cpu(pid) - before[pid])


def _agents(client: Client) -> list[int]:
    """All processes that have no child."""
    return [pid for pid in tree(client.process.pid) if not children(pid)]


def _cpu(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _streaming(client: Client) -> Figures:
    """Delays of words, 50 ms apart: of one session, and of each while all stream."""
    client.initialize()
    sessions = []
    for _ in range(_STREAMING):
        sessions.append(client.new_session())
        _first_update(client)
    seen = len(client.updates)
    client.answer(client.prompt("stream 100 50"))
    one = statistics.median(client.lags(seen))
    seen = len(client.updates)
    requests = [client.prompt("stream 100 50", session) for session in sessions]
    client.until(lambda: len(client.lags(seen)) > 50 * _STREAMING)
    memory = sum(map(pss_mb, tree(client.process.pid)))
    for request in requests:
        client.answer(request)
    each = [statistics.median(client.lags(seen, session)) for session in sessions]
    return {
        "streaming_one_median_ms": ms(one),
        "streaming_worst_median_ms": ms(max(each)),
        "streaming_all_mb": round(memory),
    }
