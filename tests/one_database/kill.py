"""A machine dies in the middle of a turn, and another takes its session up."""

import time

from tests.one_database.site import Place, Shown

RUNS = "grandchild; stream 100000 50"
WAIT = ("say first of those that waited", "say second of those that waited")


async def killed(place: Place) -> None:
    """Everything on machine A is killed at once."""
    report, a, b = place.report, place.a, place.b
    report.title("A machine is killed in the middle of a turn")
    async with a.bridge() as client:
        await place.begin(client, RUNS, WAIT)
        processes = a.machine.kill()
        since = time.monotonic()
        seen = Shown(client)
        report.row(
            "all that runs on machine A is killed",
            f"kill -9 $(ip netns pids {a.machine.name})",
            f"{processes} processes; its client had been shown {seen.words!r}",
            holds=processes >= 4,
        )
        async with b.bridge() as other:
            loaded = await place.take_up(other, since)
            place.judge_taken_up(other, seen, RUNS, WAIT, loaded)
            await place.go_on(other, RUNS, WAIT)
