"""`acp-bridge journal copy`: copies the kept sessions into a database, or out of one."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import anyio

from acp_bridge.core.journal import JournalError
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime import log
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres.url import EXAMPLE, parse
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.own_agent import lacks_extra
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, print_json, print_text, say_on_stderr

if TYPE_CHECKING:
    from acp_bridge.terminal.commands.journal.copying import Report

_ABOUT: Final = """\
Copy all that is kept: the sessions of a data folder into a PostgreSQL database, or those of a
database into a data folder, with what is known of deleted ones. Nothing is overwritten: a session
that is there already stays, and one that differs is named. What was written is read back and
compared. A session that a bridge has open is named, too, and the others are copied: close it and
say the same again. What agents remember in files of their own is not copied.

FROM and TO are a data folder and postgresql://USER@HOST/DATABASE, or the other way round. The
password comes from .pgpass or PGPASSWORD."""
_AFTER: Final = """\
exit code: 0 all that is kept is there now, 1 something is not, which is named, 2 wrong usage, 130
interrupted: what was copied is whole, and the same again goes on."""
_URL: Final = re.compile(r"postgres(ql)?:|[a-z0-9+.-]+://", re.IGNORECASE)
#: seconds from one line about the progress to the next.
_PAUSE: Final = 2.0
#: seconds for which a database is waited for that does not answer.
_PATIENCE: Final = 60.0


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge journal`."""
    parser = CommandParser(
        "journal",
        "acp-bridge journal copy FROM TO [--json]",
        _ABOUT,
        [
            f"acp-bridge journal copy ~/.local/share/acp-bridge {EXAMPLE}",
            f"acp-bridge journal copy {EXAMPLE} ~/restored",
        ],
        _AFTER,
    )
    parser.add_argument("copy", metavar="copy", choices=["copy"])
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    parser.add_argument("--json", action="store_true", help="an object for each session")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge journal`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    log.configure("error", None)
    reader = parser()
    given = reader.parse_args(arguments)
    source, target = (_place(reader, word) for word in (given.source, given.target))
    if isinstance(source, DatabaseUrl) == isinstance(target, DatabaseUrl):
        reader.error(
            "one of FROM and TO is a data folder, the other one a database. Between databases"
            " pg_dump copies the schema acp_bridge; a folder that no bridge uses is copied by cp -a"
        )
    if (lacking := lacks_extra("psycopg", "postgres")) is not None:
        return fail("journal", lacking)
    if isinstance(source, Path) and not (source / "sessions").is_dir():
        return fail("journal", f"nothing is kept in {given.source}: it has no folder sessions")
    progress = _Progress(as_json=given.json)
    try:
        anyio.run(_copy, source, target, progress)
    except JournalError as error:
        progress.stopped()
        return fail("journal", error)
    return progress.finished()


def _place(reader: CommandParser, word: str) -> Path | DatabaseUrl:
    """Return the data folder or database that an argument names.

    Raises SystemExit after a message for a URL that can't be used.
    """
    if not _URL.match(word):
        return Path(os.path.realpath(os.path.expanduser(word)))
    try:
        return parse(word)
    except ValueError as why:  # which repeats nothing of it
        reader.error(str(why))


async def _copy(
    source: Path | DatabaseUrl, target: Path | DatabaseUrl, progress: _Progress
) -> None:
    """Copy a data folder into a database, or a database into a data folder. Raises JournalError."""
    from acp_bridge.postgres.connection import Database
    from acp_bridge.terminal.commands.journal.copying import (  # with psycopg
        IntoDatabase,
        IntoFolder,
    )

    if isinstance(target, DatabaseUrl) and isinstance(source, Path):
        async with Database(target, _PATIENCE) as database:
            await IntoDatabase(source, database).run(progress)
    elif isinstance(source, DatabaseUrl) and isinstance(target, Path):
        async with Database(source, _PATIENCE) as database:
            await IntoFolder(database, target).run(progress)


class _Progress:
    """Counts the copied sessions; says on stderr how far the copy is and what can't be copied."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._total = 0
        #: the number of sessions by (the session was deleted, result of its copy).
        self._counts: Counter[tuple[bool, str]] = Counter()
        self._next = monotonic() + _PAUSE

    def begin(self, total: int) -> None:
        """Note that the copy begins, of `total` sessions."""
        self._total = total

    def report(self, report: Report) -> None:
        """Count one session that is done, say why if it is not copied, and show the progress."""
        self._counts[report.deleted, report.result] += 1
        if report.why is not None:
            fail("journal", f"{one_line(report.session_id)} is not copied: {report.why}")
        if self._as_json:
            print_json([_as_json(report)])
        if monotonic() >= self._next:
            self._next = monotonic() + _PAUSE
            say_on_stderr(f"{self._counts.total():,} of {self._total:,}\n")

    def stopped(self) -> None:
        """Say how many sessions were done when the copy stopped, if it had begun."""
        if self._total:
            say_on_stderr(f"{self._counts.total():,} of {self._total:,}\n")

    def finished(self) -> int:
        """Print how many sessions were copied, there already or refused; return the exit code."""
        refused = any(result == "refused" for _, result in self._counts)
        code = Exit.FAILED if refused else Exit.DONE
        if self._as_json:
            return code
        said = (
            f"Sessions: {self._line(deleted=False)}.\nDeleted ones: {self._line(deleted=True)}.\n"
        )
        return print_text(said) or code

    def _line(self, *, deleted: bool) -> str:
        copied, same, refused = (
            self._counts[deleted, result] for result in ("copied", "same", "refused")
        )
        return f"{copied:,} copied, {same:,} there already, {refused:,} not copied"


def _as_json(report: Report) -> Json:
    return {
        "sessionId": report.session_id,
        "result": str(report.result),
        "deleted": report.deleted,
        "why": report.why,
    }
