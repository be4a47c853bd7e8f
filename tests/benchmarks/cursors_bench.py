"""What cursors cost: for each update that is recorded, and for a resume in a long session.

python -m tests.benchmarks.cursors_bench
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from acp_bridge.core.journal import Journal, SessionJournal
from acp_bridge.core.journal.place import From, Place
from acp_bridge.core.protocol import Json
from acp_bridge.core.session.transcript.places import Places
from acp_bridge.core.wire.jsonrpc import encode
from tests.benchmarks.versions_bench import CALL, CHUNK, best

MESSAGES, WORDS = 10_000, 200


async def each(journal: SessionJournal, update: Json) -> tuple[float, float]:
    """The microseconds for recording an update without cursors, and with them."""
    line = encode({"update": update})
    plain = best(partial(journal.record, 1, line))
    places = Places("s", journal)
    places.start()
    await places.find()
    return plain, best(partial(journal.record, 1, line))


async def resumed(journal: SessionJournal) -> tuple[float, float]:
    """The seconds in which a long session is read, and in which its last message is found."""
    place = Place("s")
    for number in range(MESSAGES):
        content = {"type": "text", "text": f"word{number % 7} " * WORDS}
        update = {**CHUNK, "messageId": str(number), "content": content}
        if number < MESSAGES - 1:
            place.add({"update": update})
        journal.record(1 + number // 10, encode({"update": update}))
    began = time.perf_counter()
    async for _ in journal.replay():
        pass
    read = time.perf_counter() - began
    divided, began = From("s", place.cursor), time.perf_counter()
    shown = 0
    async for page in journal.replay():
        shown += sum(divided.divide(params).after is not None for params in page)
    divided.end()
    assert shown == 1
    return read, time.perf_counter() - began


async def main() -> None:
    with TemporaryDirectory() as home:
        journal = Journal(Path(home))
        for name, update in {"chunk": CHUNK, "tool call": CALL}.items():
            session = await journal.create(name, cwd="/w", agent="a")
            plain, with_cursor = await each(session, update)
            print(f"{name:10} recorded {plain:5.1f} us, with a cursor {with_cursor:5.1f} us")
        session = await journal.create("s", cwd="/w", agent="a")
        read, found = await resumed(session)
        print(f"{MESSAGES} messages: read in {read:.2f} s, the last one found in {found:.2f} s")
        await journal.close()


if __name__ == "__main__":
    anyio.run(main)
