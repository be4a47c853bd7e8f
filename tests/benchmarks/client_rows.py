"""What a second client and `--keep` cost, each beside a bridge without, and the commands.

Everything that is compared is taken in turns, in one run, so that what else the machine does is
in both figures.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from acp_bridge.sharing.listening.run_files import LiveBridge, live_bridges
from tests.benchmarks.client import Client, bridge, cpu_seconds, now, peak_mb
from tests.benchmarks.figures import Figures, ms
from tests.benchmarks.journals import filled

FLOOR = (sys.executable, str(Path(__file__).with_name("floor.py")))
ATTACHED = Path(__file__).with_name("attached_client.py")
#: updates of one turn, and the pause between them in milliseconds.
FLOOD, _PACED, _GAP = 40_000, 40, 50
_ROUNDS = 5
_STARTS = 7
_BRIDGES = 10
#: seconds that anything is waited for.
_LIMIT = 30.0


# --- a second client -----------------------------------------------------------------------------


def second(home: Path) -> Figures:
    """An update's delay and the front's CPU for it: one client, and one more on the socket."""
    with Client(bridge(home, *FLOOR)) as client:
        client.initialize()
        client.new_session()
        found = live(home)
        lags: dict[str, list[float]] = {"one": [], "two": []}
        cpu: dict[str, list[float]] = {"one": [], "two": []}
        flooded(client, found.pid)
        for _ in range(_ROUNDS):
            lags["one"] += paced(client)
            cpu["one"].append(flooded(client, found.pid))
            with attached(found, client.session_id, wanted=_PACED + FLOOD):
                lags["two"] += paced(client)
                cpu["two"].append(flooded(client, found.pid))
    delay = {name: statistics.median(values) for name, values in lags.items()}
    used = {name: statistics.median(values) * 1e6 for name, values in cpu.items()}
    return {
        "second_client_lag_one_median_ms": ms(delay["one"]),
        "second_client_lag_two_median_ms": ms(delay["two"]),
        "second_client_delay_added_ms": ms(delay["two"] - delay["one"]),
        "second_client_cpu_one_us": round(used["one"], 1),
        "second_client_cpu_two_us": round(used["two"], 1),
        "second_client_cpu_added_us": round(used["two"] - used["one"], 1),
    }


@contextmanager
def attached(
    found: LiveBridge, session_id: str, *options: str, wanted: int = 0
) -> Iterator[dict[str, float]]:
    """A client in a process of its own, attached to the session; yields what it tells of that.

    It has to get so many updates, and not to be let go.
    """
    words = [sys.executable, str(ATTACHED), found.socket, session_id, *options]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        told: dict[str, float] = json.loads(process.stdout.readline())
        yield told
        process.stdin.write(b"%d\n" % wanted)
        process.stdin.close()
        last = json.loads(process.stdout.readline())
        if last["ended"] or last["updates"] < wanted:
            raise RuntimeError(f"the second client was let go, or missed something: {last}")


def paced(client: Client) -> list[float]:
    """Seconds of each update's way, at a pace at which nothing queues."""
    seen = len(client.updates)
    client.answer(client.prompt(f"stream {_PACED} {_GAP}"))
    return client.lags(seen)


def flooded(client: Client, pid: int) -> float:
    """Seconds of the front's CPU for an update, when they come as fast as the agent can."""
    before = cpu_seconds(pid)
    client.answer(client.prompt(f"stream {FLOOD} 0"), 120)
    return (cpu_seconds(pid) - before) / FLOOD


def live(home: Path) -> LiveBridge:
    """The one bridge of this home, as soon as it listens."""
    end = now() + _LIMIT
    while not (found := live_bridges(home)):
        if now() > end:
            raise TimeoutError("no bridge listens")
        time.sleep(0.005)
    return found[0]


# --- a bridge that is kept -----------------------------------------------------------------------


@contextmanager
def kept(home: Path, *command: str) -> Iterator[Client]:
    """A client of a bridge with `--keep`, which is ended with it; not initialized."""
    words = [*bridge(home), "--keep", "1h", *(["--", *command] if command else [])]
    with Client(words) as client:
        try:
            yield client
        finally:
            for found in live_bridges(home):
                with suppress(ProcessLookupError):
                    os.kill(found.pid, signal.SIGTERM)


def keep(home: Path) -> Figures:
    """`--keep` against without: spawn to `initialize`, and what an update costs after that."""
    starts: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(_STARTS):
        with Client(bridge(home / f"a{number}", *FLOOR)) as client:
            starts["without"].append(client.initialize())
        with kept(home / f"b{number}", *FLOOR) as client:
            starts["with"].append(client.initialize())
            live(home / f"b{number}")  # or there is none to be ended
    start = {name: ms(statistics.median(values)) for name, values in starts.items()}
    return {
        "keep_start_without_ms": start["without"],
        "keep_start_with_ms": start["with"],
        "keep_start_added_ms": round(start["with"] - start["without"], 2),
        **_after_the_start(home),
    }


def _after_the_start(home: Path) -> Figures:
    lags: dict[str, list[float]] = {"without": [], "with": []}
    cpu: dict[str, list[float]] = {"without": [], "with": []}
    rates: dict[str, list[float]] = {"without": [], "with": []}
    with Client(bridge(home / "plain", *FLOOR)) as plain, kept(home / "kept", *FLOOR) as other:
        both = {"without": (plain, home / "plain"), "with": (other, home / "kept")}
        pids = {}
        for name, (client, folder) in both.items():
            client.initialize()
            client.new_session()
            pids[name] = live(folder).pid
            flooded(client, pids[name])
        for _ in range(_ROUNDS):
            for name, (client, _) in both.items():
                lags[name] += paced(client)
                seen = len(client.updates)
                cpu[name].append(flooded(client, pids[name]))
                rates[name].append(FLOOD / (client.updates[-1][0] - client.updates[seen][0]))
    figures: Figures = {}
    for name in lags:
        figures[f"keep_lag_{name}_median_ms"] = ms(statistics.median(lags[name]))
        figures[f"keep_cpu_{name}_us"] = round(statistics.median(cpu[name]) * 1e6, 1)
        figures[f"keep_updates_per_s_{name}"] = round(statistics.median(rates[name]))
    return figures


# --- an attach to a long session -----------------------------------------------------------------


def attach(home: Path) -> Figures:
    """A second client attaches to a session of 10,000 messages; what memory that takes the front.

    The first one has resumed the session and was shown nothing of it.
    """
    figures: Figures = {}
    for messages in (100, 10_000):
        session_id = uuid4().hex
        filled(home, session_id, messages, FLOOR)
        with Client(bridge(home, *FLOOR)) as client:
            client.initialize()
            params = {"sessionId": session_id, "cwd": "/tmp", "mcpServers": []}
            answer = client.call("session/resume", params)
            with attached(live(home), session_id, "--full") as told:
                peak = peak_mb(client.process.pid)
            if "error" in answer or told["updates"] < messages:
                raise RuntimeError(f"the attach failed: {answer}, {told}")
            figures[f"attach_{messages}_ms"] = ms(told["seconds"])
            figures[f"attach_{messages}_peak_mb"] = round(peak, 1)
    return figures


# --- the commands --------------------------------------------------------------------------------


def commands(home: Path) -> Figures:
    """Whole processes: `send`, `ps` with ten bridges that live; `chat` until one can type."""
    with ExitStack() as stack:
        (session_id,) = _editors(stack, home, 1)

        def sent() -> None:
            if b"In the queue" not in (said := run(home, "send", session_id, "stream 1 0")):
                raise RuntimeError(f"not sent: {said!r}")

        def listed() -> None:
            lines = run(home, "ps", "--json").splitlines()
            answered = [line for line in lines if json.loads(line).get("sessionId")]
            if len(answered) != _BRIDGES:
                raise RuntimeError(f"{len(answered)} of {_BRIDGES} sessions: {lines}")

        send = taken(sent)
        _editors(stack, home, _BRIDGES - 1)
        ps = taken(listed)
        send_among_ten = taken(sent)
    chats = [_chat(home / f"chat{number}") for number in range(_STARTS)]
    return {
        "ps_ten_bridges_ms": ms(ps),
        "send_ms": ms(send),
        "send_among_ten_bridges_ms": ms(send_among_ten),
        "chat_ready_ms": ms(statistics.median(ready for ready, _ in chats)),
        "chat_answered_ms": ms(statistics.median(answered for _, answered in chats)),
    }


def _editors(stack: ExitStack, home: Path, count: int) -> list[str]:
    """Start bridges with a session each; returns the sessions when all listen."""
    before = len(live_bridges(home))
    clients = [stack.enter_context(Client(bridge(home, *FLOOR))) for _ in range(count)]
    for client in clients:
        client.initialize()
        client.new_session()
    end = now() + _LIMIT
    while len(live_bridges(home)) < before + count:
        if now() > end:
            raise TimeoutError("not all bridges listen")
        time.sleep(0.005)
    return [client.session_id for client in clients]


def taken(work: Callable[[], None]) -> float:
    """Seconds, the median."""
    times = []
    for _ in range(_STARTS):
        began = now()
        work()
        times.append(now() - began)
    return statistics.median(times)


def run(home: Path, *words: str) -> bytes:
    command = [sys.executable, "-m", "acp_bridge", *words, "--home", str(home)]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=_LIMIT).stdout


def _chat(home: Path) -> tuple[float, float]:
    """Seconds until what is typed is echoed, and until a prompt that was typed is answered."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "acp_bridge", "chat", "--home", str(home), "--", *FLOOR]
    began = now()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    )
    try:
        _shown(ours, "»".encode())
        os.write(ours, b"stream 1 0")
        _shown(ours, b"stream")
        ready = now() - began
        os.write(ours, b"\r")
        _shown(ours, b"@")
        answered = now() - began
        os.write(ours, b"\x04")
        _left(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    return ready, answered


def _shown(terminal: int, wanted: bytes) -> None:
    """Until this is written to the terminal."""
    seen, end = b"", now() + _LIMIT
    while wanted not in seen:
        if not select.select([terminal], [], [], max(0, end - now()))[0]:
            raise TimeoutError(f"the chat does not show {wanted!r}: {seen!r}")
        seen += os.read(terminal, 65536)


def _left(terminal: int, process: subprocess.Popen[bytes]) -> None:
    """Until the chat has ended by itself; a terminal that nobody reads would hold it up."""
    end = now() + _LIMIT
    while process.poll() is None and now() < end:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 65536)
