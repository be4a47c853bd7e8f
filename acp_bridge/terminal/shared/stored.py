"""Where commands read what is kept: the data folder, or copies of a database's sessions."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.terminal.cli.options import data_folder, database
from acp_bridge.terminal.cli.own_agent import lacks_extra
from acp_bridge.terminal.cli.printing import fail
from acp_bridge.terminal.shared import known

if TYPE_CHECKING:
    from acp_bridge.core.journal import SessionInfo
    from acp_bridge.core.journal.turns import Used


class Holder(NamedTuple):
    """The bridge that has a session of a database."""

    machine: str
    #: seconds until its lease ends, unless it is renewed.
    lease: int


class Kept:
    """Sessions that are kept in a folder."""

    def __init__(self, home: Path) -> None:
        """`home` is the folder that is read as a data folder."""
        self.home = home
        #: the bridges that have sessions of a database, by the sessions' ids.
        self.holders: Mapping[str, Holder] = {}

    def fetch(self, session_id: str, *, memory: bool = False) -> None:
        """Bring a session's file up to date: a data folder's always is. Raises JournalError.

        `memory`: with what the built-in agent remembers.
        """

    def usage(self, ids: Iterable[str]) -> Callable[[str], Used]:
        """Return a function that returns what one of these sessions has of usage, by its id.

        It raises JournalError for a session that can't be read. Raises JournalError.
        """
        from acp_bridge.core.journal.reading import used  # `ps` needs no journal

        return lambda session_id: used(self.home, session_id)

    def said(self, sessions: Sequence[SessionInfo], text: str) -> dict[str, str]:
        """Return those of these sessions in which a text was said, as `places` does.

        Raises JournalError.
        """
        from acp_bridge.terminal.shared.searching import places

        return places(self.home, sessions, text)


def at_kept(command: str, given: Namespace, use: Callable[[Kept], int]) -> int:
    """Call `use` with the sessions that `--journal` or `--home` names; returns its exit code.

    If a database can't be read, print why and return the code of a failure. Raises SystemExit for
    a URL that is none.
    """
    try:
        with _kept(data_folder(given.home), database(given.journal)) as kept:
            return use(kept)
    except known.NotFound as why:
        return fail(command, why)


def listed_in(home: Path, url: DatabaseUrl | None) -> Path:
    """Return the folder that lists the sessions of a database, just fetched; no `url`: `home`.

    Raises NotFound: the database can't be read.
    """
    with _kept(home, url) as kept:
        return kept.home


@contextmanager
def _kept(home: Path, url: DatabaseUrl | None) -> Iterator[Kept]:
    """Give the block the sessions of a database, just fetched; no `url`: those of `home`.

    Raises NotFound: the database can't be read, or the block has raised JournalError.
    """
    if url is None:
        yield Kept(home)
        return
    if (lacking := lacks_extra("psycopg", "postgres")) is not None:
        raise known.NotFound(lacking)
    from acp_bridge.core.journal import JournalError
    from acp_bridge.terminal.shared.copies import copied  # with psycopg

    try:
        with copied(url, home) as copies:
            yield copies
    except JournalError as error:
        raise known.NotFound(str(error)) from error


def folder_alone() -> str | None:
    """Return why a command must not change the data folder's sessions; None if it may."""
    if not os.environ.get("ACP_BRIDGE_JOURNAL"):
        return None
    return (
        "this works on the data folder alone: with a database (ACP_BRIDGE_JOURNAL), do it in the"
        " client"
    )
