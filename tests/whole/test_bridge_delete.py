"""`session/delete`: gone from the list and from disk, never another's; what is kept is said."""

import pytest

from tests.support.client import RecordingClient
from tests.whole.bridge_support import World, fails, kill_agent, stopped
from tests.whole.test_bridge_list import keeps, listed
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("K6")]


async def two_sessions(world: World, client: RecordingClient) -> tuple[str, str]:
    """Two sessions in two folders, which the agent both calls 0."""
    first = client.session_id
    await client.prompt("say one")
    other = world.cwd.parent / "elsewhere"
    other.mkdir()
    second = await client.new_session(other)
    await client.prompt("say two")
    return first, second


async def test_a_session_is_deleted_at_the_agent_though_it_was_the_only_one(world: World) -> None:
    async with world.inside("deletes") as client:
        await client.prompt("say one")
        session = client.session_id
        result = await client.request("session/delete", {"sessionId": session})
        assert result == {}
        assert [m["params"] for m in world.log.received("session/delete")] == [{"sessionId": "0"}]
        assert await listed(client) == []
        assert list((world.home / "sessions").glob(f"{session}*")) == []
        # The process that deleted it becomes the next session's.
        await client.new_session(world.cwd)
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
    assert len(world.log.pids()) == 2


@pytest.mark.hazard("K6.2")
async def test_no_other_session_with_the_same_id_at_the_agent_is_deleted(world: World) -> None:
    async with world.inside("deletes") as client:
        first, second = await two_sessions(world, client)
        running = client.send_prompt("gate g; say three", second)
        await world.gates.reached("g")
        result = await client.request("session/delete", {"sessionId": first})
        assert "another session has the same id" in keeps(result)
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert [row["sessionId"] for row in await listed(client)] == [second]
        assert await client.prompt("history", second) == {"stopReason": "end_turn"}
        assert "say two" in client.text(second)
        await client.request("session/close", {"sessionId": second})
        # Closed it is another's all the same; deleted too, it is nobody's any more.
        assert await client.request("session/delete", {"sessionId": second}) == {}
        assert await listed(client) == []
    assert len(world.log.received("session/delete")) == 1


@pytest.mark.hazard("K6.2")
async def test_an_id_of_the_agent_deletes_no_session_that_has_another_one_here(
    world: World,
) -> None:
    async with world.inside("deletes") as client:
        await client.prompt("say one")
        result = await client.request("session/delete", {"sessionId": "0"})
        assert "another session" in keeps(result)
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert len(await listed(client)) == 1
    assert world.log.received("session/delete") == []


@pytest.mark.hazard("K6.4", "K6.5")
@pytest.mark.parametrize(
    ("behaviour", "told"), [("", "can't delete"), ("refuses-delete", "kept for the audit")]
)
async def test_what_an_agent_keeps_is_hidden_and_said(
    world: World, behaviour: str, told: str
) -> None:
    behaviours = [behaviour] if behaviour else []
    async with world.inside(*behaviours) as client:
        await client.prompt("say one")
        session = client.session_id
        assert told in keeps(await client.request("session/delete", {"sessionId": session}))
        assert await listed(client) == []
    async with world.inside(*behaviours, session=False) as client:
        assert await listed(client) == []
        for gone in (session, "0"):
            setup = {"sessionId": gone, "cwd": str(world.cwd), "mcpServers": []}
            await fails(client, "session/load", -32002, **setup)


@pytest.mark.parametrize("behaviour", ["", "refuses-delete"])
async def test_a_session_that_only_the_agent_knows_is_hidden_when_it_is_deleted(
    world: World, behaviour: str
) -> None:
    behaviours = [behaviour] if behaviour else []
    async with world.inside(*behaviours) as client:
        await client.prompt("say one")
    for file in (*(world.home / "sessions").glob("*"), world.home / "index.db"):
        file.unlink()
    async with world.inside(*behaviours, session=False) as client:
        await client.new_session(world.cwd)  # a process is there to be asked
        assert [row["sessionId"] for row in await listed(client)] == ["0"]
        assert keeps(await client.request("session/delete", {"sessionId": "0"}))
        assert await listed(client) == []


@pytest.mark.hazard("K6.6")
async def test_an_id_that_the_agent_gave_up_for_a_new_one_is_not_listed_as_its_own(
    world: World,
) -> None:
    async with world.inside("forgets-young", "refuses-load") as client:
        client.send_prompt("say one; gate never")
        await world.gates.reached("never")
        await kill_agent(world, client)
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert [row["sessionId"] for row in await listed(client)] == [client.session_id]


@pytest.mark.hazard("R8", "K6.7")
async def test_the_session_of_another_agent_is_left_to_that_one(world: World) -> None:
    async with world.inside("deletes") as client:
        await client.prompt("say one")
        session = client.session_id
    async with world.inside(command=tiny_agent(world.cwd, "")) as client:
        error = await fails(client, "session/delete", -32602, sessionId=session)
        assert "the session belongs to the agent" in str(error)
    async with world.inside("deletes", session=False) as client:
        assert [row["sessionId"] for row in await listed(client)] == [session]
        assert await client.request("session/delete", {"sessionId": session}) == {}
