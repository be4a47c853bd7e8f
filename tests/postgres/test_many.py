"""Many sessions that are fetched at once are the same as each that is fetched alone."""

from pathlib import Path

import anyio

from acp_bridge.core.journal.file import Statement, Write
from acp_bridge.core.records import replace
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import log, many
from acp_bridge.postgres.connection import Database
from tests.postgres.session_files import INFO, dumped, made

#: the sizes of writes, in characters: short ones, long ones between them, and ones near the border.
SIZES = [1, 1900, 1999, 2000, 2001, 70_000, 3]


def write(number: int) -> Write:
    """A write whose place among the others shows: with lines, without, or with two statements."""
    text = f"{number} ä " + "x" * SIZES[number % len(SIZES)]
    if number % 5:
        return Write((), number, (text.encode(),))
    note: Statement = ("INSERT OR REPLACE INTO settings VALUES ('last', ?)", (text,))
    return Write((note, ("UPDATE session SET title = ?", (str(number),))))


async def test_sessions_are_the_same_whether_they_are_fetched_together_or_alone(
    database: DatabaseUrl, tmp_path: Path
) -> None:
    writes = {"none": 0, "one": 1, "some": 99, "many": 305}
    with anyio.fail_after(60):
        async with Database(database) as opened, opened.connection() as connection:
            for name, count in writes.items():
                info = replace(INFO, session_id=name)
                file = made(tmp_path / "here" / "sessions" / f"{name}.db", info=info)
                await log.store(connection, info, file, "me")
                rows = [log.row_of(number + 1, write(number)) for number in range(count)]
                for at in range(0, count, 50):
                    some = rows[at : at + 50]
                    put = log.put(connection, name, "me", 1, some, sure=False, prompted=False)
                    assert await put
            together = {name: tmp_path / "here" / "sessions" / f"{name}.db" for name in writes}
            fetched = await many.fetch(connection, together)
            assert fetched == {name: (1, count) for name, count in writes.items()}
            for name, path in together.items():
                alone = tmp_path / "alone" / "sessions" / path.name
                await log.fetch(connection, name, alone)
                assert dumped(path) == dumped(alone)
