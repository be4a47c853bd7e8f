"""Prompts that were accepted and wait, while the database is away: they run when it is back."""

import os
import signal

import pytest

from tests.support.client import RecordingClient
from tests.support.postgres import Cluster
from tests.support.waiting import until
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped
from tests.whole.test_bridge_several_clients import joined
from tests.whole.test_database import Two, load

pytestmark = pytest.mark.process


@pytest.fixture
def two(world: World, server: Cluster) -> Two:
    return Two(world, server.new_database())


async def queued(client: RecordingClient, world: World, *texts: str) -> list[int | str]:
    """Send a prompt that runs up to gate g, and others that are accepted behind it."""
    asked = [client.send_prompt("say one; gate g; say two")]
    await world.gates.reached("g")
    for text in texts:
        asked.append(client.send_prompt(text))
        await accepted(client, asked[-1])
    return asked


def said(client: RecordingClient) -> list[str]:
    """What user and agent said."""
    kinds = ("user_message_chunk", "agent_message_chunk")
    return [u["content"]["text"] for u in client.updates() if u["sessionUpdate"] in kinds]


@pytest.mark.hazard("N4.2", "N4.4", "K1", "Q5", "T2", "V1")
async def test_a_prompt_whose_turn_comes_while_the_database_is_away_runs_when_it_is_back(
    two: Two, world: World, server: Cluster
) -> None:
    two.here.lease = 600  # a server may start slowly
    async with (
        two.here.bridge(capabilities=TELL_ACCEPTED) as client,
        joined(two.here.world, client) as other,
    ):
        asked, waits, last = await queued(client, world, "say four", "say five")
        server.kill()
        try:
            world.gates.open("g")
            await client.answer_to(asked, 10)
            assert client.recording.answers(waits) == []
        finally:
            server.start()
        assert await stopped(client, waits, 10) == "end_turn"
        assert await stopped(client, last) == "end_turn"
        assert client.text().endswith("fourfive")
        await other.until_recorded(lambda: other.text().endswith("five"))
        session_id = client.session_id
    async with two.there.bridge(session=False) as client:
        await load(client, world, session_id)
        for each in (client, other):
            words = [word for word in said(each) if word.endswith(("four", "five"))]
            assert words == ["say four", "four", "say five", "five"]


@pytest.mark.hazard("C20.1", "N4.5")
async def test_a_stop_answers_a_prompt_that_waits_for_the_database_at_once(
    two: Two, world: World, server: Cluster
) -> None:
    two.here.lease = 600
    async with two.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked, waits, last = await queued(client, world, "say four", "say five")
        server.kill()
        try:
            world.gates.open("g")
            await client.answer_to(asked, 10)
            client.notify("session/cancel", {"sessionId": client.session_id})
            assert await stopped(client, waits) == "cancelled"
            assert client.recording.answers(last) == []
        finally:
            server.start()
        assert await stopped(client, last, 10) == "end_turn"
        assert "four" not in client.text()


@pytest.mark.hazard("N4.3", "P1")
async def test_a_prompt_that_waits_behind_a_turn_that_the_lease_ended_runs_when_it_is_back(
    two: Two, world: World, server: Cluster
) -> None:
    async with two.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked, waits = await queued(client, world, "say four")
        server.kill()
        try:
            assert "SIGKILL" in (await client.answer_to(asked, 20))["error"]["message"]
        finally:
            server.start()
        assert await stopped(client, waits, 20) == "end_turn"
        assert client.text().count("four") == 1
        assert "made ready" not in client.text()


@pytest.mark.hazard("N3", "N4.6", "Q5.1", "R12")
async def test_what_waits_for_the_database_is_left_over_where_the_session_was_taken_up(
    two: Two, world: World, server: Cluster
) -> None:
    two.there.lease = 600
    async with (
        two.there.bridge(session=False) as other,
        two.here.bridge(capabilities=TELL_ACCEPTED) as client,
    ):
        asked, waits = await queued(client, world, "say four")
        assert client.process is not None
        server.kill()
        try:
            await client.answer_to(asked, 20)
            os.kill(client.process.pid, signal.SIGSTOP)  # so that it is not back first
        finally:
            server.start()
        two.lease_ends()
        loaded = await load(other, world, client.session_id)
        os.kill(client.process.pid, signal.SIGCONT)
        refused = await client.answer_to(waits, 20)
        assert "another machine has taken up this session" in refused["error"]["message"]
        (held,) = loaded["_meta"]["acp_bridge"]["held"]
        assert held == [{"type": "text", "text": "say four"}]
        assert "four" not in client.text()


@pytest.mark.hazard("N4", "R12")
async def test_a_session_whose_close_met_an_error_is_free_long_before_the_next_renewal(
    two: Two, world: World
) -> None:
    two.here.lease = 600
    async with two.here.inside() as client:
        await client.prompt("say before")
        two.execute(
            "CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no'; END $$;"
            " CREATE TRIGGER fail BEFORE UPDATE ON acp_bridge.sessions FOR EACH ROW"
            " WHEN (NEW.owner IS NULL) EXECUTE FUNCTION public.fail()"
        )
        await client.request("session/close", {"sessionId": client.session_id})
        two.execute("DROP TRIGGER fail ON acp_bridge.sessions")
        free = "SELECT 1 FROM acp_bridge.sessions WHERE owner IS NULL"
        await until(lambda: two.execute(free), 5)
