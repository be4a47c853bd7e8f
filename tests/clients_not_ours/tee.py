"""A recording tee between a client and the agent that it starts: every line, both ways.

    python tee.py TAPE COMMAND ARGS...

Invariants
- A line is on the tape before it is passed on, so none stands there before its cause.
- The agent's bytes come out as they went in, and its end is the tee's end.

The tape has JSON lines: `{"tee": pid, "agent": pid}` at the start, then
`{"tee": pid, "from": "client" | "agent", "line": text}`. Several tees may share one.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Literal

Side = Literal["client", "agent"]


class Tape:
    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, **entry: Any) -> None:
        os.write(self._fd, json.dumps({"tee": os.getpid(), **entry}).encode() + b"\n")

    def copy(self, side: Side, source: IO[bytes], target: IO[bytes]) -> None:
        """Until the source ends or nobody reads the target; then the target is closed."""
        try:
            for line in source:
                self.add(**{"from": side, "line": line.decode("utf-8", "backslashreplace")})
                target.write(line)
                target.flush()
            target.close()
        except BrokenPipeError:
            source.close()


def main(path: str, *command: str) -> None:
    tape = Tape(path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        tape.add(agent=agent.pid)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, _passing_on(agent))
        ways = ("client", sys.stdin.buffer, agent.stdin)
        threading.Thread(target=tape.copy, args=ways, daemon=True).start()
        tape.copy("agent", agent.stdout, sys.stdout.buffer)
        code = agent.wait()
        # The thread may be blocked in a read for ever: an orderly exit would wait for its lock.
        os._exit(code if code >= 0 else 128 - code)


def _passing_on(agent: subprocess.Popen[bytes]) -> Callable[[int, Any], None]:
    return lambda number, frame: agent.send_signal(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
