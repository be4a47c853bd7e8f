"""What is measured of the built-in agent: behind the bridge, with LiteLLM, over real HTTP."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.client import Client, bridge, now, peak_mb
from tests.benchmarks.figures import Figures, ms

_FOLDER = Path(__file__).parent
_WORDS = 20_000
#: a model for which LiteLLM is loaded, and one that is asked without it
MODEL, PLAIN = "openai/gpt-4o", "openai/bench"


@contextlib.contextmanager
def model_server() -> Iterator[str]:
    """The base URL of a model's server."""
    command = [sys.executable, str(_FOLDER / "model.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        yield process.stdout.readline().decode().strip()
        process.stdin.close()


@contextlib.contextmanager
def _client(home: Path, base_url: str, *, alone: bool = False) -> Iterator[Client]:
    """With a session that has had its first turn: LiteLLM is there. `alone`: without the bridge."""
    env = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "none", "ACP_BRIDGE_HOME": str(home)}
    command = [sys.executable, "-m", "agent"] if alone else bridge(home)
    with Client([*command, "--model", MODEL], env) as client:
        client.initialize()
        client.new_session()
        client.answer(client.prompt("hello"))
        yield client


def first_words(home: Path) -> Figures:
    """From the prompt to the first update, of a model that answers at once."""
    with model_server() as url:
        with _client(home, url, alone=True) as client:
            alone = _first_words(client)
        with _client(home, url) as client:
            behind = _first_words(client)
    return {
        "first_update_agent_alone_median_ms": ms(statistics.median(alone)),
        "first_update_behind_median_ms": ms(statistics.median(behind)),
    }


def _first_words(client: Client) -> list[float]:
    waits = []
    for _ in range(40):
        seen = len(client.updates)
        began = now()
        request = client.prompt("stream 1 0")
        client.until(lambda seen=seen: bool(client.lags(seen)))  # type: ignore[misc]
        waits.append(next(t for t, line in client.updates[seen:] if b'"text":"@' in line) - began)
        client.answer(request)
    return waits


def words(home: Path) -> Figures:
    """Words a second, each an update of its own; and of LiteLLM alone."""
    with model_server() as url:
        alone = [sys.executable, str(_FOLDER / "litellm_alone.py"), url, str(_WORDS // 4)]
        found = subprocess.run(alone, capture_output=True, text=True, check=True)
        rates = []
        with _client(home, url) as client:
            for _ in range(3):
                began = now()
                at, _answer = client.answer(client.prompt(f"stream {_WORDS} 0"))
                rates.append(_WORDS / (at - began))
            agent = max(peak_mb(pid) for pid in client.agents())
    return {
        "words_per_s": round(statistics.median(rates)),
        "words_per_s_litellm_alone": float(found.stdout),
        "agent_peak_mb": round(agent, 1),
    }


def stop(home: Path) -> Figures:
    """Cancel to `cancelled`: while the model streams, and while a command runs."""
    streaming, running = [], []
    with model_server() as url, _client(home, url) as client:
        for _ in range(30):
            seen = len(client.updates)
            request = client.prompt("stream 1000000 5")
            client.until(lambda seen=seen: len(client.lags(seen)) > 3)  # type: ignore[misc]
            began = client.cancel()
            streaming.append(client.answer(request)[0] - began)
        client.call("session/set_mode", {"sessionId": client.session_id, "modeId": "auto"})
        for _ in range(15):
            seen = len(client.updates)
            request = client.prompt("shell sleep 1000 & sleep 1000")
            client.until(lambda seen=seen: _in_progress(client, seen))  # type: ignore[misc]
            time.sleep(0.05)  # for the shell to start
            began = client.cancel()
            running.append(client.answer(request)[0] - began)
    return {
        "cancel_streaming_median_ms": ms(statistics.median(streaming)),
        "cancel_streaming_max_ms": ms(max(streaming)),
        "cancel_shell_median_ms": ms(statistics.median(running)),
        "cancel_shell_max_ms": ms(max(running)),
    }


def _in_progress(client: Client, seen: int) -> bool:
    return any(b'"in_progress"' in line for _, line in client.updates[seen:])
