"""Servers on two machines with one database: each tells where a session is that it can't have."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import RpcError
from tests.support.waiting import until
from tests.whole.bridge_support import World
from tests.whole.test_database import Two, load, two
from tests.whole.test_serve import serving

__all__ = ["two"]
pytestmark = pytest.mark.process
THERE = "https://there.example"


async def refusal(client: RecordingClient, world: World, session_id: str) -> Any:
    """What the error says beside its sentence with which a load is refused."""
    with pytest.raises(RpcError) as refused:
        await load(client, world, session_id)
    assert refused.value.data.pop("details") == refused.value.message
    return refused.value.data


async def test_a_load_of_what_another_machine_has_is_refused_with_its_name_and_its_server(
    two: Two, world: World, tmp_path: Path
) -> None:
    options = (*two.there.options, "--behind-proxy", THERE)
    async with two.there.inside() as client, two.here.inside(session=False) as other:
        (machine,) = two.execute("SELECT DISTINCT machine FROM acp_bridge.bridges")
        told = {"reason": "elsewhere", "machine": machine[0]}
        assert await refusal(other, world, client.session_id) == told
        async with serving(two.there.world, tmp_path, *options):
            server = "SELECT 1 FROM acp_bridge.bridges WHERE address IS NOT NULL"
            await until(lambda: two.execute(server), 10)
            assert await refusal(other, world, client.session_id) == {**told, "address": THERE}
        assert await refusal(other, world, client.session_id) == told


async def test_what_a_database_says_is_an_address_only_if_it_is_an_origin(
    two: Two, world: World
) -> None:
    async with two.there.inside() as client, two.here.inside(session=False) as other:
        for text in ("https://x/?token", "https://a@x", "javascript:x", "http://x", "https://x\n"):
            two.execute(f"UPDATE acp_bridge.bridges SET address = '{text}'")
            assert "address" not in await refusal(other, world, client.session_id)
