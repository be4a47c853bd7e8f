"""Sessions that outlive their machine: bridges with a data folder each, and one database.

A data folder is what makes a machine here: no two see each other's locks or copies.
"""

import json
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from anyio import fail_after

from acp_bridge.core.records import replace
from acp_bridge.postgres.url import parse as parse_url
from tests.features.hooks.hooked import alive
from tests.support import processes
from tests.support.client import RecordingClient
from tests.support.postgres import Cluster
from tests.support.processes import all_gone
from tests.support.recording import RpcError
from tests.support.waiting import until
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped
from tests.whole.test_bridge_hooks import STAYS, file_of, hooks

pytestmark = pytest.mark.process


class Machine:
    """One machine: bridges of it have a data folder in common."""

    def __init__(self, world: World, url: str, name: str) -> None:
        self.world = replace(world, home=world.home / name)
        self._url = url
        #: seconds: short, for tests that wait for its end.
        self.lease = 15

    def over(self, url: str) -> None:
        """Have its bridges go to the database another way."""
        self._url = url

    @property
    def options(self) -> tuple[str, ...]:
        return ("--journal", self._url, "--lease", str(self.lease))

    def bridge(self, *behaviours: str, **more: Any) -> AbstractAsyncContextManager[RecordingClient]:
        return self.world.bridge(*behaviours, options=self.options, **more)

    def inside(self, *behaviours: str, **more: Any) -> AbstractAsyncContextManager[RecordingClient]:
        """The same with the bridge in this process, which starts in a tenth of the time."""
        where: dict[str, Any] = {"journal": parse_url(self._url), "lease": self.lease}
        return self.world.inside(*behaviours, **where, **more)


class Two:
    """Two machines and their database."""

    def __init__(self, world: World, url: str) -> None:
        self.url = url
        self.here, self.there = (Machine(world, self.url, name) for name in ("here", "there"))

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def lease_ends(self) -> None:
        """As if nobody had renewed a lease for its time."""
        self.execute("UPDATE acp_bridge.bridges SET until = clock_timestamp()")


@pytest.fixture
def two(world: World, server: Cluster) -> Two:
    return Two(world, server.new_database())


async def load(client: RecordingClient, world: World, session_id: str) -> Any:
    params = {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": []}
    client.session_id = session_id
    return await client.request("session/load", params)


@pytest.mark.hazard("K1", "Q5.2", "Q6", "R12")
async def test_a_session_goes_on_at_another_machine_when_its_own_was_killed(
    two: Two, world: World
) -> None:
    exits = -signal.SIGKILL
    async with two.here.bridge(capabilities=TELL_ACCEPTED, exits=exits) as client:
        await client.prompt("say before")
        client.send_prompt("say one; gate g; say never")
        await world.gates.reached("g")
        await client.until_recorded(lambda: "one" in client.text())
        await accepted(client, client.send_prompt("say two; gate h"))
        session_id, seen = client.session_id, client.text()
        client.terminate(signal.SIGKILL)
        await client.wait()
    await all_gone(world.mark)
    async with two.there.inside(session=False) as client:
        with pytest.raises(RpcError) as refused:
            await load(client, world, session_id)
        assert os.uname().nodename in refused.value.message
        two.lease_ends()
        loaded = await load(client, world, session_id)
        assert client.text().startswith(seen)
        assert "Interrupted" in client.text()
        (held,) = loaded["_meta"]["acp_bridge"]["held"]
        assert held == [{"type": "text", "text": "say two; gate h"}]
        assert await stopped(client, client.send_prompt("say three")) == "end_turn"


async def test_a_bridge_of_the_same_machine_takes_over_at_once(two: Two, world: World) -> None:
    async with two.here.bridge(exits=-signal.SIGKILL) as client:
        await client.prompt("say before")
        session_id, seen = client.session_id, client.text()
        client.terminate(signal.SIGKILL)
        await client.wait()
    async with two.here.inside(session=False) as client:
        await load(client, world, session_id)
        assert client.text() == seen


@pytest.mark.hazard("N4", "Q13", "K1.1", "K1.3", "T2")
async def test_what_was_accepted_and_shown_outlives_the_death_of_the_database_in_a_turn(
    two: Two, world: World, server: Cluster
) -> None:
    two.here.lease = 600  # a server may start slowly
    async with two.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked = client.send_prompt("say one; gate g; say two; gate h; say three")
        await accepted(client, asked)
        await world.gates.reached("g")
        await client.until_recorded(lambda: "one" in client.text())
        server.kill()
        try:
            world.gates.open("g")
            await world.gates.reached("h")
            refused = await client.answer_to(client.send_prompt("say never"))
            assert "not taken" in refused["error"]["message"]
        finally:
            server.start()
        world.gates.open("h")
        assert await stopped(client, asked) == "end_turn"
        await client.logged("journal.caught_up")
        assert await stopped(client, client.send_prompt("say four")) == "end_turn"
        session_id, seen = client.session_id, client.text()
    async with two.there.inside(session=False) as client:
        await load(client, world, session_id)
        notice = seen.partition("two")[2].rpartition("three")[0]
        assert "journal can't be written" in notice
        assert client.text() == seen.replace(notice, "")


@pytest.mark.hazard("N3.1")
async def test_a_bridge_that_was_frozen_past_its_lease_writes_nothing_after_the_takeover(
    two: Two, world: World
) -> None:
    async with two.here.bridge(exits=-signal.SIGKILL) as client:
        client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        await client.until_recorded(lambda: "one" in client.text())
        session_id = client.session_id
        assert client.process is not None
        os.kill(client.process.pid, signal.SIGSTOP)
        two.lease_ends()
        async with two.there.inside(session=False) as other:
            await load(other, world, session_id)
            os.kill(client.process.pid, signal.SIGCONT)
            world.gates.open("g")
            await client.logged("journal.lost")
            assert not two.execute(
                "SELECT n FROM acp_bridge.writes WHERE position('two'::bytea in lines) > 0"
                " OR statements LIKE '%end_turn%'"
            )
            assert await stopped(other, other.send_prompt("say three")) == "end_turn"
        client.terminate(signal.SIGKILL)
        await client.wait()


@pytest.mark.hazard("N4.7", "N4.8", "P1")
async def test_a_database_that_stays_away_ends_the_turn_as_was_said_before_and_the_session_goes_on(
    two: Two, world: World, server: Cluster
) -> None:
    async with two.here.inside() as client:
        await client.prompt("say before")
        asked = client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        await client.until_recorded(lambda: "one" in client.text())
        server.kill()
        try:
            await client.until_recorded(lambda: "database of this session" in client.text(), 15)
            assert client.recording.answers(asked) == []
            assert "SIGKILL" in (await client.answer_to(asked, within=15))["error"]["message"]
        finally:
            server.start()
        await client.logged("journal.caught_up")
        assert await stopped(client, client.send_prompt("say three")) == "end_turn"


@pytest.mark.hazard("N3.6", "P1", "C10")
async def test_a_hook_is_dead_at_the_deadline_though_its_bridge_is_frozen(
    two: Two, world: World
) -> None:
    two.here.world.home.mkdir(parents=True)
    hooks(two.here.world, Stop=STAYS)
    async with two.here.bridge() as client:
        client.send_prompt("say one")
        pid = int((await file_of(world, "pid")).read_text())
        assert client.process is not None
        os.kill(client.process.pid, signal.SIGSTOP)
        await until(lambda: not alive(pid), 20)
        os.kill(client.process.pid, signal.SIGCONT)


def that_remembers(folder: Path) -> Any:
    """How a bridge is started with the built-in agent, which says what the user told before."""
    dialogue = folder / "dialogue"
    dialogue.write_text("turn\nremember")
    return {"command": [], "env": {"ACP_BRIDGE_MODEL": f"scripted:{dialogue}"}}


async def test_the_built_in_agent_remembers_at_another_machine_what_was_said(
    two: Two, world: World, tmp_path: Path
) -> None:
    own = that_remembers(tmp_path)
    async with two.here.bridge(**own) as client:
        await client.prompt("I am Ann", within=20)
        session_id = client.session_id
    for machine in (two.there, two.here):
        async with machine.bridge(session=False, **own) as client:
            await load(client, world, session_id)
            await client.prompt("who am I?", within=20)
            assert "You told me: I am Ann" in client.text()


async def test_the_database_has_what_the_built_in_agent_remembers_before_it_has_the_end_of_the_turn(
    two: Two, world: World, tmp_path: Path
) -> None:
    own = that_remembers(tmp_path)
    number = "max(xmin::text::bigint)"  # of the transaction
    async with two.here.bridge(**own) as client:
        await client.prompt("I am Ann", within=20)
        await client.prompt("I am Bea", within=20)
        ((saved, ended),) = two.execute(
            f"SELECT (SELECT {number} FROM acp_bridge.memories WHERE position('Bea' IN"
            f" encode(data, 'escape')) > 0), (SELECT {number} FROM acp_bridge.writes"
            " WHERE statements LIKE '%agent_outcome%')"
        )
    assert saved < ended


@pytest.mark.hazard("N4", "T2")
async def test_a_stream_goes_on_unrecorded_when_its_database_dies_in_the_middle_of_it(
    two: Two, world: World, server: Cluster
) -> None:
    async with two.here.inside() as client:
        client.send_prompt("stream 100000 10")
        await client.until_recorded(lambda: len(client.updates()) > 30)
        server.kill()
        try:
            mark = client.mark()
            await client.until_text("journal can't be written", mark, within=5)
            mark = client.mark()
            await client.until_recorded(lambda: len(client.updates(since=mark)) > 30)
            await client.until_recorded(lambda: "database of this session" in client.text(), 5)
        finally:
            server.start()
        await client.logged("journal.caught_up")


@pytest.mark.hazard("N4", "P1")
async def test_a_session_goes_on_when_its_database_was_away_for_longer_than_a_lease_in_a_stream(
    two: Two, world: World, server: Cluster
) -> None:
    async with two.here.inside() as client:
        asked = client.send_prompt("stream 100000 10")
        await client.until_recorded(lambda: len(client.updates()) > 30)
        server.kill()
        try:
            assert "SIGKILL" in (await client.answer_to(asked, within=20))["error"]["message"]
        finally:
            server.start()
        await client.logged("journal.caught_up")
        assert await stopped(client, client.send_prompt("say three")) == "end_turn"


async def test_a_session_that_was_closed_while_the_database_was_away_is_free_when_it_is_back(
    two: Two, world: World, server: Cluster
) -> None:
    async with two.here.inside() as client:
        await client.prompt("say before")
        session_id = client.session_id
        server.kill()
        try:
            await client.request("session/close", {"sessionId": session_id})
        finally:
            server.start()
        free = "SELECT 1 FROM acp_bridge.sessions WHERE owner IS NULL"
        await until(lambda: two.execute(free), 15)
        async with two.there.inside(session=False) as other:
            await load(other, world, session_id)
            assert other.text() == "before"


async def test_commands_at_another_machine_read_a_session_that_a_bridge_has(
    two: Two, world: World
) -> None:
    async def said(*words: str) -> str:
        place = ("--home", str(two.there.world.home), "--journal", two.url)
        command = [sys.executable, "-m", "acp_bridge", *words, *place]
        with fail_after(30):
            return (await processes.run(command, {})).stdout.decode()

    async with two.here.inside() as client:
        await client.prompt("say before")
        session_id = client.session_id
        (listed,) = map(json.loads, (await said("sessions", "--json")).splitlines())
        assert (listed["sessionId"], listed["heldBy"]["machine"]) == (
            session_id,
            os.uname().nodename,
        )
        assert f"at {os.uname().nodename} (" in await said("ps")
        assert "before" in await said("show", session_id)
        await client.prompt("say behind it")
        assert "behind it" in await said("show", session_id)
        assert await stopped(client, client.send_prompt("say on")) == "end_turn"
