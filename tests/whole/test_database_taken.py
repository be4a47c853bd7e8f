"""A session that another machine has taken while the agent here still works.

The lease here is long, so that no guard and no renewal ends anything in the time of a test: what
ends is what the bridge has learned of the session's own row. Each agent beats: it adds lines to a
file of its own for as long as it lives, and what it has started as well.
"""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.postgres import Cluster
from tests.support.recording import Message, RpcError
from tests.support.waiting import until
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped
from tests.whole.test_bridge_hooks import hooks
from tests.whole.test_database import Two, load
from tests.whole.test_database_failover import Failover, asynchronous, pair

pytestmark = pytest.mark.process
__all__ = ["asynchronous", "pair"]

#: of the notice that a session was taken.
TOLD = "can't go on here"
#: seconds.
LONG = 300
#: as another bridge claims a session, whatever became of the lease of the one that has it.
CLAIM = "UPDATE acp_bridge.sessions SET owner = 'another', fence = fence + 1"


@pytest.fixture
def two(world: World, server: Cluster) -> Two:
    made = Two(world, server.new_database())
    made.here.lease = LONG
    return made


class Beats:
    """A file to which something that lives adds lines."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def count(self) -> int:
        return self.file.read_bytes().count(b"\n") if self.file.exists() else 0

    async def more(self, count: int = 5) -> None:
        """Until there are so many more."""
        wanted = self.count + count
        await until(lambda: self.count >= wanted, 10)


def beats(world: World, name: str) -> Beats:
    return Beats(world.cwd / f"{name}.beats")


def notices(client: RecordingClient, words: str = TOLD) -> list[int]:
    """The places, among what came, of the notices with these words."""
    return [
        place
        for place, message in enumerate(client.recording.incoming())
        if message.get("method") == "session/update" and words in str(message["params"])
    ]


async def told_of_loss(client: RecordingClient) -> None:
    await client.until_recorded(lambda: notices(client), within=10)


@asynccontextmanager
async def taken_over(
    two: Two, world: World, client: RecordingClient
) -> AsyncIterator[RecordingClient]:
    """Give the client of another machine, which takes the session while the bridge here stands."""
    assert client.process is not None
    os.kill(client.process.pid, signal.SIGSTOP)
    two.lease_ends()
    async with two.there.inside(session=False) as other:
        await load(other, world, client.session_id)
        asked = other.send_prompt(f"beat {beats(world, 'there').file}; gate t")
        await beats(world, "there").more()
        os.kill(client.process.pid, signal.SIGCONT)
        yield other
        world.gates.open("t")
        assert await stopped(other, asked) == "end_turn"


async def is_dead(here: Beats, there: Beats) -> None:
    """The agent here adds nothing in a time in which the other one adds much."""
    last = here.count
    await there.more(20)
    assert here.count == last


async def in_a_turn(client: RecordingClient, world: World) -> Any:
    """A turn that says nothing more, in which something beats; a prompt waits behind it."""
    asked = client.send_prompt(f"say one; beat {beats(world, 'here').file}; gate g; say two")
    await beats(world, "here").more()
    await client.until_recorded(lambda: "one" in client.text())
    return asked


@pytest.mark.hazard("N3.10", "P1", "C10")
async def test_a_quiet_turn_of_a_session_that_another_machine_took_is_ended_and_its_agent_is_dead(
    two: Two, world: World
) -> None:
    here, there = beats(world, "here"), beats(world, "there")
    async with two.here.bridge(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        asked = await in_a_turn(client, world)
        waits = client.send_prompt("say four")
        await accepted(client, waits)
        async with taken_over(two, world, client):
            await told_of_loss(client)
            await is_dead(here, there)
            ended = (await client.answer_to(asked))["error"]["message"]
            assert "the turn was ended: another machine" in ended
            unsent = (await client.answer_to(waits))["error"]["message"]
            assert "the prompt was not sent: another machine" in unsent
            refused = (await client.answer_to(client.send_prompt("say never")))["error"]["message"]
            assert "another machine" in refused
            assert len(notices(client)) == 1
    assert world.log.prompts().count("say four") == 0


@pytest.mark.hazard("N3.10", "P1")
async def test_clients_are_told_of_the_loss_when_nothing_of_the_session_lives_and_then_answered(
    two: Two, world: World
) -> None:
    async with two.here.inside() as client:
        asked = client.send_prompt("say one; terminal sleep 1000; gate g")
        await client.until_text("[terminal term-1]")
        two.execute(CLAIM)
        await client.answer_to(asked, within=10)
        came: list[Message] = client.recording.incoming()
        (told,) = notices(client)
        released = [n for n, each in enumerate(came) if each.get("method") == "terminal/release"]
        answered = [n for n, each in enumerate(came) if each.get("id") == asked and "error" in each]
        assert [*released, told, *answered] == sorted([*released, told, *answered])
        assert len(released) == len(answered) == 1
        assert client.side.terminals == []


@pytest.mark.hazard("N3.10", "P1", "C10")
@pytest.mark.parametrize("moment", ["UserPromptSubmit", "Stop"])
async def test_a_hook_of_a_session_that_another_machine_took_is_dead_with_all_that_it_started(
    two: Two, world: World, moment: str
) -> None:
    here, there = beats(world, "here"), beats(world, "there")
    two.here.world.home.mkdir(parents=True)
    beat = f"while :; do echo >>{here.file}; sleep 0.02; done"
    ends = f"echo ended >>{world.cwd / 'ended'}"
    hooks(two.here.world, **{moment: f"setsid sh -c '{beat}' & sleep 60", "SessionEnd": ends})
    async with two.here.bridge(capabilities=TELL_ACCEPTED) as client:
        asked = client.send_prompt("say one")
        await here.more()
        async with taken_over(two, world, client):
            await told_of_loss(client)
            await is_dead(here, there)
            await client.answer_to(asked)
        await client.request("session/close", {"sessionId": client.session_id})
    assert not (world.cwd / "ended").exists(), "the session has not ended, it is elsewhere"


@pytest.mark.hazard("N3.10", "P1")
async def test_an_agent_that_works_on_after_its_turn_is_dead_when_another_machine_took_the_session(
    two: Two, world: World
) -> None:
    here, there = beats(world, "here"), beats(world, "there")
    async with two.here.bridge() as client:
        await client.prompt(f"beat {here.file}")
        async with taken_over(two, world, client):
            await told_of_loss(client)
            await is_dead(here, there)
            params = {"sessionId": client.session_id, "modeId": "any"}
            with pytest.raises(RpcError) as refused:
                await client.request("session/set_mode", params)
            assert "another machine" in refused.value.message
            await is_dead(here, there)


@pytest.mark.hazard("N3.10", "P1")
async def test_a_session_that_is_being_closed_is_killed_without_grace_when_another_machine_took_it(
    two: Two, world: World
) -> None:
    here, there = beats(world, "here"), beats(world, "there")
    patient = {"ACP_BRIDGE_DRAIN_TIMEOUT": "100"}
    async with two.here.bridge("ignores-cancel", env=patient) as client:
        await in_a_turn(client, world)
        closing = client.send_request("session/close", {"sessionId": client.session_id})
        async with taken_over(two, world, client):
            await client.answer_to(closing, within=10)
            await is_dead(here, there)


@pytest.mark.hazard("N3")
async def test_of_two_sessions_the_one_that_nobody_took_goes_on_when_a_lease_was_found_over(
    two: Two, world: World
) -> None:
    async with two.here.inside() as client:
        lost = client.session_id
        await client.new_session(world.cwd)
        asked = client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        two.execute(f"{CLAIM} WHERE session_id = '{lost}'")
        two.lease_ends()
        await client.until_recorded(lambda: notices(client), within=10)
        world.gates.open("g")
        assert await stopped(client, asked) == "end_turn"
        assert lost in str(client.recording.incoming()[notices(client)[0]])
        assert TOLD not in client.text(client.session_id)


@pytest.mark.hazard("N3", "R12")
async def test_a_session_that_was_at_rest_when_the_lease_began_again_is_free_after_its_close(
    two: Two, world: World
) -> None:
    two.here.lease = 15
    async with two.here.inside() as client:
        await client.prompt("say before")
        two.lease_ends()
        again = "SELECT 1 FROM acp_bridge.sessions JOIN acp_bridge.bridges USING (owner)"
        await until(lambda: two.execute(f"{again} WHERE until > clock_timestamp()"), 10)
        await client.request("session/close", {"sessionId": client.session_id})
        async with two.there.inside(session=False) as other:
            await load(other, world, client.session_id)
            assert other.text() == "before"


@pytest.mark.hazard("N3.10", "P1")
async def test_an_agent_is_dead_when_a_copy_that_was_behind_let_another_machine_take_the_session(
    asynchronous: Failover, world: World
) -> None:
    asynchronous.here.lease = LONG
    here, there = beats(world, "here"), beats(world, "there")
    async with asynchronous.here.bridge() as client:
        await client.prompt("say before")
        await asynchronous.falls_behind()
        await in_a_turn(client, world)
        assert client.process is not None
        os.kill(client.process.pid, signal.SIGSTOP)
        asynchronous.fails_over()
        os.kill(client.process.pid, signal.SIGCONT)
        async with taken_over(asynchronous, world, client):
            await told_of_loss(client)
            await is_dead(here, there)
            assert len(notices(client)) == 1
