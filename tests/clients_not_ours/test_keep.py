"""Clients that are not ours on `acp-bridge --keep`: they end in every way, and nothing is lost.

What the SDKs' clients do stands in sdk_kept.mjs and sdk_kept.py.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.clients_not_ours.conftest import Tape
from tests.clients_not_ours.kept import LAST, RUNNING, WAITING, Kept, check_text
from tests.support.fixture_agents import fixture_command
from tests.support.gates import Gates
from tests.support.processes import children, descendants, gone

pytestmark = pytest.mark.process

TYPESCRIPT, PYTHON = "sdk_kept.mjs", "sdk_kept.py"
#: how the client ends what it has started. The Python SDK gives it no group of its own.
BY_CLIENT = ["group", "tree", "SIGTERM", "stdin", "close, SIGKILL", "close and SIGKILL"]


@pytest.fixture
async def kept(
    modules: Path,
    tape: Tape,
    folder: Path,
    client_env: dict[str, str],
    gates: Gates,
    tmp_path: Path,
) -> Kept:
    return Kept(tmp_path / "home", folder, client_env, tape, gates, modules)


async def has_left(kept: Kept, session: str, script: str) -> None:
    """The client is gone: what it left goes on, and one that comes back has it all."""
    await kept.until(session, state="running", waiting=1)
    (bridge,) = await kept.bridges()
    kept.gates.open("left")
    await kept.until(session, state="permission", waiting=1, clients=0)
    again = {"session": session, "until": "b-one0 1 2 ", "last": LAST}
    command = kept.tape.command(*fixture_command())
    async with kept.client(script, "returns", command=command, **again) as client:
        seen = await client.told()
        assert await client.process.wait() == 0
    check_text(seen["text"])
    assert seen["asked"] == [RUNNING, WAITING]
    assert bridge in await kept.bridges()
    await kept.end()


@pytest.mark.hazard("V7")
@pytest.mark.parametrize(
    ("script", "way"),
    [(TYPESCRIPT, way) for way in BY_CLIENT] + [(PYTHON, way) for way in BY_CLIENT[1:]],
)
async def test_however_a_client_ends_its_bridge_turn_and_queue_go_on_and_it_sees_the_end(
    kept: Kept, script: str, way: str
) -> None:
    given = {"command": kept.bridge(), "prompts": [RUNNING, WAITING]}
    async with kept.client(script, "leaves", **given) as client:
        session = (await client.told())["session"]
        await kept.gates.reached("left", within=30)
        await kept.until(session, waiting=1)
        await client.tell(way)
        await client.told()
        assert await client.process.wait() == 0
    await has_left(kept, session, script)


def by_group(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


def by_tree(pid: int) -> None:
    for each in [*reversed(descendants(pid)), pid]:
        os.kill(each, signal.SIGKILL)


def from_the_top(pid: int) -> None:
    for each in [pid, *descendants(pid)]:
        os.kill(each, signal.SIGKILL)


def alone(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.hazard("V7")
@pytest.mark.parametrize("script", [TYPESCRIPT, PYTHON])
@pytest.mark.parametrize("kill", [by_group, by_tree, from_the_top, alone])
async def test_a_client_that_is_killed_with_what_it_has_started_loses_nothing(
    kept: Kept, script: str, kill: "object"
) -> None:
    given = {"command": kept.bridge(), "prompts": [RUNNING, WAITING]}
    async with kept.client(script, "leaves", **given) as client:
        session = (await client.told())["session"]
        await kept.gates.reached("left", within=30)
        await kept.until(session, waiting=1)
        below = children(client.process.pid)
        assert callable(kill)
        kill(client.process.pid)
        await client.process.wait()
        for pid in below:
            await gone(pid, within=5)
    await has_left(kept, session, script)
