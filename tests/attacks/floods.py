"""Floods a server, and measures what it costs: its memory, and the delay of another's prompt.

The server, the flooding client and the other client are processes on the loopback.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from websockets.sync.client import ClientConnection, connect

from tests.benchmarks.client_rows import FLOOR
from tests.remote.serve.certificate import certificate

KINDS: Final = (
    *("requests", "pings", "long-pings", "empty-fragments", "small-fragments", "binary", "half"),
)
STAGES: Final = ("after", "page", "before")
#: how wrong tokens are sent: to /acp or /page, all by one process, or each by a new one.
GUESSES: Final = ("client", "client, forks", "page", "page, forks")
_FLOODER: Final = Path(__file__).with_name("flooder.py")
#: the bounds: MB above rest in an attack, MB above rest when it is over, ms until a prompt begins.
MOST_ABOVE: Final = 64.0
MOST_LEFT: Final = 20.0
MOST_DELAY: Final = 50.0
#: seconds within which the connections of an attack are gone that has ended.
_GONE: Final = 40.0
#: seconds of one attack, between two prompts of the other client, and until memory is back.
SECONDS: Final = 4.0
#: wrong tokens a second, and ms until the user's page has logged in meanwhile.
RATE: Final = 1000
_GUESSERS: Final = 4
MOST_LOGIN: Final = 2000.0
_GAP: Final = 0.05
REST: Final = 20.0


@dataclass(frozen=True)
class Attack:
    """One row: what is sent, by how many connections, when, and whether answers are read."""

    kind: str
    reads: bool
    connections: int
    tls: bool
    stage: str

    def __str__(self) -> str:
        return (
            f"{self.kind:15} {'reads' if self.reads else 'never reads':11} {self.connections:2}"
            f" {'tls' if self.tls else 'clear':5} {self.stage:6}"
        )


def rows() -> Iterator[Attack]:
    """Yield all attacks, those of one server after another."""
    for tls in (False, True):
        for stage in STAGES:
            for kind in KINDS:
                for connections in (1, 16):
                    for reads in (True, False):
                        yield Attack(kind, reads, connections, tls, stage)


@dataclass
class Seen:
    """What one attack has cost."""

    above: float
    delays: list[float] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    #: seconds after which the server had read what the connections had sent ahead.
    gone: float = 0.0

    @property
    def delay(self) -> float:
        """Milliseconds within which nine of ten prompts have begun; 9999 without one."""
        if len(self.delays) < 2:
            return 9999.0
        return statistics.quantiles(self.delays, n=10, method="inclusive")[-1]

    @property
    def broken(self) -> list[str]:
        """The bounds that are broken."""
        found = []
        if self.above > MOST_ABOVE:
            found.append(f"memory {self.above:.0f} MB above rest")
        if self.delay > MOST_DELAY:
            found.append(f"a prompt begins after {self.delay:.0f} ms")
        return found


class Served:
    """A server in a process of its own, with a client that prompts."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, cafile: str, home: Path):
        self._process, self.port, self.cafile, self._home = process, port, cafile, home
        #: a folder for sessions.
        self.folder = home.parent
        self.tokens = {"owner": "", "other": ""}
        self.login = ""
        self.rest = 0.0

    def rss(self) -> float:
        """Return the resident memory of the server in MB."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def open_files(self) -> int:
        """Return how many files and connections the server has open."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def connect(self, path: str, **more: Any) -> ClientConnection:
        """Return a WebSocket of the library's client."""
        context = ssl.create_default_context(cafile=self.cafile) if self.cafile else None
        scheme = "wss" if self.cafile else "ws"
        url = f"{scheme}://127.0.0.1:{self.port}{path}"
        opened: ClientConnection = connect(url, ssl=context, proxy=None, open_timeout=20, **more)
        return opened

    @property
    def origin(self) -> str:
        """The origin of the server's page."""
        return f"{'https' if self.cafile else 'http'}://127.0.0.1:{self.port}"

    def log_in(self) -> None:
        """Log in a page, and keep its login."""
        words = ["serve", "token", "--phone", "phone", "--home", str(self._home)]
        code = _acp_bridge(*words).stdout.decode().strip().rpartition("#")[2]
        with self.connect("/page", origin=self.origin) as page:
            page.send(json.dumps({"code": code.rpartition("=")[2]}))
            self.login = json.loads(page.recv(timeout=10))["login"] or ""

    def plan(self, attack: Attack, seconds: float) -> dict[str, Any]:
        """Return what the flooding client is told."""
        page = attack.stage != "after"
        bearer = f"Authorization: Bearer {self.tokens['other']}"
        return {
            "port": self.port,
            "cafile": self.cafile,
            "kind": attack.kind,
            "reads": attack.reads,
            "connections": attack.connections,
            "seconds": seconds,
            "path": "/page" if page else "/acp",
            "header": [f"Origin: {self.origin}" if page else bearer],
            "hello": {"login": self.login, "visible": False} if attack.stage == "page" else None,
        }

    def guesses(self, how: str, seconds: float) -> dict[str, Any]:
        """Return what a client is told that sends wrong tokens."""
        page, wrong = how.startswith("page"), "acpb_wrong"
        return {
            "port": self.port,
            "cafile": self.cafile,
            "kind": "wrong",
            "forks": how.endswith("forks"),
            "rate": RATE / _GUESSERS,
            "seconds": seconds,
            "path": "/page" if page else "/acp",
            "header": [f"Origin: {self.origin}" if page else f"Authorization: Bearer {wrong}"],
            "hello": {"login": wrong} if page else None,
        }

    def page_logs_in(self) -> float:
        """Return the milliseconds in which the user's page logs in."""
        began = time.monotonic()
        with self.connect("/page", origin=self.origin) as page:
            page.send(json.dumps({"login": self.login, "visible": False}))
            while "name" not in (told := json.loads(page.recv(timeout=10))):
                if "login" in told and told["login"] is None:
                    raise RuntimeError("the page's login was refused")
            return (time.monotonic() - began) * 1000

    def client_logs_in(self) -> float:
        """Return the milliseconds in which a client of the user's comes in."""
        began = time.monotonic()
        header = {"Authorization": f"Bearer {self.tokens['other']}"}
        with self.connect("/acp", additional_headers=header):
            return (time.monotonic() - began) * 1000


class Prompting:
    """A client of a server that prompts again and again, and notes when each prompt begins."""

    def __init__(self, socket: ClientConnection, folder: Path) -> None:
        self._socket = socket
        self._count = 0
        self._ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        made = self._ask("session/new", {"cwd": str(folder), "mcpServers": []})
        self._session = made["result"]["sessionId"]

    def prompt(self) -> float:
        """Prompt once; returns the milliseconds until the agent has begun."""
        began = time.monotonic()
        words = [{"type": "text", "text": "stream 1 0"}]
        self._written = 0.0
        self._ask("session/prompt", {"sessionId": self._session, "prompt": words})
        return (self._written - began) * 1000

    def _ask(self, method: str, params: Any) -> Any:
        self._count += 1
        asked = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        self._socket.send(json.dumps(asked))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") == self._count and "method" not in message:
                return message
            words = message.get("params", {}).get("update", {}).get("content", {})
            if isinstance(words, dict) and str(words.get("text", "")).startswith("@"):
                self._written = int(words["text"][1:].split()[0]) / 1e6


@contextmanager
def prompting(served: Served) -> Iterator[Prompting]:
    """Have the user's client in a session of its own, until the end of the block."""
    header = {"Authorization": f"Bearer {served.tokens['owner']}"}
    with served.connect("/acp", additional_headers=header, max_size=None) as socket:
        yield Prompting(socket, served.folder)


def _acp_bridge(*words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "acp_bridge", *words]
    return subprocess.run(command, capture_output=True, check=True)


@contextmanager
def served(folder: Path, *, tls: bool) -> Iterator[Served]:
    """Run a server below a folder, on the loopback, until the end of the block."""
    home = folder / "home"
    files = certificate(folder, "IP:127.0.0.1") if tls else None
    tokens = {
        name: _acp_bridge("serve", "token", name, "--home", str(home)).stdout.decode().strip()
        for name in ("owner", "other")
    }
    words = [sys.executable, "-m", "acp_bridge", "serve", "127.0.0.1:0", "--root", str(folder)]
    words += ["--home", str(home), *(["--tls", *files] if files else []), "--", *FLOOR]
    log = folder / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(words, stderr=out, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            until = time.monotonic() + 20
            while "/acp" not in log.read_text() and time.monotonic() < until:
                time.sleep(0.05)
            port = int(log.read_text().partition("127.0.0.1:")[2].partition("/")[0])
            it = Served(process, port, files[0] if files else "", home)
            it.tokens = tokens
            it.log_in()
            yield it
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def attacked(it: Served, other: Prompting, attack: Attack, seconds: float = SECONDS) -> Seen:
    """Make one attack, and return what was seen meanwhile."""
    most, over, files = [it.rss()], threading.Event(), it.open_files()

    def watch() -> None:
        while not over.wait(0.02):
            most.append(it.rss())

    watching = threading.Thread(target=watch)
    watching.start()
    command = [sys.executable, "-I", str(_FLOODER), json.dumps(it.plan(attack, seconds))]
    delays = list[float]()
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as flooding:
            assert flooding.stdout
            time.sleep(0.3)
            while flooding.poll() is None:
                delays.append(other.prompt())
                time.sleep(_GAP)
            told = json.loads(flooding.stdout.read() or b"{}")
        ended = time.monotonic()
        while it.open_files() > files and time.monotonic() < ended + _GONE:
            time.sleep(0.1)
    finally:
        over.set()
        watching.join()
    return Seen(max(most) - it.rest, delays, told, time.monotonic() - ended)


def guessed(it: Served, how: str, seconds: float = SECONDS) -> tuple[list[float], dict[str, Any]]:
    """Have wrong tokens sent; returns the ms of all logins meanwhile, and what came of it.

    Raises an exception if the user can't log in.
    """
    command = [sys.executable, "-I", str(_FLOODER), json.dumps(it.guesses(how, seconds))]
    times, told = list[float](), list[dict[str, Any]]()
    with ExitStack() as all_of_them:
        guessing = [
            all_of_them.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            for _ in range(_GUESSERS)
        ]
        time.sleep(0.3)
        while any(each.poll() is None for each in guessing):
            times += [it.page_logs_in(), it.client_logs_in()]
            time.sleep(_GAP)
        told = [json.loads(each.stdout.read() or b"{}") for each in guessing if each.stdout]
    answers = Counter[str]()
    for each in told:
        answers.update(each["answers"])
    return times, {"tried": sum(each["tried"] for each in told), "answers": dict(answers)}


def settled(it: Served) -> float:
    """Return the server's MB at rest, which have not changed for half a second."""
    before = 0.0
    for _ in range(20):
        now = it.rss()
        if abs(now - before) < 0.2:
            break
        before = now
        time.sleep(0.5)
    return it.rss()


def busy() -> str:
    """Return a note if the machine has other work, "" if not."""
    load = os.getloadavg()[0]
    return f"note: the machine is busy (load {load:.1f}): delays are longer than they are alone"
