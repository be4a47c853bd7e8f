"""What `--trace` costs for each update, in microseconds: both sides, with writing the file.

python -m tests.benchmarks.trace_bench
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio

from acp_bridge.core.wire.jsonrpc import encode, loads, notification
from acp_bridge.trace.file import TraceFile
from acp_bridge.trace.trace import Trace
from tests.benchmarks.versions_bench import CALL, CHUNK, Nowhere, best


class Nothing:
    """Nothing comes from here."""

    async def read(self) -> bytes:
        return b""

    def close(self) -> None: ...


def a_round(trace: Trace, line: bytes, updates: int) -> Callable[[], object]:
    """So many updates that are read at once, and sent to a client as a bridge does it: at once."""
    heard, _ = trace.of_agent(Nowhere())
    _, outgoing = trace.of_client(Nothing(), Nowhere())
    lines, messages = [line[:-1]] * updates, [loads(line)] * updates
    data = line * updates

    def play() -> None:
        heard(lines, messages)
        outgoing.write(data)
        trace.end_round()

    return play


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = Trace(TraceFile(Path(folder) / "trace"))
        for name, update in (("a chunk", CHUNK), ("a tool call's update", CALL)):
            line = encode(notification("session/update", {"sessionId": "s" * 32, "update": update}))
            alone, many = (best(a_round(trace, line, each)) / each for each in (1, 20))
            print(f"{name:22} {alone:5.1f} us alone, {many:5.1f} us of 20 in one round")
        trace.close()


if __name__ == "__main__":
    anyio.run(main)
