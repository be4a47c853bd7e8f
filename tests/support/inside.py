"""A bridge in the test's own process: it starts in a tenth of the time of one in its own."""

import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

from acp_bridge.core.settings import Settings
from acp_bridge.serving import serve
from tests.support.client import RecordingClient


@asynccontextmanager
async def inside(settings: Settings) -> AsyncIterator[RecordingClient]:
    """The client of such a bridge, over pipes; the bridge has 4 s to end when it has left.

    Agents get the environment of this process.
    """
    (stdin, to_bridge), (from_bridge, stdout) = os.pipe(), os.pipe()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, settings, stdin, stdout)
        async with RecordingClient(from_bridge, to_bridge) as client:
            with _log_of(client):
                yield client
                client.close_stdin()
                with anyio.fail_after(4):
                    await client.closed.wait()


class _LogHandler(logging.Handler):
    """The log of a bridge in this process goes to its client, as that of another one does."""

    def __init__(self, client: RecordingClient) -> None:
        super().__init__()
        self._client = client
        self.setFormatter(logging.Formatter(" %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._client.add_log(self.format(record).encode() + b"\n")


@contextmanager
def _log_of(client: RecordingClient) -> Iterator[None]:
    logger, handler = logging.getLogger("acp_bridge"), _LogHandler(client)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
