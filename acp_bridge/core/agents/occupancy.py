"""Knows which sessions share one agent process, and which of them work. SANS-IO.

- A session works while its prompt runs, and while the agent works for it outside of a prompt.
- For a session at rest the process is *occupied* while another one works in it. It gets no prompt
  of that session then, so no process runs the turns of two sessions. A session that works there
  already stays: it could not be opened elsewhere.
- A process that is *spoiled* gets no further session. One that is *doomed*, since it is to be
  killed or ended, gets no prompt of a session at rest either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

_Session = TypeVar("_Session")


class Occupancy(Generic[_Session]):
    """The sessions of one process, in the order in which they came."""

    def __init__(self) -> None:
        """Begin without a session."""
        self._works: dict[_Session, bool] = {}
        #: no further session is to come.
        self.spoiled = False
        self._doomed = False

    def __iter__(self) -> Iterator[_Session]:
        return iter(self._works)

    def __len__(self) -> int:
        return len(self._works)

    @property
    def several(self) -> bool:
        """True if there is more than one session."""
        return len(self._works) > 1

    @property
    def first(self) -> _Session | None:
        """The session that came first of those that are there; None if there is none."""
        return next(iter(self._works), None)

    @property
    def works(self) -> bool:
        """True while a session works."""
        return any(self._works.values())

    @property
    def only_working(self) -> _Session | None:
        """The session that works, if there is exactly one."""
        working = [session for session, works in self._works.items() if works]
        return working[0] if len(working) == 1 else None

    @property
    def paced(self) -> tuple[_Session, ...]:
        """The sessions whose clients the process waits for: those that work, or all if none does.

        A session at rest keeps no other one waiting.
        """
        working = tuple(each for each, works in self._works.items() if works)
        return working or tuple(self._works)

    def join(self, session: _Session) -> None:
        """Add a session, which is at rest."""
        self._works.setdefault(session, False)

    def leave(self, session: _Session) -> tuple[_Session, ...]:
        """Remove a session; returns those that the process is not occupied for any more."""
        changed = self.note(session, works=False)
        self._works.pop(session, None)
        return tuple(each for each in changed if each != session)

    def occupied(self, session: _Session) -> bool:
        """Return True while another session works in the process, and this one doesn't.

        Also if the process is doomed.
        """
        return not self._works.get(session, False) and (self.works or self._doomed)

    def note(self, session: _Session, *, works: bool) -> tuple[_Session, ...]:
        """Note that a session works, or that it is at rest; returns those to tell.

        They are those for which the process is `occupied` now and was not, or the other way round.
        """
        before = self._occupied()
        if session in self._works:
            self._works[session] = works
        return self._changed(before)

    def doom(self) -> tuple[_Session, ...]:
        """Note that the process is to be killed, or to end; returns those to tell, as `note`.

        A session that is alone knows it by itself.
        """
        before = self._occupied()
        self.spoiled, self._doomed = True, self._doomed or self.several
        return self._changed(before)

    def _occupied(self) -> dict[_Session, bool]:
        return {each: self.occupied(each) for each in self._works}

    def _changed(self, before: dict[_Session, bool]) -> tuple[_Session, ...]:
        return tuple(each for each, was in before.items() if self.occupied(each) is not was)

    def dies_with(self, session: _Session, *, opened: bool, another_opens: bool = False) -> bool:
        """Return True if the process is to be killed because of trouble with this session.

        Else the session leaves it: it is not alone, and was not `opened` yet, or another session
        works in the process, or is being opened (`another_opens`), and this one doesn't work.
        """
        if not self.several or self._doomed or self._works.get(session, False):
            return True
        return opened and not (self.works or another_opens)
