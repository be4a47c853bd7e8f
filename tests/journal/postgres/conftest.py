"""One cluster for a run, a database for each test."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import Cluster, cluster


@pytest.fixture(scope="session")
def server() -> Iterator[Cluster]:
    """A running cluster; who stops it starts it again."""
    with cluster() as made:
        yield made


@pytest.fixture
def database_url(server: Cluster) -> str:
    """The URL of a fresh database."""
    return server.new_database()
