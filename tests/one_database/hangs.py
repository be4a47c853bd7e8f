"""The database hangs, and nobody is told: its server stands still, or its tables are locked."""

import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import psycopg
from anyio.abc import TaskStatus

from tests.one_database.site import LONG, Place, Shown
from tests.support.client import RecordingClient
from tests.whole.bridge_support import accepted

#: seconds: far more than anything here may take.
LEASE = 300
#: seconds within which a write that is not answered is given up, with some for a busy machine.
GIVEN_UP = 8.0
#: seconds for what waits for nothing.
AT_ONCE = 1.0
#: seconds for which it hangs: shorter than a write is waited for, and longer.
TIMES = (2.0, 7.0, 11.0)
KINDS = ("the server stands still", "the tables are locked")
UNKNOWN = -32601


@dataclass
class Hang:
    """One of them: how, for how many seconds, and since when."""

    place: Place
    kind: str
    seconds: float
    name: str
    since: float = 0.0

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[None]:
        """It hangs for its time from now on, and that is over when the block is left."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._last)
            self.since = time.monotonic()
            yield

    async def _last(self, *, task_status: TaskStatus[None]) -> None:
        with self._begun():
            task_status.started()
            await anyio.sleep(self.seconds)

    @contextmanager
    def _begun(self) -> Iterator[None]:
        if self.kind == KINDS[0]:
            with self.place.server.standing_still():
                yield
            return
        with psycopg.connect(self.place.url) as connection:
            connection.execute("LOCK TABLE acp_bridge.sessions, acp_bridge.writes")
            yield

    @property
    def is_long(self) -> bool:
        """It lasts longer than a write is waited for."""
        return self.seconds > TIMES[0]

    def row(self, item: str, command: str, result: object, *, holds: bool) -> None:
        """Report an item, with how the database hangs."""
        how = f"{self.kind} for {self.seconds:g} s"
        self.place.report.row(f"{how}: {item}", command, result, holds=holds)


async def hung(place: Place) -> None:
    """In a turn, while a prompt waits, at a Stop and at rest: nothing is lost, or there twice."""
    seed = random.randrange(1 << 30)
    drawn = [(kind, seconds) for kind in KINDS for seconds in TIMES]
    random.Random(seed).shuffle(drawn)
    place.report.title(f"The database hangs without a reset (seed {seed})")
    place.a.lease = LEASE
    async with place.a.bridge() as client:
        place.session_id = await client.new_session(place.project)
        await client.prompt("say before", within=LONG)
        right = "before"
        for number, (kind, seconds) in enumerate(drawn):
            hang = Hang(place, kind, seconds, str(number))
            right += await _in_a_turn(hang, client)
            right += await _at_a_stop(hang, client)
            right += await _at_rest(hang, client)
        words = Shown(client).words
        place.report.row("the session goes on", "session/prompt", words, holds=words == right)
    async with place.b.bridge() as other:
        await other.load_session(place.session_id, place.project)
        found = Shown(other).words
    aside = [file.name for file in place.a.set_aside()]
    place.report.row(
        "machine B has every word of it, once, and nothing was set aside",
        "session/load",
        f"... {found[-40:]!r}, {aside}",
        holds=found == right and not aside,
    )


async def _in_a_turn(hang: Hang, client: RecordingClient) -> str:
    gate, other, gates = f"{hang.name}-g", f"{hang.name}-h", hang.place.gates
    asked = client.send_prompt(
        f"say {hang.name} one; gate {gate}; say two; gate {other}; say three"
    )
    await gates.reached(gate)
    waits = client.send_prompt(f"say {hang.name} four")
    await accepted(client, waits)
    mark = client.mark()
    async with hang.lasting():
        gates.open(gate)
        await gates.reached(other)
        await _beside(hang, client)
        if hang.is_long:
            await client.until_text("journal can't be written", since=mark, within=LONG)
            told = time.monotonic() - hang.since
            hang.row(
                "the turn is visibly unrecorded",
                "session/update",
                f"{told:.1f} s after it began",
                holds=told < GIVEN_UP,
            )
    gates.open(other)
    ended = [await _end(client, each) for each in (asked, waits)]
    hang.row(
        "the turn ends, and the prompt that waited runs",
        "session/prompt",
        ended,
        holds=ended == ["end_turn"] * 2,
    )
    return f"{hang.name} onetwothree{hang.name} four"


async def _beside(hang: Hang, client: RecordingClient) -> None:
    methods = ("no/such", "_acp_bridge/live", "session/list")
    requests = [client.send_request(method, {}) for method in methods]
    *others, listed = [await _took(client, request) for request in requests]
    hang.row(
        "what needs no database is answered at once, and a list in seconds",
        ", ".join(methods),
        f"{max(others):.2f} s, {listed:.1f} s",
        holds=max(others) < AT_ONCE and listed < GIVEN_UP,
    )


async def _at_a_stop(hang: Hang, client: RecordingClient) -> str:
    gate = f"{hang.name}-s"
    await _taken(client, f"say {hang.name} ready")
    asked = client.send_prompt(f"say {hang.name} five; gate {gate}; say never")
    await hang.place.gates.reached(gate)
    await client.until_text(f"{hang.name} five", within=LONG)
    async with hang.lasting():
        client.cancel()
        ended = await _end(client, asked)
        told = time.monotonic() - hang.since
    hang.row(
        "a Stop is answered",
        "session/cancel",
        f"{ended} {told:.1f} s after it began",
        holds=ended == "cancelled" and told < GIVEN_UP,
    )
    return f"{hang.name} ready{hang.name} five"


async def _at_rest(hang: Hang, client: RecordingClient) -> str:
    await _taken(client, f"say {hang.name} steady")
    async with hang.lasting():
        answer = await client.answer_to(client.send_prompt(f"say {hang.name} six"), within=LONG)
        told = time.monotonic() - hang.since
    said = answer["error"]["message"] if "error" in answer else "taken"
    taken = said == "taken"
    hang.row(
        "a prompt at rest is refused with the reason, or runs when it is over",
        "session/prompt",
        f"{said} {told:.1f} s after it began",
        holds=(taken or "not taken: " in said) and (told < GIVEN_UP or not hang.is_long),
    )
    await _taken(client, f"say {hang.name} go")
    return f"{hang.name} steady" + f"{hang.name} six" * taken + f"{hang.name} go"


async def _took(client: RecordingClient, request: Any) -> float:
    """Seconds until a request is answered."""
    since = next(r.time for r in client.recording if (r.message or {}).get("id") == request)
    await client.answer_to(request, within=LONG)
    answers = [r for r in client.recording if r.direction == "in" and r.message]
    return next(r.time for r in answers if (r.message or {}).get("id") == request) - since


async def _end(client: RecordingClient, asked: Any) -> object:
    answer = await client.answer_to(asked, within=LONG)
    return answer.get("result", {}).get("stopReason") or answer["error"]["message"]


async def _taken(client: RecordingClient, text: str) -> None:
    """Send a prompt until it is taken, and wait for its end."""
    with anyio.fail_after(LONG):
        while True:
            if "result" in await client.answer_to(client.send_prompt(text), within=LONG):
                break
            await anyio.sleep(0.2)
