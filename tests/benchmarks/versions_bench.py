"""What a translator costs for each update, in microseconds.

python -m tests.benchmarks.versions_bench
"""

from __future__ import annotations

import time
from collections.abc import Callable

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import encode, notification
from acp_bridge.versions.agent_end import AgentEnd
from acp_bridge.versions.second_version import TranslatedOutgoing

ROUNDS, EACH = 50, 500
CHUNK: Json = {
    "sessionUpdate": "agent_message_chunk",
    "messageId": "m1",
    "content": {"type": "text", "text": "token and "},
}
CALL: Json = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": "c1",
    "title": "Read x",
    "status": "in_progress",
    "rawInput": {"path": "/x"},
}


class Nowhere:
    """Takes what a client would get."""

    pending = taken = 0

    def write(self, data: bytes, lane: str | None = None) -> None:
        self.taken += len(data)

    async def run(self) -> None: ...
    async def drain_below(self, limit: int) -> None: ...
    async def flush(self, seconds: float) -> bool:
        return True

    def close(self) -> None: ...


def best(work: Callable[[], object]) -> float:
    """The shortest of many rounds: what else runs is not counted."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(EACH):
            work()
        times.append((time.perf_counter() - began) / EACH)
    return min(times) * 1e6


def main() -> None:
    client = TranslatedOutgoing(Nowhere())
    agent = AgentEnd()
    for name, update in (("a chunk", CHUNK), ("a tool call's update", CALL)):
        message = notification("session/update", {"sessionId": "s" * 32, "update": update})
        line = encode(message)
        to_client = best(lambda line=line: client.write(line))  # type: ignore[misc]
        from_agent = best(lambda message=message: agent.take_from_agent(message))  # type: ignore[misc]
        print(f"{name:22} {to_client:5.1f} us to a client, {from_agent:5.1f} us from an agent")


if __name__ == "__main__":
    main()
