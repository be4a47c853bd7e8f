"""The places of what a living session records, as cursors for the clients that want them.

- Nothing is counted before the first such client comes. Where the transcript ends by then is found
  by reading the journal; what is recorded meanwhile has its place when that is done.
- The place is that of the journal's transcript, not of what one client is shown (invariant N5).
- What is recorded while the journal is behind has no place: it may never be in the file. When the
  file has caught up, the journal is read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.place import Place
from acp_bridge.core.journal.prompt_rows import prompt_of
from acp_bridge.core.journal.session import SessionJournal
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.log import event
from acp_bridge.core.wire.jsonrpc import read_object


class Mark(NamedTuple):
    """What a client is told with a recorded update: its cursor, and the id of its message."""

    cursor: str
    message: str

    @classmethod
    def of(cls, place: Place) -> Mark:
        """Return the mark of the update that ends at a place."""
        return cls(str(place.cursor), place.message)


class Noted:
    """One recorded update; `mark` is None as long as its place is not known."""

    __slots__ = ("mark", "params")

    def __init__(self, params: Json | None) -> None:
        """`params`: None for a line that can't be read, which no replay shows."""
        self.params = params
        self.mark: Mark | None = None

    def put(self, place: Place) -> None:
        """Move `place` behind this update, and make the update's mark from it."""
        if self.params is not None:
            place.add(self.params)
        self.mark = Mark.of(place)


class Reading(Struct, frozen=True, eq=False):
    """One reading of the journal, up to where it was when the reading began."""

    #: how many of the updates that wait for their place were recorded before the reading began.
    recorded: int
    #: the journal was not behind then: all that was recorded is in the file, so that it has places.
    whole: bool


class Places:
    """Knows the place at the end of one session's transcript, as long as a client wants cursors."""

    def __init__(
        self, session_id: str, journal: SessionJournal, spawn: Callable[..., None] | None = None
    ) -> None:
        """Nothing is counted before `start`. `spawn` starts a task of the session."""
        self._session_id = session_id
        self._journal = journal
        self._place: Place | None = None
        #: what was recorded since the first of the readings began.
        self._waiting: list[Noted] = []
        self._readings: set[Reading] = set()
        #: the updates of the row that was recorded last.
        self._last: list[Noted] = []
        self._spawn = spawn
        #: the place is to be found once the journal is not behind, and nobody reads it.
        self._lost = False

    @property
    def cursor(self) -> str | None:
        """The cursor behind all that is recorded; None if it is not known."""
        return str(self._place.cursor) if self._place else None

    @property
    def now(self) -> Place | None:
        """A copy of the place behind all that is recorded; None if it is not known."""
        return self._place.copy() if self._place else None

    def stop(self) -> None:
        """Stop counting places, since no client wants cursors any more."""
        self._journal.follower = None
        self._forget()

    def _forget(self) -> None:
        self._place = None
        self._readings.clear()
        self._waiting.clear()
        self._last = []

    # --- the place of now ----------------------------------------------------------------------

    def start(self) -> None:
        """Count places from now on; if something is recorded already, find the place soon.

        The journal is then read for it as soon as one more row is recorded.
        """
        self._journal.follower = self._note
        if self._place is None and self._journal.is_empty:
            self._place = Place(self._session_id)
        self._lost = self._place is None

    def lose(self) -> None:
        """Forget the place, since the journal has changed; it is found anew after the next row."""
        self._forget()
        self._lost = True

    def begin(self) -> Reading:
        """Begin a reading of the journal as it is now, which `done` or `drop` ends."""
        reading = Reading(len(self._waiting), whole=not self._journal.behind)
        if reading.whole:
            self._readings.add(reading)
        return reading

    def done(self, reading: Reading, place: Place) -> None:
        """End a reading that has found `place`, the journal's end when the reading began.

        `place` belongs to the session then: the caller must not move it any more.
        """
        if reading in self._readings:
            if self._place is None:
                self._place = place
            for noted in self._waiting[reading.recorded :]:
                noted.put(place)
            self.drop(reading)

    def drop(self, reading: Reading) -> None:
        """End a reading; does nothing for one that has ended."""
        self._readings.discard(reading)
        if not self._readings:
            self._waiting.clear()

    async def find(self) -> None:
        """Find the place by reading the journal, if it is not known.

        It stays unknown if the journal can't be read.
        """
        reading = self.begin()
        try:
            await self.read(reading)
        finally:
            self.drop(reading)

    async def read(self, reading: Reading) -> str | None:
        """Return the cursor at the journal's end, where `reading` begins just now, or None.

        The journal is read for it if the place is not known.
        """
        if self._place or not reading.whole:
            return self.cursor
        place = Place(self._session_id)
        try:
            async for page in self._journal.replay():
                for params in page:
                    place.add(params)
        except JournalError as exc:
            event("journal.failed", session=self._session_id, what=exc)
            return None
        cursor = str(place.cursor)
        self.done(reading, place)
        return cursor

    # --- what is recorded ----------------------------------------------------------------------

    def take(self) -> list[Noted]:
        """Return the updates of the row that was recorded last; an empty list the second time."""
        last, self._last = self._last, []
        return last

    def aside(self, params: Json) -> Noted:
        """Return an update, which moves no place, as noted behind all that is recorded."""
        noted = Noted(params)
        if self._place:
            noted.put(self._place)
        elif self._readings:
            self._waiting.append(noted)
        return noted

    def _note(self, lines: bytes) -> None:
        """Note a row that was just recorded."""
        if self._journal.behind:
            self.lose()
            return
        if self._lost and not self._readings and self._spawn:
            self._lost = False
            if self._place is None:
                self._spawn(self.find)
        rows = [line for line in lines.split(b"\n") if line]
        self._last = [Noted(params) for line in rows for params in self._updates(line)]
        if self._place:
            for noted in self._last:
                noted.put(self._place)
        elif self._readings:
            self._waiting += self._last

    def _updates(self, line: bytes) -> Sequence[Json | None]:
        """Return the updates that a recorded line is read as."""
        params = read_object(line)
        seq = None if params is None else prompt_of(params)
        if seq is None:
            return [params]
        try:
            return self._journal.words(seq)
        except JournalError as exc:
            event("journal.failed", session=self._session_id, what=exc)
            return []
