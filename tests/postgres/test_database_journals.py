"""What holds whenever clients come and go holds with sessions in a database, too."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from anyio.abc import TaskGroup
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_bridge.core.journal.store import Journal
from acp_bridge.core.settings import DatabaseUrl, Settings
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.files import DatabaseFiles
from acp_bridge.postgres.lease import Lease
from acp_bridge.postgres.url import parse
from tests.core.bridge import test_lagging, test_transcripts
from tests.core.bridge.test_cursors import TEXTS
from tests.core.sessions.agent import Agent
from tests.core.sessions.world import MemoryContext
from tests.support.in_memory import MEMORY
from tests.support.postgres import Cluster, server

__all__ = ["server"]

Numbers = st.integers(0, 9)
#: one cluster for all examples, a database for each.
_EXAMPLES = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def in_database(url: DatabaseUrl, databases: list[Database]) -> Iterator[None]:
    """Have every bridge of the tests keep its sessions there."""
    made: Callable[..., None] = MemoryContext.__init__

    def make(self: MemoryContext, agent: Agent, settings: Settings, tasks: TaskGroup) -> None:
        made(self, agent, settings, tasks)
        database = Database(url)
        databases.append(database)
        lease = Lease(database, settings.home, settings.lease)
        tasks.start_soon(lease.run)
        self.journal = Journal(settings.home, DatabaseFiles(database, lease, tasks))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryContext, "__init__", make)
        yield


def played(play: Callable[..., Awaitable[None]], events: object, server: Cluster) -> None:
    """Play events in a bridge whose sessions are in a database of their own."""

    async def all_of_it(home: Path) -> None:
        databases: list[Database] = []
        async with AsyncExitStack() as stack:
            with in_database(parse(server.new_database()), databases):
                await play(events, home)
            for each in databases:
                await stack.enter_async_context(each)

    with TemporaryDirectory(dir=MEMORY) as home:
        anyio.run(partial(all_of_it, Path(home)))


@pytest.mark.hazard("V1", "V2", "T2")
@_EXAMPLES
@given(events=st.lists(st.tuples(st.sampled_from(test_transcripts.EVENTS), Numbers), max_size=25))
def test_all_clients_have_the_same_whenever_they_came(
    server: Cluster, events: list[tuple[str, int]]
) -> None:
    played(test_transcripts.play, events, server)


@pytest.mark.hazard("N5.1")
@_EXAMPLES
@given(
    events=st.lists(st.tuples(st.sampled_from(test_lagging.EVENTS), Numbers, TEXTS), max_size=25)
)
def test_whoever_is_slow_or_cut_off_has_what_a_load_shows(
    server: Cluster, events: list[tuple[str, int, str]]
) -> None:
    played(test_lagging.play, events, server)
