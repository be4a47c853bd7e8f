"""The index of all sessions, in one small file that all bridges share; a listing reads only it.

Invariants
- It is used in worker threads only, one at a time, so nothing on the event loop waits for another
  bridge.
- A page begins after the last row of the one before, not at a count: a session made meanwhile
  shifts none, since it is newer than all that follows.
- Whatever is wrong with it is said in one sentence for the user (IndexUnusable).
- It is a copy: where it is missing or damaged, it is made again from the session files. Only what
  it knew of deleted sessions is lost then.

- `index.lock` is held while the file is opened, replaced or closed. SQLite finds a WAL by its name:
  the one of a file that was replaced must never meet its successor, nor be deleted in its place.
- A new file is complete before it gets its name.
- A file counts as damaged only if SQLite says so. One that is busy, unreadable or newer stays, and
  so does one on a full disk.

It also has the agents that were seen to take up a session again, by the name and the version that
each gives itself: an upgrade has to be seen anew.
"""

import base64
import fcntl
import json
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from uuid import uuid4

import anyio

from acp_bridge.core.journal.connection import FAILURES, connect, in_thread, wal_of
from acp_bridge.core.journal.errors import (
    BadCursor,
    IndexUnusable,
    JournalError,
    NewerVersion,
    SessionExists,
)
from acp_bridge.core.journal.files import read_info
from acp_bridge.core.journal.records import Owns, SessionInfo, now
from acp_bridge.core.journal.schema import (
    INDEX_SCHEMA,
    make_folder,
    making,
    migrate,
    sync_file,
    sync_path,
)
from acp_bridge.core.runtime import waits

#: the most sessions in one page of a listing.
PAGE_ROWS: Final = 50

T = TypeVar("T")


logger = logging.getLogger(__name__)
COLUMNS: Final = ", ".join(field.name for field in fields(SessionInfo))
#: SQL that is true of a row whose values are texts. SQLite keeps other values, too, and a row that
#: has some must hide no other (K2).
SOUND: Final = " AND ".join(
    f"typeof({name}) IN ('text', 'null')"
    for name in ("session_id", "cwd", "agent", "agent_session_id", "title", "updated_at")
)
#: SQL for a session not used since a time that may have no prompt.
UNPROMPTED: Final = "updated_at < ? AND (NOT prompted OR title IS NULL)"
#: seconds of a wait for another bridge that opens, replaces or closes the index.
_LOCK_WAIT: Final = 5.0
_LOCK_INTERVAL: Final = 0.01
#: One try for a damaged file and one for the new file; a third if another bridge interferes.
_TRIES: Final = 3


class _Unfit(sqlite3.DatabaseError):
    """The file is a database, but not a whole index."""


def is_damage(error: Exception) -> bool:
    """Return whether an error is the file's own fault, so that another try would fail too."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    return isinstance(error, _Unfit) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class IndexFile:
    """An open index; used in worker threads."""

    def __init__(self, path: Path) -> None:
        """Open the index; where it is missing or damaged, make a new one first.

        Raises sqlite3.Error, OSError, JournalError (a newer version).
        """
        self._path = path
        for _ in range(_TRIES):
            if not path.exists():
                _make(path)
            with locked(path):
                if not path.exists():
                    continue  # put aside meanwhile
                try:
                    self.db = _open(path)
                except sqlite3.Error as error:
                    if not is_damage(error):
                        raise
                    _put_aside(path, error)
                else:
                    self._file = path.stat()
                    return
        raise JournalError("the index is damaged again and again")

    @property
    def replaced(self) -> bool:
        """True if another file has taken the index's name, or none has it any more."""
        try:
            return not os.path.samestat(self._path.stat(), self._file)
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Close the file, under its lock if that can be had in time. Raises sqlite3.Error."""
        with ExitStack() as lock:
            with suppress(OSError):  # then SQLite's own look, whether the file has moved, must do
                lock.enter_context(locked(self._path, waits.INDEX_CLOSE))
            self.db.close()

    def discard(self, error: Exception) -> None:
        """Close the file and rename it as damaged, unless another bridge has replaced it.

        `error` is for the log. Raises sqlite3.Error, OSError.
        """
        with locked(self._path):
            with suppress(sqlite3.Error):
                self.db.close()
            if not self.replaced:
                _put_aside(self._path, error)


def _open(path: Path) -> sqlite3.Connection:
    connection = connect(path, wait=5)
    try:
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            raise _Unfit("empty")
        if not _columns(connection):
            raise _Unfit("without its table")
        _bring_up_to_date(connection)
        # 10,000 sessions take 10 ms. What was damaged may be what is written next.
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _Unfit(verdict)
        if not {field.name for field in fields(SessionInfo)} <= _columns(connection):
            raise _Unfit("without its table")
        connection.execute("PRAGMA wal_autocheckpoint=1000").close()
        # A title is the beginning of a prompt: what was deleted stays in no free space.
        connection.execute("PRAGMA secure_delete=ON").close()
    except BaseException:
        connection.close()
        raise
    return connection


def wipe(connection: sqlite3.Connection) -> None:
    """Empty the WAL, which still has deleted rows, as far as that can be done now.

    While another bridge reads, or the disk is full, it can't: the last bridge does it at its end.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def _columns(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute("SELECT name FROM pragma_table_info('sessions')").fetchall()
    return {name for (name,) in found}


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    try:
        migrate(connection, INDEX_SCHEMA)
    except JournalError as error:
        if isinstance(error.__cause__, sqlite3.Error):
            raise error.__cause__ from None  # it may be damage
        raise


def _put_aside(path: Path, error: Exception) -> None:
    """Rename a damaged file, so that it can be looked at. The caller holds the lock."""
    aside = path.with_name(f"{path.name}.damaged")
    logger.warning("journal: %s is damaged (%s): kept as %s", path.name, error, aside.name)
    wal_of(aside).unlink(missing_ok=True)
    _shm_of(path).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        wal_of(path).replace(wal_of(aside))
    path.replace(aside)


def _make(path: Path) -> None:
    """Make a complete index and give it its name, unless another bridge was quicker."""
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        with making(draft, INDEX_SCHEMA) as connection:
            _fill(connection, path.with_name("sessions"))
        sync_path(draft)
        with locked(path):
            if not path.exists():
                wal_of(path).unlink(missing_ok=True)  # the file was deleted by hand
                _shm_of(path).unlink(missing_ok=True)
                draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_path(path.parent)


def _fill(index: sqlite3.Connection, folder: Path) -> None:
    """Add a row for every session in the folder; one that can't be read hides no other (K2)."""
    marks = ", ".join("?" * len(fields(SessionInfo)))
    for path in sorted(folder.glob("*.db")):
        try:
            if info := read_info(path):  # else it is being made: its bridge lists it
                values = [getattr(info, field.name) for field in fields(SessionInfo)]
                index.execute(f"INSERT INTO sessions({COLUMNS}) VALUES ({marks})", values)
        except JournalError as error:
            logger.warning("journal: %s is not listed: %s", path.name, error.__cause__)
        except sqlite3.Error as error:
            logger.warning("journal: %s is not listed: %s", path.name, error)


@contextmanager
def locked(path: Path, wait: float = _LOCK_WAIT) -> Iterator[None]:
    """Hold the lock of a shared file during the block.

    Raises BlockingIOError if another process holds it for `wait` seconds.
    """
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_INTERVAL)
        yield
    finally:
        os.close(descriptor)


def _shm_of(path: Path) -> Path:
    return path.with_name(path.name + "-shm")


class Run(Protocol):
    """A function that uses the index in a worker thread."""

    def __call__(self, use: Callable[[sqlite3.Connection], Any], /) -> Awaitable[Any]:
        """Call `use` with the open index and return its result; raises IndexUnusable."""


class Reloads:
    """Which versions of agents were seen to load a session again: the table `reloads` of the index.

    Every method raises IndexUnusable.
    """

    def __init__(self, run: Run) -> None:
        """`run`: the way to the index, which is not touched yet."""
        self._run = run

    async def seen(self, agent: str, version: str) -> bool:
        """Return True if a reload of this version of the agent was seen to work."""
        which = "SELECT 1 FROM reloads WHERE agent = ? AND version = ?"
        found = await self._run(lambda db: db.execute(which, (agent, version)).fetchone())
        return found is not None

    async def note(self, agent: str, version: str) -> None:
        """Remember that a reload of this version of the agent has worked."""
        what = "INSERT OR IGNORE INTO reloads(agent, version) VALUES (?, ?)"
        await self._run(lambda db: db.execute(what, (agent, version)))

    async def forget(self, agent: str, version: str) -> None:
        """Forget that a reload worked: this version refused to load a session it should know."""
        what = "DELETE FROM reloads WHERE agent = ? AND version = ?"
        await self._run(lambda db: db.execute(what, (agent, version)))


class Index:
    """The file `index.db`, opened, or made, when it is first used."""

    def __init__(self, path: Path) -> None:
        """`path` is not touched yet."""
        self._path = path
        self._file: IndexFile | None = None
        self._lock = anyio.Lock()
        self.reloads = Reloads(self._use)

    async def put(self, info: SessionInfo, *, durable: bool = False, late: bool = False) -> None:
        """Add or replace a session's row; if `durable`, it is on the disk on return.

        An id at the agent that the session had before stays hidden: the agent may list it still.
        `late`: the session may have been deleted meanwhile, and stays so.

        Raises IndexUnusable.
        """
        values = [getattr(info, field.name) for field in fields(SessionInfo)]
        marks = ", ".join("?" * len(values))

        def work(db: sqlite3.Connection) -> None:
            gone = "SELECT 1 FROM sessions WHERE deleted AND prompted AND session_id = ?"
            if late and db.execute(gone, (info.session_id,)).fetchone():
                return
            had = db.execute(
                "SELECT agent, agent_session_id FROM sessions WHERE session_id = ?"
                " AND agent_session_id IS NOT NULL AND agent_session_id IS NOT ?",
                (info.session_id, info.agent_session_id),
            ).fetchone()
            if had:
                _hide(db, *had)
            db.execute(f"INSERT OR REPLACE INTO sessions({COLUMNS}) VALUES ({marks})", values)
            if durable:
                with wal_of(self._path).open("rb") as wal:
                    sync_file(wal.fileno())

        await self._use(work)

    async def remove(self, session_id: str, *, known: bool, agent: str | None = None) -> None:
        """Take a session out of the listing.

        If `known`, the session's id at the agent is kept, so that it is not taken for a new session
        when the agent lists it. With `agent`, the agent's name, a session that only the agent knows
        is hidden, too.

        Raises IndexUnusable.
        """

        def work(db: sqlite3.Connection) -> None:
            if not known:
                db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
            else:
                if agent is not None:
                    _hide(db, agent, session_id)
                db.execute(
                    "UPDATE sessions SET deleted = 1, prompted = 1, title = NULL"
                    " WHERE session_id = ?",
                    (session_id,),
                )
            wipe(db)

        await self._use(work)

    async def bury(self, info: SessionInfo) -> bool:
        """Add the row of a session that was deleted elsewhere; returns False if it is there.

        Raises SessionExists: the session is there, and not deleted; IndexUnusable.
        """
        marks = ", ".join("?" * len(fields(SessionInfo)))

        def work(db: sqlite3.Connection) -> tuple[bool, bool]:
            sql = f"INSERT OR IGNORE INTO sessions({COLUMNS}, deleted) VALUES ({marks}, 1)"
            added = db.execute(sql, astuple(info)).rowcount == 1
            is_deleted = "SELECT deleted FROM sessions WHERE session_id = ?"
            (deleted,) = db.execute(is_deleted, (info.session_id,)).fetchone()
            return added, bool(deleted)

        added, deleted = await self._use(work)
        if not deleted:
            raise SessionExists
        return added

    # -- sessions without a prompt -----------------------------------------------------------

    async def set_aside(self, session_id: str) -> None:
        """Mark a session as removed before it had a prompt. Raises IndexUnusable."""
        await self._use(
            lambda db: db.execute(
                "UPDATE sessions SET deleted = 1, prompted = 0 WHERE session_id = ?", (session_id,)
            )
        )

    async def set_aside_session(self, session_id: str) -> SessionInfo | None:
        """Return the row of a session that was set aside, if there is one. Raises IndexUnusable."""
        return await self._one("deleted AND NOT prompted AND session_id = ?", session_id)

    async def unprompted(self, before: str) -> list[str]:
        """Return the ids of sessions not used since `before`, a time, that may have no prompt.

        Raises IndexUnusable.
        """
        return await self._ids(UNPROMPTED, before)

    async def without_prompt(self) -> list[str]:
        """Return the ids of sessions without a prompt, newest first: they are not listed yet.

        Raises IndexUnusable.
        """
        return await self._ids("NOT prompted")

    # -- what is listed -------------------------------------------------------------------

    async def session(self, session_id: str) -> tuple[SessionInfo | None, bool]:
        """Return a session's row, None if there is none, and True if it was deleted for good.

        Raises IndexUnusable.
        """
        gone = await self._one("deleted AND prompted AND session_id = ?", session_id)
        return gone or await self._one("session_id = ?", session_id), gone is not None

    async def page(
        self, cwd: str | None, agent: Owns | None, cursor: str | None
    ) -> tuple[list[SessionInfo], str | None]:
        """Return sessions of `cwd` and `agent` (None: of any), newest first, and the next cursor.

        Raises:
            BadCursor: the cursor is not one of ours.
            IndexUnusable: it can't be read.
        """
        time, last = _read_cursor(cursor)

        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            _set_owner(db, agent)
            return db.execute(
                f"SELECT {COLUMNS} FROM sessions WHERE NOT deleted AND prompted AND {SOUND}"
                " AND (:cwd IS NULL OR rtrim(cwd, '/') = rtrim(:cwd, '/'))"
                " AND owns(agent, agent_info)"
                " AND (:time IS NULL OR (updated_at, session_id) < (:time, :last))"
                " ORDER BY updated_at DESC, session_id DESC LIMIT :limit",
                {"cwd": cwd, "time": time, "last": last, "limit": PAGE_ROWS + 1},
            ).fetchall()

        rows = await self._run(work)
        found = [SessionInfo(*row) for row in rows[:PAGE_ROWS]]
        return found, _make_cursor(found[-1]) if len(rows) > PAGE_ROWS else None

    async def agent_ids(self, agent: Owns) -> frozenset[str]:
        """Return the ids at the agent of all its sessions, also of deleted ones.

        Raises IndexUnusable.
        """
        which = "agent_session_id FROM sessions WHERE agent_session_id IS NOT NULL"
        return frozenset(await self._of(agent, f"{which} AND owns(agent, agent_info)"))

    async def folders(self, agent: Owns, most: int) -> list[str]:
        """Return the working folders of the agent's sessions, the newest first, at most `most`.

        Raises IndexUnusable.
        """
        return await self._of(
            agent,
            "cwd FROM sessions WHERE cwd <> '' AND owns(agent, agent_info)"
            " GROUP BY cwd ORDER BY max(updated_at) DESC LIMIT ?",
            most,
        )

    async def shares_agent_id(self, agent: Owns, agent_session_id: str, session_id: str) -> bool:
        """Return True when another session that is not deleted has this id at the agent.

        Raises IndexUnusable.
        """
        others = await self._of(
            agent,
            "session_id FROM sessions WHERE NOT deleted AND agent_session_id = ?"
            " AND session_id <> ? AND owns(agent, agent_info) LIMIT 1",
            agent_session_id,
            session_id,
        )
        return bool(others)

    async def _of(self, agent: Owns, what: str, *values: object) -> list[str]:
        def work(db: sqlite3.Connection) -> list[str]:
            _set_owner(db, agent)
            return [found for (found,) in db.execute(f"SELECT {what}", values)]

        return await self._run(work)

    async def _one(self, which: str, session_id: str) -> SessionInfo | None:
        row = await self._run(
            lambda db: db.execute(
                f"SELECT {COLUMNS} FROM sessions WHERE {which}", (session_id,)
            ).fetchone()
        )
        return SessionInfo(*row) if row else None

    async def _ids(self, which: str, *values: str) -> list[str]:
        rows = await self._run(
            lambda db: db.execute(
                f"SELECT session_id FROM sessions WHERE NOT deleted AND {which}"
                " ORDER BY updated_at DESC",
                values,
            ).fetchall()
        )
        return [session_id for (session_id,) in rows]

    async def close(self) -> None:
        """Close the index. Never raises."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                file, self._file = self._file, None
                if file is not None:
                    with suppress(*FAILURES):
                        await in_thread(file.close)

    async def _run(self, use: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `use` finds in the index as it is now. Raises IndexUnusable."""
        return await self._use(use)

    async def _use(self, use: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `use` makes of the file, in a worker thread. Raises IndexUnusable."""

        def work() -> T:
            try:
                try:
                    return use(self._opened())
                except FAILURES as error:
                    if not self._mended(error):
                        raise
                return use(self._opened())
            except (*FAILURES, JournalError) as error:
                raise IndexUnusable(_told(self._path.name, error)) from error

        async with self._lock:
            return await in_thread(work)

    def _opened(self) -> sqlite3.Connection:
        """Return a connection to the file that has the name now; a replaced one is closed."""
        if self._file is not None and self._file.replaced:
            self._file.close()
            self._file = None
        if self._file is None:
            self._file = IndexFile(self._path)
        return self._file.db

    def _mended(self, error: Exception) -> bool:
        """Put the file aside if `error` is damage; returns whether a retry gets another file."""
        file = self._file
        if file is None:
            return False
        if is_damage(error):
            self._file = None
            file.discard(error)
            return True
        return file.replaced


def _set_owner(db: sqlite3.Connection, agent: Owns | None) -> None:
    """Define the SQL function `owns(agent, agent_info)`: True for a session of this agent."""
    db.create_function("owns", 2, agent.owns if agent else lambda name, info: True)


def _hide(db: sqlite3.Connection, agent: str, agent_session_id: str) -> None:
    """Add a row for a session of the agent that is not to be listed, if there is none."""
    db.execute(
        f"INSERT OR IGNORE INTO sessions({COLUMNS}, deleted)"
        " VALUES (?, '', ?, ?, NULL, ?, NULL, 1, 1)",
        (f"hidden:{agent}:{agent_session_id}", agent, agent_session_id, now()),
    )


def _told(name: str, error: Exception) -> str:
    """Return what the user is told of an error of the index file `name`; it holds no path."""
    if isinstance(error, NewerVersion):
        return (
            f"the list of sessions ({name} in the data folder) was {error}: use that one, or move"
            " the file away: it is made again from the sessions"
        )
    why = error.strerror if isinstance(error, OSError) else str(error)
    return (
        f"the list of sessions ({name} in the data folder) can't be used ({why}); if it stays so,"
        " move it away: it is made again from the sessions"
    )


def _read_cursor(cursor: str | None) -> tuple[str | None, str | None]:
    if cursor is None:
        return None, None
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii")
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadCursor("not a cursor of this listing") from error
    match value:
        case [str(time), str(last)]:
            return time, last
    raise BadCursor("not a cursor of this listing")


def _make_cursor(row: SessionInfo) -> str:
    return base64.urlsafe_b64encode(json.dumps([row.updated_at, row.session_id]).encode()).decode()
