"""A database that is far away: what a session, and a command, cost there, in round trips."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import fail_after

from acp_bridge.core.journal.file import Write
from acp_bridge.core.records import replace
from acp_bridge.postgres import files, log, summary
from acp_bridge.postgres.connection import ALL, Database
from acp_bridge.postgres.lease import Lease
from acp_bridge.postgres.url import parse
from tests.postgres.session_files import INFO, made
from tests.support import processes
from tests.support.line import line
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import PASSWORD, Cluster, cluster
from tests.support.waiting import until
from tests.whole.bridge_support import World, stopped
from tests.whole.test_database import Machine, Two

pytestmark = pytest.mark.process
#: the most round trips until a session is made, with all that it takes to connect.
MOST = 10
#: the most of a command that reads all sessions.
MOST_OF_A_COMMAND = 14


@pytest.fixture(scope="module")
def tcp_server() -> Iterator[Cluster]:
    """A running cluster that asks for a password."""
    with cluster(tcp=True) as made:
        yield made


#: how often a figure that a busy machine disturbs is measured.
_TRIES = 6


async def costs(world: World, server: Path | int, url: str, user: str) -> list[int]:
    """The round trips of each of three sessions, of a bridge that was just started."""
    counts = []
    with line(server, 0.02) as far:  # what begins after the answer gets no further
        machine = Machine(world, far.url(url, user), "here")
        async with machine.inside(session=False) as client:
            for _ in range(3):
                before = far.trips
                await client.new_session(world.cwd)
                counts.append(far.trips - before)
                assert await stopped(client, client.send_prompt("say on")) == "end_turn"
    return counts


async def cost_little(world: World, server: Path | int, url: str, user: str) -> None:
    """Each of the three takes few round trips, with a new data folder and with one that is used.

    On a busy machine the looks of the lease, twice a second, fall between, and may take a
    connection of their own: the fewest of some tries count.
    """
    tries = [await costs(world, server, url, user) for _ in range(2)]
    while max(map(min, zip(*tries, strict=True))) > MOST:
        assert len(tries) < _TRIES, tries
        tries.append(await costs(world, server, url, user))


async def test_a_new_session_takes_few_round_trips_also_with_the_connection(
    world: World, tcp_server: Cluster
) -> None:
    url = tcp_server.new_database()
    world.monkeypatch.setenv("PGPASSWORD", PASSWORD)
    async with Machine(world, tcp_server.over_tcp(url), "there").inside():
        pass  # the tables are made
    await cost_little(world, tcp_server.port, url, "guest")


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_so_it_does_through_a_pooler(world: World, server: Cluster, mode: str) -> None:
    url = server.new_database()
    async with Machine(world, url, "there").inside():
        pass
    with pgbouncer(server, mode) as folder:
        await cost_little(world, folder / ".s.PGSQL.6432", url, "tester")


def chunk(text: str) -> bytes:
    head = '{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":'
    return f'{head}"{text}"}}}}}}'.encode()


async def says(connection: log.Connection, session_id: str, n: int, text: str) -> None:
    row = log.row_of(n, Write((), 1, (chunk(text),)))
    assert await log.put(connection, session_id, "me", 1, [row], sure=False, prompted=False)


async def test_commands_that_read_all_sessions_take_few_round_trips_however_many_there_are(
    server: Cluster, tmp_path: Path
) -> None:
    url = server.new_database()
    ids = [f"session{number}" for number in range(100)]
    with fail_after(60):
        async with Database(parse(url)) as opened, opened.connection(ALL) as connection:
            for each in ids:
                info = replace(INFO, session_id=each)
                await log.store(
                    connection,
                    info,
                    made(tmp_path / "made" / "sessions" / f"{each}.db", info=info),
                    "me",
                )
                await says(connection, each, 1, f"word{each} common")
            lost = "DELETE FROM acp_bridge.writes USING acp_bridge.sessions WHERE writes.name ="
            lost += " sessions.name AND session_id = 'session7'"
            await connection.execute(lost.encode())
            with line(server.folder / ".s.PGSQL.5432") as far:

                async def run(*words: str, home: str = "home") -> str:
                    before = far.trips
                    place = ("--home", str(tmp_path / home), "--journal", far.url(url, "tester"))
                    command = [sys.executable, "-m", "acp_bridge", *words, *place]
                    done = await processes.run(command, {})
                    assert far.trips - before <= MOST_OF_A_COMMAND
                    return done.stdout.decode()

                for _ in range(2):
                    found = (await run("sessions", "--json", "--search", "common")).splitlines()
                    assert len(found) == len(ids) - 1  # what was lost of one hinders no other
                await says(connection, "session8", 2, " afterwards")
                assert "session8" in await run("sessions", "--json", "--search", "afterwards")
                assert "Session session7 can't be read" in await run("cost")
                # Nor are there more of them on a new machine, of which this is the first command.
                elsewhere = await run("sessions", "--json", "--search", "common", home="2")
                assert len(elsewhere.splitlines()) == len(ids) - 1


async def test_a_bridge_sums_up_the_sessions_that_it_closes(
    world: World, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A bridge that ends leaves it to the next command when the database takes longer than this.
    monkeypatch.setattr(files, "_END", 30.0)
    ends, sum_up, end = threading.Event(), summary.sum_up, Lease.end

    def once_it_ends(path: Path) -> summary.Summary:
        """Sum the second session up when the bridge gives its lease back, and no sooner."""
        assert summed_up() == 0 or ends.wait(20)
        return sum_up(path)

    async def ended(lease: Lease) -> None:
        ends.set()
        await end(lease)

    monkeypatch.setattr(summary, "sum_up", once_it_ends)
    monkeypatch.setattr(Lease, "end", ended)
    two = Two(world, server.new_database())

    def summed_up() -> int:
        sql = "SELECT 1 FROM acp_bridge.sessions WHERE summary_of = applied"
        return len(two.execute(sql + " AND words::text LIKE '% wonderful %'"))

    async with two.here.inside() as client:
        for word in ("wonderful", "most wonderful"):
            assert await stopped(client, client.send_prompt(f"say {word}")) == "end_turn"
            if word == "wonderful":
                await client.request("session/close", {"sessionId": client.session_id})
                assert await until(lambda: summed_up() == 1)
                await client.new_session(world.cwd)
    assert summed_up() == 2  # the other one was closed by the bridge's end
