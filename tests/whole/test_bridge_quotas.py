"""The limits that an agent reports, for a client and an agent of either version."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import until
from tests.whole.bridge_support import World
from tests.whole.pairing import Pairing, Speaker
from tests.whole.test_pairings import ALL, of

pytestmark = pytest.mark.process

TAKES: Any = {"session": {"quota": {}}}
METER = {"id": "five_hour", "label": "5-hour limit"}


def limits(it: Speaker) -> list[int]:
    """Return the percentages that the client was told by updates."""
    told = [u for u in it.client.updates() if u["sessionUpdate"] == "quota_update"]
    return [used(each) for each in told]


def used(snapshot: Any) -> int:
    (pool,) = snapshot["pools"]
    assert (pool["id"], pool["state"]) == ("plan", "available")
    (meter,) = pool["meters"]
    return int(meter["usedPercent"])


async def read(it: Speaker, **params: str) -> int:
    return used(await it.client.request("quota/read", params))


def holding(folder: Path, words: bytes) -> list[Path]:
    """Return the files below a folder that hold these bytes."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each for each in files if words in each.read_bytes()]


@of(ALL)
async def test_limits_are_told_and_read_and_kept_in_no_file(world: World, pairing: Pairing) -> None:
    async with pairing.inside(world, quotas=True, able=TAKES) as it:
        session = it.client.session_id
        (greeting, *_) = [r.message for r in it.client.recording if r.direction == "in"]
        can = "agentCapabilities" if pairing.client == 1 else "capabilities"
        assert greeting
        assert greeting["result"][can]["quota"] == {}
        assert await read(it) == 10
        assert await it.prompt("quota 42") == "end_turn"
        assert limits(it) == [42]
        assert await read(it) == await read(it, sessionId=session) == 42
        before = len(it.client.recording)
        await it.load(session, world)
        replayed = it.client.updates(since=before)
        assert replayed
        assert "quota_update" not in str(replayed)
    assert holding(world.home, b"quota 42")
    assert not holding(world.home, b"five_hour")


@of([Pairing(1, 1), Pairing(1, 2)])
async def test_a_client_of_version_1_that_takes_no_limits_is_told_none(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world, quotas=True) as it:
        assert await it.prompt("quota 42") == "end_turn"
        assert limits(it) == []
        assert await read(it) == 42


@of(ALL)
async def test_what_waits_behind_a_limit_of_any_agent_is_held_until_go(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world, quotas=True) as it:
        runs = it.send("gate g; limited")
        await world.gates.reached("g")
        waits = it.send("say after")
        # What the bridge handles next is answered behind it.
        await it.client.request("_acp_bridge/queue/list", {"sessionId": it.client.session_id})
        world.gates.open("g")
        assert await it.ended(runs) == -32099
        await it.client.until_text("The limit resets at ")
        assert world.log.prompts() == ["gate g; limited"]
        assert await it.prompt("/queue go") == "end_turn"
        assert await it.ended(waits) == "end_turn"
        await until(lambda: it.said().endswith("after"))
