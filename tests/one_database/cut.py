"""A machine is cut off from the database in the middle of a turn, and comes back."""

import time

import anyio

from tests.one_database.machines import Machine
from tests.one_database.site import LEASE, LONG, Place, Shown, said_in, stream
from tests.support.client import RecordingClient
from tests.support.processes import command_line, gone
from tests.support.recording import Record, RpcError

RUNS = "grandchild; stream 100000 50"
WAIT = ("say first of those that waited", "say second of those that waited")
#: of the notice that the database is away.
SAID = b"database of this session"


async def cut_at_the_database(place: Place) -> None:
    """The cable is out at the other end: packets go nowhere, and nobody says so."""
    place.report.title("The cable is pulled out of the database's machine, and put back")
    await _cut(place, place.a.machine.far)


async def cut_at_the_machine(place: Place) -> None:
    """The machine's own end is out: it has no way to the database, and knows it."""
    place.report.title("The cable is pulled out of machine A, and put back")
    await _cut(place, place.a.machine.near)


async def cut_and_not_taken_up(place: Place) -> None:
    """The cable is out until the lease is over, and no other machine wants the session."""
    report, a = place.report, place.a
    report.title("The cable is out until the lease is over, and nobody else takes the session up")
    async with a.bridge() as client:
        turn = await place.begin(client, RUNS, ())
        agents, died = _agents(a.machine), list[float]()
        command = a.machine.link(a.machine.far, up=False)
        since = time.monotonic()
        await _watch(agents, died)
        report.row("machine A is cut off", command, f"{len(died)} of the agent's tree are dead")
        answer = (await client.answer_to(turn, LONG)).get("error", {}).get("message", "none")
        report.row("the turn has ended for A's client", "session/prompt", answer)
        await anyio.sleep(since + LEASE + 2 - time.monotonic())
        command = a.machine.link(a.machine.far, up=True)
        back = time.monotonic()
        await client.logged("journal.caught_up", within=LONG)
        what = f"{time.monotonic() - back:.1f} s until all is written"
        report.row("it is connected again", command, what)
        await client.prompt("say after", within=LONG)
        seen = Shown(client)
    async with place.b.bridge() as other:
        await other.load_session(place.session_id, place.project)
        found = Shown(other)
    count = stream(found.words.removesuffix("after"))
    report.row(
        "the session goes on at machine A, and machine B has every word of it, once",
        "session/prompt; session/load on machine B",
        f"{count} numbers, ... {found.words[-20:]!r}",
        holds=count is not None and found.words == seen.words,
    )


async def _cut(place: Place, end: str) -> None:
    report, a = place.report, place.a
    async with a.bridge() as client, anyio.create_task_group() as tasks:
        await place.begin(client, RUNS, WAIT)
        agents = _agents(a.machine)
        command = a.machine.link(end, up=False)
        since = time.monotonic()
        report.row("machine A is cut off", command, f"its agent's tree: {agents}")
        died: list[float] = []
        tasks.start_soon(_watch, agents, died)
        async with place.b.bridge() as other:
            loaded = await place.take_up(other, since)
            _judge_dead(place, client, since, loaded[0], died)
            at_the_cut = Shown(client, since)
            place.judge_taken_up(other, at_the_cut, RUNS, WAIT, loaded)
            shown = stream(Shown(client).words)
            report.row("it is connected again", a.machine.link(end, up=True), f"A: {shown} numbers")
            await _judge_healed(place, client)
            await place.go_on(other, RUNS, WAIT)
        tasks.cancel_scope.cancel()


def _agents(machine: Machine) -> list[int]:
    """The agent on a machine and what it has started, without the bridge and its guard."""
    return [pid for pid in machine.pids() if "acp_bridge" not in command_line(pid)]


async def _watch(pids: list[int], died: list[float]) -> None:
    """Note when each of them has died."""

    async def one(pid: int) -> None:
        await gone(pid, within=2 * LONG)
        died.append(time.monotonic())

    async with anyio.create_task_group() as tasks:
        for pid in pids:
            tasks.start_soon(one, pid)


def _judge_dead(
    place: Place, client: RecordingClient, since: float, asked: float, died: list[float]
) -> None:
    """A's agent is dead before machine B had the session, and its client was told before that."""
    dead = max(died, default=float("inf"))
    place.report.row(
        "the agent's tree on machine A is dead before machine B has the session",
        "/proc on machine A",
        f"dead {dead - since:.1f} s after the cut, taken up {asked - since:.1f} s after",
        holds=len(died) >= 2 and dead < asked,
    )
    told = next((r for r in client.recording if SAID in r.raw and r.direction == "in"), None)
    said = "never" if told is None else f"{told.time - since:.1f} s after the cut"
    place.report.row(
        "A's client was told before, that this would be, and when",
        "session/update",
        said if told is None else f"{said}: {_text(told)}",
        holds=told is not None and told.time < dead,
    )


def _text(record: Record) -> str:
    assert record.message
    return str(record.message["params"]["update"]["content"]["text"]).strip()


async def _judge_healed(place: Place, client: RecordingClient) -> None:
    """Machine A writes nothing any more, says why, and keeps what it could not write."""
    report, a = place.report, place.a
    await client.logged("journal.set_aside", within=LONG)
    try:
        await client.prompt("say never", place.session_id, within=LONG)
        answer = "taken"
    except RpcError as error:
        answer = error.message
    report.row(
        "machine A says that another has the session",
        "session/prompt",
        answer,
        holds="another machine" in answer,
    )
    await anyio.sleep(LEASE / 3)
    writers = place.writers()
    last = max(at for at, name in enumerate(writers) if name == a.machine.name)
    first = writers.index(place.b.machine.name)
    report.row(
        "machine A has written no row since machine B took it up",
        "inet_client_addr() of each INSERT INTO acp_bridge.writes",
        f"A's last is row {last + 1}, B's first row {first + 1}, of {len(writers)};"
        f" {LEASE / 3:.0f} s after the cable is in again",
        holds=last < first,
    )
    files = a.set_aside()
    named = all(file.name in client.stderr.decode() for file in files)
    report.row(
        "what it could not write is in a file, named in its log",
        "ls databases/*/sessions/*.lost-*",
        [f"{file.name}: {stream(said_in(file))} numbers" for file in files],
        holds=len(files) == 1 and named and said_in(files[0]) == Shown(client).words,
    )
