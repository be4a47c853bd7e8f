"""One cluster for a run, a database for each test."""

from collections.abc import Iterator

import pytest

from acp_bridge.postgres.url import DatabaseUrl, parse
from tests.support.postgres import Cluster, cluster, server

__all__ = ["server"]


@pytest.fixture(scope="session")
def tcp_server() -> Iterator[Cluster]:
    """A running cluster that listens on the loopback, too, and asks for a password there."""
    with cluster(tcp=True) as made:
        yield made


@pytest.fixture
def database_url(server: Cluster) -> str:
    """The URL of a fresh database."""
    return server.new_database()


@pytest.fixture
def database(database_url: str) -> DatabaseUrl:
    """The same as the journal takes it."""
    return parse(database_url)
