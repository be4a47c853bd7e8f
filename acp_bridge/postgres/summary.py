"""What commands that read all sessions need of one, beside it in the database.

That is what the session has used, and what was said in it with the words that FTS5 sees there. So
the database itself answers these commands, and no session is fetched for them. Bridges sum up a
session that they close, commands those that nobody has summed up.

Invariants
- A summary counts while the session has no write after those that it sums up. Each write takes it
  away, and so does the deletion of the session.
- It is a copy. What is missing, or of another form, is read in the session itself.
- What the words of a summary find is what an index of the session's file finds (`journal/search`).

Every function that asks the database raises psycopg.Error.
"""

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from acp_bridge.core.journal import turns
from acp_bridge.core.journal.connection import connect, journal_errors
from acp_bridge.core.journal.search import Asked, said_in, words_in_order
from acp_bridge.core.journal.turns import Used
from acp_bridge.postgres.log import APPLIED, Connection
from acp_bridge.postgres.tables import KNOWN

#: the form of what is put here: another one is put in the place of it.
_FORM: Final = 1
#: the most bytes of a session's file of which it is kept here what was said.
_LONG: Final = 1024 * 1024
_COUNTS: Final = f"NOT deleted AND summary_of = applied AND summary_form = {_FORM}"
_USED: Final = f"SELECT name, used FROM acp_bridge.sessions WHERE {_COUNTS}"
_PUT: Final = (
    f"UPDATE acp_bridge.sessions SET summary_of = new.n, summary_form = {_FORM}, used = new.used,"
    " pieces = new.pieces, words = new.words FROM json_to_recordset(%s::json) AS"
    " new(name text, fence bigint, n bigint, used text, pieces text[], words text[])"
    " WHERE sessions.name = new.name AND sessions.fence = new.fence AND sessions.applied = new.n"
    f" AND NOT deleted AND {KNOWN}"
)


class Summary(NamedTuple):
    """What is put into the database of one session."""

    #: the number of the last write in the file that was summed up.
    n: int
    #: the session's `Used` as JSON; None if JSON can't have it.
    used: str | None
    #: the texts of the session's pieces, and the words of each; None if they are not kept here.
    pieces: list[str] | None
    words: list[str] | None

    @property
    def size(self) -> int:
        """The number of characters."""
        return sum(map(len, (self.used or "", *(self.pieces or ()), *(self.words or ()))))


#: the fence of a session, and its summary.
Put = tuple[int, Summary]


class Found(NamedTuple):
    """What summaries tell, by the names of the sessions' files."""

    #: the sessions that are summed up.
    summed: set[str]
    #: what was asked of each of them that has it in its summary.
    told: dict[str, Any]


def sum_up(path: Path) -> Summary:
    """Sum up a session's file, a copy that nobody else writes. Raises JournalError."""
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        db.execute("BEGIN").close()
        row = db.execute("SELECT value FROM settings WHERE key = ?", (APPLIED,)).fetchone()
        n, used = int(row[0]) if row else 0, _as_json(turns.used(db))
        if path.stat().st_size > _LONG:
            return Summary(n, used, None, None)
        pieces = said_in(db)
        if any("\0" in text for text in pieces):  # PostgreSQL's texts have none
            return Summary(n, used, None, None)
        return Summary(n, used, pieces, words_in_order(pieces))


def _as_json(used: Used) -> str | None:
    with suppress(ValueError, RecursionError):  # JSON can't have such a number, or is too deep
        return json.dumps(used, allow_nan=False)
    return None


async def put(connection: Connection, summaries: Mapping[str, Put]) -> None:
    """Put summaries beside their sessions, each with the session's fence, by the files' names.

    One of a session that has another fence or another last write by now is left out.
    """
    new = [
        {"name": name, "fence": fence, **each._asdict()}
        for name, (fence, each) in summaries.items()
    ]
    await connection.execute(_PUT.encode(), (json.dumps(new),))


async def used(connection: Connection) -> Found:
    """Return the `Used` of each session that is summed up."""
    rows = await (await connection.execute(_USED.encode())).fetchall()
    told = {name: Used(*json.loads(text)) for name, text in rows if text is not None}
    return Found({name for name, _ in rows}, told)


async def said(connection: Connection, asked: Asked) -> Found:
    """Return the newest piece of each session that is summed up in which all of `asked` was said.

    It is None if there is no such piece.
    """
    terms = asked.terms
    has = " AND ".join(["strpos(one.words, %s) > 0"] * len(terms)) or "false"
    cursor = await connection.execute(
        "SELECT name, words IS NOT NULL, pieces[(SELECT max(at)::int FROM unnest(words)"
        f" WITH ORDINALITY AS one(words, at) WHERE {has})]"
        f" FROM acp_bridge.sessions WHERE {_COUNTS}".encode(),
        terms,
    )
    rows = await cursor.fetchall()
    return Found({name for name, *_ in rows}, {name: text for name, has, text in rows if has})
