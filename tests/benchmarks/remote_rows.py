"""What a client over WebSocket costs a server, beside one on its unix socket.

Both are a second client that reads everything, in turns, of the same session; the first one is
`acp-bridge connect`.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.attached_client import TIMED
from tests.benchmarks.client import Client
from tests.benchmarks.client_rows import ATTACHED, FLOOD, FLOOR, flooded, live, paced
from tests.benchmarks.figures import Figures, ms

_ROUNDS = 5
_ACP_BRIDGE = (sys.executable, "-m", "acp_bridge")


def remote(home: Path) -> Figures:
    """An update's delay and the server's CPU for it, of a further client of each kind."""
    with _server(home) as (port, token, login):
        found = live(home)
        ways = {"unix": [found.socket], "remote": ["--remote", port]}
        lags: dict[str, list[float]] = {name: [] for name in ways}
        cpu: dict[str, list[float]] = {name: [] for name in ("none", *ways)}
        with Client([*_ACP_BRIDGE, *login]) as client:
            client.initialize()
            client.new_session()
            flooded(client, found.pid)
            for _ in range(_ROUNDS):
                cpu["none"].append(flooded(client, found.pid))
                for name, words in ways.items():
                    with _further([*words, client.session_id], token) as lag:
                        paced(client)
                        cpu[name].append(flooded(client, found.pid))
                    lags[name] += lag
    used = {name: statistics.median(values) * 1e6 for name, values in cpu.items()}
    return {
        "remote_lag_unix_median_ms": ms(statistics.median(lags["unix"])),
        "remote_lag_websocket_median_ms": ms(statistics.median(lags["remote"])),
        "remote_cpu_none_us": round(used["none"], 1),
        "remote_cpu_unix_added_us": round(used["unix"] - used["none"], 1),
        "remote_cpu_websocket_added_us": round(used["remote"] - used["none"], 1),
    }


@contextmanager
def _server(home: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Give a server's port, a token, and what has `acp-bridge connect` work with it."""
    at = ["--home", str(home)]
    made = subprocess.run(
        [*_ACP_BRIDGE, "serve", "token", "t", *at], capture_output=True, check=True
    )
    token = made.stdout.decode().strip()
    words = [*_ACP_BRIDGE, "serve", "127.0.0.1:0", "--root", "/tmp", *at, "--", *FLOOR]
    with subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True) as server:
        assert server.stderr
        try:
            port = server.stderr.readline().decode().partition("127.0.0.1:")[2].partition("/")[0]
            login = ["connect", f"http://127.0.0.1:{port}", *at]
            keep = [*_ACP_BRIDGE, "connect", "--login", *login[1:]]
            subprocess.run(keep, input=token.encode(), capture_output=True, check=True)
            yield port, token, login
        finally:
            server.send_signal(signal.SIGTERM)


@contextmanager
def _further(words: list[str], token: str) -> Iterator[list[float]]:
    """Have a client in a process of its own read all of a round; gives its delay at the end."""
    command = [sys.executable, str(ATTACHED), *words]
    env, pipe, found = {**os.environ, "TOKEN": token}, subprocess.PIPE, list[float]()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        yield found
        process.stdin.write(b"%d\n" % (TIMED + FLOOD))
        process.stdin.close()
        last = json.loads(process.stdout.readline())
        if last["ended"] or last["updates"] < TIMED + FLOOD:
            raise RuntimeError(f"a further client was let go, or missed something: {last}")
        found.append(last["lag"])
