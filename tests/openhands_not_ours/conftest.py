"""The agent-server, its model, and the two arrangements in which every test is run.

These tests need 740 MB from the package index, so they are collected only where they are asked for
by their path (`make test-openhands`), and not at all in `make test`. What can't be set up is red.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.clients_not_ours.conftest import modules, schema, tape  # noqa: F401  (fixtures)
from tests.clients_not_ours.test_acpx import acpx_home  # noqa: F401  (a fixture)
from tests.openhands_not_ours.model import ModelServer
from tests.openhands_not_ours.proxy import Proxy
from tests.openhands_not_ours.server import KEY, AgentServer, Api
from tests.openhands_not_ours.stand import Stand
from tests.support.processes import MARK, all_gone

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    invoked = config.invocation_params.dir
    asked = (invoked / arg.partition("::")[0] for arg in config.args)
    return None if any(path.resolve().is_relative_to(HERE) for path in asked) else True


@pytest.fixture(scope="session")
def a_model() -> Iterator[ModelServer]:
    with ModelServer() as model:
        yield model


@pytest.fixture
def model(a_model: ModelServer) -> ModelServer:
    """Knows nothing of the tests before."""
    a_model.begin_test()
    return a_model


@pytest.fixture(scope="session")
def server(a_model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """Shared by all tests that leave it alone."""
    with AgentServer(tmp_path_factory.mktemp("agent-server"), a_model.url) as server:
        yield server


@pytest.fixture(scope="session")
def a_mortal_server(
    a_model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentServer]:
    with AgentServer(tmp_path_factory.mktemp("mortal-server"), a_model.url) as server:
        yield server


@pytest.fixture
def mortal(a_mortal_server: AgentServer) -> AgentServer:
    """Runs when the test begins; the test may kill it."""
    if a_mortal_server.process is None:
        a_mortal_server.start()
    a_mortal_server.running()
    return a_mortal_server


@pytest.fixture(params=["alone", "bridged"])
def bridged(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "bridged")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
async def stand(
    server: AgentServer, model: ModelServer, bridged: bool, tmp_path: Path, folder: Path, mark: str
) -> AsyncIterator[Stand]:
    async for stand in make_stand(server, model, bridged, tmp_path, folder, mark):
        yield stand


@pytest.fixture
async def mortal_stand(
    mortal: AgentServer, model: ModelServer, bridged: bool, tmp_path: Path, folder: Path, mark: str
) -> AsyncIterator[Stand]:
    """On a server that the test may kill."""
    async for stand in make_stand(mortal, model, bridged, tmp_path, folder, mark):
        yield stand


async def make_stand(
    server: AgentServer, model: ModelServer, bridged: bool, tmp_path: Path, folder: Path, mark: str
) -> AsyncIterator[Stand]:
    """For a fixture: when the test is over, no process of it is left."""
    api = Api(server.url)
    env = {MARK: mark, "HOME": str(tmp_path)}
    before = set(await api.conversations())
    yield Stand(server, model, api, bridged, tmp_path / "home", folder, env, before)
    await api.close()
    await all_gone(mark, within=8)  # P1


@pytest.fixture
async def proxy(server: AgentServer) -> AsyncIterator[Proxy]:
    """Between the adapter and the shared server."""
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def client_env(tmp_path: Path, mark: str) -> dict[str, str]:
    """For a client that starts the bridge."""
    own = {"ACP_BRIDGE_HOME": str(tmp_path / "home"), "OPENHANDS_SESSION_API_KEY": KEY}
    return {**os.environ, **own, MARK: mark, "PYTHONPATH": str(HERE.parents[1])}
