"""A process that has imported a program, and forks off each process of it that a test starts.

A bridge's own interpreter takes 0.3 s of CPU until it serves, the built-in agent's 0.9 s, nearly
all of it for imports. A process that is forked has the command's words, environment, folder,
session and three streams, and runs `main` of the program's `__main__.py` up to the end of its
interpreter, as the other would. An agent that a bridge starts is not forked here.

What it shares with its server, and a test must not be about: when modules are imported; what Python
reads from the environment when it starts; the command line that `/proc` shows, and its environment
but for the mark of the test.
"""

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from acp_bridge.core.agents.guard import ENV_START

ROOT = Path(__file__).parents[2]
#: What a command begins with that can be forked.
BRIDGE = (sys.executable, "-m", "acp_bridge")
AGENT = (sys.executable, "-m", "agent")
#: The environment variable with the mark of a test, by which its processes are found.
MARK = "FIXTURE_MARK"
#: The mark of the server itself; that of a forked bridge is written over it.
_NO_MARK = "0" * 32
#: What Python and its libraries read from the environment when they start.
_READ_AT_START = ("LC_", "LANG", "LD_", "MALLOC_", "OPENSSL_", "SSL_", "TZ")
#: Words that lead to other processes of the same command line, which tests find by it.
_NEEDS_ITS_COMMAND_LINE = ("--keep", "--spare")
#: What a program imports until it has answered a prompt; the agent, before a model library.
_IMPORTED = {
    "acp_bridge": (
        "acp_bridge.__main__",
        "acp_bridge.serving",
        "acp_bridge.sharing.listening.listener",
        "acp_bridge.terminal.cli.stdio",
        "anyio._backends._asyncio",
    ),
    "agent": (
        "agent.__main__",
        "agent.providers.all_models",
        "agent.serve.connection",
        "agent.serve.sdk_transport",
        "anyio._backends._asyncio",
    ),
}
_SERVER = "from tests.support.fork_server import main; main()"


class Forked:
    """A forked process, as `subprocess.Popen` has one."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self.pid = pid
        #: as Popen has it: negative for a signal, None as long as nobody has seen it end.
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(collect=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code, when it has ended, or raise TimeoutError after these seconds."""
        while (code := self.poll()) is None:
            fd = os.pidfd_open(self.pid)
            try:
                if not select.select([fd], [], [], timeout)[0]:
                    raise TimeoutError
            finally:
                os.close(fd)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A server of this process; it ends with us."""

    def __init__(self, program: str, env: Mapping[str, str]) -> None:
        """Start it for a program of `_IMPORTED`, with `env` added to the environment."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-c", _SERVER, str(theirs.fileno()), program),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **env, MARK: _NO_MARK},
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket, self._lock = ours, threading.Lock()
        atexit.register(self._end)

    def _end(self) -> None:
        """End it, not what it has forked."""
        self._socket.close()
        self._process.wait()

    def ask(self, fds: Sequence[int] = (), **question: Any) -> Any:
        """Ask the server something; returns its answer."""
        body = json.dumps(question).encode()
        with self._lock:
            socket.send_fds(self._socket, [struct.pack("!I", len(body))], fds)
            self._socket.sendall(body)
            size, _ = _received(self._socket, 4)
            return json.loads(_received(self._socket, *struct.unpack("!I", size))[0])


def _received(peer: socket.socket, count: int) -> tuple[bytes, list[int]]:
    """Exactly `count` bytes, and the descriptors with them; raises EOFError."""
    data, fds = b"", list[int]()
    while len(data) < count:
        part, new, _, _ = socket.recv_fds(peer, count - len(data), 3)
        fds += new
        if not part:
            raise EOFError
        data += part
    return data, fds


_servers: dict[tuple[int, str, frozenset[tuple[str, str]]], ForkServer] = {}
_whole: list[None] = []


def fork(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None, fds: Sequence[int]
) -> Forked | None:
    """Fork a program with all of this environment; `fds`: its stdin, stdout and stderr, copied.

    None if the command is none of them, if tests see a difference, and within `whole_starts`.
    """
    if (
        tuple(command[: len(BRIDGE)]) not in (BRIDGE, AGENT)
        or any(word in _NEEDS_ITS_COMMAND_LINE for word in command)
        or len(env.get(MARK, _NO_MARK)) != len(_NO_MARK)
        or _whole
        or sys.platform != "linux"
        or _imports(env) != _imports(os.environ)
    ):
        return None
    read = {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}
    program, *words = command[len(BRIDGE) - 1 :]
    key = os.getpid(), program, frozenset(read.items())
    if key not in _servers:
        _servers[key] = ForkServer(program, read)
    pid = _servers[key].ask(fds, words=words, env=dict(env), cwd=str(cwd or Path.cwd()))
    return Forked(_servers[key], pid)


def _imports(env: Mapping[str, str]) -> dict[str, str]:
    """What of it leads to other imports; this bridge is found without a path to it."""
    found = {name: value for name, value in env.items() if name.startswith("PYTHON")}
    return {name: found[name] for name in found if (name, found[name]) != ("PYTHONPATH", str(ROOT))}


@contextlib.contextmanager
def whole_starts() -> Iterator[None]:
    """Meanwhile, each process has an interpreter of its own."""
    _whole.append(None)
    try:
        yield
    finally:
        _whole.pop()


# --- the server ------------------------------------------------------------------------------


def main() -> None:
    """Serve until the tests end; in each process that is forked, be the program."""
    name = sys.argv[2]
    program, *_ = map(import_module, _IMPORTED[name])

    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as tests:
        try:
            while not (question := _serve(tests)):
                pass
        except (EOFError, ConnectionError):
            return
    _become(name, question)
    sys.exit(program.main())


def _serve(tests: socket.socket) -> dict[str, Any] | None:
    """Answer one question; what was asked, in the process that was forked for it."""
    size, fds = _received(tests, 4)
    question: dict[str, Any] = json.loads(_received(tests, *struct.unpack("!I", size))[0])
    answer: int | None
    if (pid := question.get("collect")) is not None:
        done, status = os.waitpid(pid, os.WNOHANG)
        answer = os.waitstatus_to_exitcode(status) if done else None
    else:
        answer = os.fork()
        if not answer:
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
            return question
        for fd in fds:
            os.close(fd)
    body = json.dumps(answer).encode()
    tests.sendall(struct.pack("!I", len(body)) + body)
    return None


def _become(name: str, question: dict[str, Any]) -> None:
    """Make this process what `exec` would have made of it."""
    os.setsid()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(question["cwd"])
    env = question["env"]
    _write_mark(env.get(MARK, _NO_MARK))
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [str(ROOT / name / "__main__.py"), *question["words"]]
    sys.orig_argv = [sys.executable, "-m", name, *question["words"]]
    sys.path[0] = os.getcwd()
    if os.isatty(1):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _write_mark(mark: str) -> None:
    """Write it where `/proc/PID/environ` shows it."""
    with open("/proc/self/stat", "rb") as file:
        at = int(file.read().rpartition(b")")[2].split()[ENV_START])
    with open("/proc/self/environ", "rb") as file:
        at += file.read().index(f"{MARK}={_NO_MARK}".encode()) + len(MARK) + 1
    with open("/proc/self/mem", "wb", buffering=0) as memory:
        memory.seek(at)
        memory.write(mark.encode())
