"""What every test shares."""

import gc
import logging
import os
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from tests.support import fork_server
from tests.support.client import RecordingClient
from tests.support.fixture_agents import FixtureLog, StartAgent, fixture_command
from tests.support.gates import Gates
from tests.support.processes import MARK, kill_marked

# Before the test modules are read: their own settings start from the profile. `default` draws the
# same examples on every run; `long` others each time. No time limits on a shared machine.
settings.register_profile(
    "default",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


LOGGER = logging.getLogger("acp_bridge")
#: its state before any test
LOG = (
    LOGGER.handlers[:],
    LOGGER.propagate,
    LOGGER.level,
    logging.lastResort,
    logging.root.manager.disable,
)

#: how a file marks a test as slow.
SLOW = "mark.slow"
#: the folder of tests that load LiteLLM in their own process.
LOADING = "tests/agent/providers/"
#: in the names of files or folders whose processes import LiteLLM, or wait for a database.
SLOWEST = ("built_in", "database", "postgres")


def pytest_configure() -> None:
    """Tests start hundreds of interpreters: each would compile all it imports, were this set. And
    no test uses the settings, or spends the money, of whoever runs it."""
    gc.disable()  # while tests are read, when nothing goes
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in list(os.environ):
        if name.startswith("ACP_BRIDGE_") or name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")):
            del os.environ[name]
    os.environ["ACP_BRIDGE_DEBUGGABLE"] = "1"  # processes are found by their environment


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m slow` reads only files that name the mark: reading all tests takes 7 s in each worker."""
    if config.option.markexpr != "slow" or not collection_path.name.startswith("test_"):
        return None
    return True if SLOW not in collection_path.read_text("utf-8") else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Twice as many as there are cores: who starts processes waits for half of its time.

    With `logical` one more than there are cores: tests of core hardly wait, and each worker reads
    all tests first.
    """
    cores = os.cpu_count() or 1
    return cores + 1 if config.option.numprocesses == "logical" else 2 * cores


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker that has loaded LiteLLM, which takes 3 s, gets all files that load it."""
    if config.getoption("dist") != "loadfile":
        return None
    files = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    files._split_scope = _scope  # xdist has no hook for it
    return files


def _scope(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return LOADING if file.startswith(LOADING) else file


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several workers, the slowest files come first, then those that start processes, the
    files with the most such tests before the others: in the end no worker has a long file while the
    others have nothing more to do."""
    if not hasattr(config, "workerinput"):
        return
    starts = Counter(item.path for item in items if item.get_closest_marker("process"))
    slow = {item.path: any(name in str(item.path) for name in SLOWEST) for item in items}
    items.sort(key=lambda item: (not slow[item.path], -starts[item.path]))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Give the collector no more to look through than what tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """What serves in this process sets up the log, also in the fixture of a module, and notes the
    data folder for the commands that it shows; later tests read them."""
    yield
    for handler in LOGGER.handlers:
        if handler not in LOG[0]:
            handler.close()
    LOGGER.handlers[:], LOGGER.propagate = LOG[0], LOG[1]
    LOGGER.setLevel(LOG[2])
    logging.lastResort = LOG[3]
    logging.disable(LOG[4])
    OWN_COMMANDS.use_home(None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, as a user's is; those of pytest are too long for sockets."""
    folder = tempfile.mkdtemp(prefix="short-")
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
async def gates() -> AsyncIterator[Gates]:
    async with Gates() as gates:
        yield gates


@pytest.fixture
def mark() -> Iterator[str]:
    """In the environment of every process of the test; what is left at its end is killed."""
    mark = uuid.uuid4().hex
    yield mark
    kill_marked(mark)


@pytest.fixture
def whole_starts() -> Iterator[None]:
    """For a test that is about how a process starts: none is forked (support/fork_server.py)."""
    with fork_server.whole_starts():
        yield


@pytest.fixture
def agent_log(tmp_path: Path) -> FixtureLog:
    return FixtureLog(tmp_path / "agent.log")


@pytest.fixture
def agent_env(tmp_path: Path, gates: Gates, mark: str, agent_log: FixtureLog) -> dict[str, str]:
    """What a fixture agent, or the bridge before it, needs in its environment."""
    home = {"FIXTURE_HOME": str(tmp_path / "agent-home")}
    return {**gates.env, **agent_log.env, **home, MARK: mark}


@pytest.fixture
def start_agent(agent_env: dict[str, str]) -> StartAgent:
    """`start_agent("leaks")`: a fixture agent alone, initialized and in a session."""

    @asynccontextmanager
    async def start_agent(*behaviours: str, opened: bool = True) -> AsyncIterator[RecordingClient]:
        async with RecordingClient.start(fixture_command(*behaviours), env=agent_env) as client:
            await client.initialize()
            if opened:
                await client.new_session("/w")
            yield client

    return start_agent
