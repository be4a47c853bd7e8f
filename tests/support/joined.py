"""One more client of a bridge, over its unix socket."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from acp_bridge.sharing.listening.run_files import LiveBridge, live_bridges
from tests.support.client import RecordingClient
from tests.support.waiting import until


async def listening(home: Path, pid: int | None = None, within: float = 5) -> LiveBridge:
    """The bridge with this pid, or the only one, as soon as it listens."""
    bridges = await until(
        lambda: [each for each in live_bridges(home) if pid is None or each.pid == pid], within
    )
    return bridges[0]


@asynccontextmanager
async def joined(path: str) -> AsyncIterator[RecordingClient]:
    """A client on the socket of this path; on leaving its connection ends, whatever is unread.

    Raises OSError if nobody listens there.
    """
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(path)
        ends = os.dup(ours.fileno()), os.dup(ours.fileno())
    async with RecordingClient(*ends) as client:
        yield client
