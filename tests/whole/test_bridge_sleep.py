"""A session at rest with real processes: its agent ends and comes back, and nobody sees it."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.agents.descendants import descendants, first_descendants
from tests.support.client import RecordingClient
from tests.whole.bridge_support import World, kill_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("R16")]

#: seconds of rest.
SOON = 0.05


async def reloaded(world: World, client: RecordingClient) -> None:
    """Have one turn end well, and the agent be seen to take the session up again."""
    await client.prompt("say one")
    await kill_agent(world, client)
    await client.prompt("say two")


async def marked_asleep(client: RecordingClient) -> list[str]:
    listed = await client.request("session/list", {})
    rows = listed["sessions"]
    return [row["sessionId"] for row in rows if "asleep" in str(row.get("_meta"))]


async def until(true: Callable[[], Awaitable[object]]) -> None:
    with anyio.fail_after(10):
        while not await true():
            await anyio.lowlevel.checkpoint()


@pytest.mark.hazard("R16.2")
@pytest.mark.parametrize("way", [(), ("load-only",)])
async def test_an_agent_that_was_seen_to_reload_sleeps_and_remembers_all_when_it_is_needed(
    world: World, way: tuple[str, ...]
) -> None:
    async with world.inside(*way, sleep_after=SOON) as client:
        await reloaded(world, client)
        await until(lambda: marked_asleep(client))
        assert len(world.log.pids()) == 2
        seen = client.mark()
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts(since=seen) == ["say one | say two"]
        kinds = {update["sessionUpdate"] for update in client.updates(since=seen)}
        assert kinds <= {"agent_message_chunk", "user_message_chunk"}
        await until(lambda: marked_asleep(client))
        assert len(world.log.pids()) == 3


async def test_a_session_that_sleeps_is_loaded_closed_and_deleted_like_any_other(
    world: World,
) -> None:
    async with world.inside(sleep_after=SOON) as client:
        await reloaded(world, client)
        await until(lambda: marked_asleep(client))
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        assert client.texts(since=seen)[-1] == "two"
        await until(lambda: marked_asleep(client))
        await client.request("session/close", {"sessionId": client.session_id})
        await client.load_session(client.session_id, world.cwd)
        await until(lambda: marked_asleep(client))
        await client.request("session/delete", {"sessionId": client.session_id})
        assert await marked_asleep(client) == []


@pytest.mark.hazard("R16.1")
async def test_a_process_that_the_agent_has_started_in_a_turn_keeps_it_awake(
    world: World,
) -> None:
    async with world.inside(sleep_after=SOON) as client:
        await reloaded(world, client)
        await client.prompt("child")
        main = world.log.pids()[-1]
        found = descendants(main)
        assert found
        assert first_descendants(main) == found
        with anyio.move_on_after(10 * SOON):
            await until(lambda: marked_asleep(client))
        assert await marked_asleep(client) == []
