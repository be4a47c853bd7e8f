"""The database answers with errors of any kind, for one statement and for some seconds."""

import random
import time
from typing import Any

import anyio

from tests.one_database.site import LONG, Place, Shown
from tests.support.client import RecordingClient
from tests.support.faults import Faults, drawn
from tests.support.waiting import until
from tests.whole.bridge_support import accepted

#: seconds for which an error lasts.
LASTS = 4.0
#: how many classes of errors are drawn.
CLASSES = 12


async def answered_with_errors(place: Place) -> None:
    """In a turn, while a prompt waits, and at rest: nothing is lost, and nothing there twice."""
    seed = random.randrange(1 << 30)
    states = drawn(CLASSES, seed)
    report = place.report
    report.title(f"The database answers with errors: {' '.join(states)} (seed {seed})")
    async with place.a.bridge() as client:
        place.session_id = await client.new_session(place.project)
        await client.prompt("say before", within=LONG)
        faults, right = Faults(place.url, leases=True), "before"
        for state in states:
            right += await _in_a_turn(place, client, faults, state)
            await _at_rest(place, client, faults, state)
            right += f"{state} again"
        words = Shown(client).words
        report.row("the session goes on", "session/prompt", words, holds=words == right)
    async with place.b.bridge() as other:
        await other.load_session(place.session_id, place.project)
        found = Shown(other).words
    aside = [file.name for file in place.a.set_aside()]
    report.row(
        "machine B has every word of it, once, and nothing was set aside",
        "session/load",
        f"... {found[-40:]!r}, {aside}",
        holds=found == right and not aside,
    )


async def _in_a_turn(place: Place, client: RecordingClient, faults: Faults, state: str) -> str:
    """Errors in a turn with a prompt behind it; returns what the agent says."""
    gate, other = f"{state}-g", f"{state}-h"
    asked = client.send_prompt(f"say {state} one; gate {gate}; say two; gate {other}; say three")
    await place.gates.reached(gate)
    waits = client.send_prompt(f"say {state} four")
    await accepted(client, waits)
    faults.arm(state, few=1)
    place.gates.open(gate)
    await place.gates.reached(other)
    await until(lambda: faults.raised > 0, LONG)
    faults.over()
    faults.arm(state)
    since = time.monotonic()
    place.gates.open(other)
    await anyio.sleep(since + LASTS - time.monotonic())
    faults.over()
    ended = [await _stop(client, each) for each in (asked, waits)]
    place.report.row(
        f"{state} in a turn, once and for {LASTS:.0f} s: it ends, and the prompt that waited runs",
        "session/prompt",
        ended,
        holds=ended == ["end_turn"] * 2,
    )
    return f"{state} onetwothree{state} four"


async def _at_rest(place: Place, client: RecordingClient, faults: Faults, state: str) -> None:
    faults.arm(state)
    refused = (await client.answer_to(client.send_prompt(f"say {state} no"), within=LONG)).get(
        "error"
    )
    faults.over()
    said = refused["message"] if refused else "taken"
    holds = "not taken" in said and "another machine" not in said
    place.report.row(f"{state} at rest: a prompt is refused", "session/prompt", said, holds=holds)
    with anyio.fail_after(LONG):
        while True:
            again = client.send_prompt(f"say {state} again")
            if "result" in await client.answer_to(again, within=LONG):
                break
            await anyio.sleep(0.2)


async def _stop(client: RecordingClient, asked: Any) -> object:
    return (await client.answer_to(asked, within=LONG)).get("result", {}).get("stopReason")
