"""The database that has the sessions of a run, and the kill of its server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import anyio
import psycopg

from tests.support.postgres import Cluster, cluster

#: the least that there is; nobody waits for its end.
_LEASE: Final = "15"


@dataclass(frozen=True)
class Database:
    """A database, with its server to itself."""

    server: Cluster
    url: str

    @property
    def env(self) -> dict[str, str]:
        """Of a bridge that keeps its sessions there."""
        return {"ACP_BRIDGE_JOURNAL": self.url, "ACP_BRIDGE_LEASE": _LEASE}

    def leases_end(self) -> None:
        """As if no bridge had renewed its lease for the time of it."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("UPDATE acp_bridge.bridges SET until = clock_timestamp()")

    @asynccontextmanager
    async def dead(self) -> AsyncIterator[None]:
        """Kill the server for the block; it is back afterwards."""
        await anyio.to_thread.run_sync(self.server.kill)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.server.start)


@contextmanager
def database() -> Iterator[Database]:
    """Give the database of a run."""
    with cluster() as server:
        yield Database(server, server.new_database())
