"""Decides which process a session gets, which it leaves, and which is ended. SANS-IO.

- *Sessions share a process while they are at rest.* A session works while its prompt runs, and
  while the agent works for it outside of a prompt. For a session at rest the process is *occupied*
  while another one works in it: it gets no prompt of that session then, so no process runs the
  turns of two sessions. A session that works there already stays: it could not be opened elsewhere.
- *At most one process waits without a session.* The next session gets it.
- *A start has one claim at most.* A process that is started for the next session can be claimed by
  a session that comes meanwhile; nobody waits for a start that another session needs, unless the
  two can share the process (invariant P11). Such a session waits for one start at most, whatever
  becomes of it. With a prompt it waits only if no session that needed the start earlier has one.
- *An agent that does not let go* of a session when it closes it can't move one that had a prompt.
  Sessions that had none yet, which are *fresh*, can be made anew in another process. So in a
  process for one (`for_one`) all but one are fresh; they leave it at their first prompt.
- A process that is *spoiled* gets no further session. One that is *doomed*, since it is to be
  killed or ended, gets no prompt of a session at rest either.

`sessions.pool.Pool` does what is decided here; `link.Link` says what its session does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import takewhile
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

#: the most starts in a row whose process no session takes; then none is kept warm until one does.
TRIES: Final = 3


class Place(Protocol):
    """A session's place in a process (`link.Link`)."""

    #: the session's id at the agent, once it has one.
    agent_session_id: str | None
    #: the agent has a request that opens the session, and has not answered it.
    opening: bool

    def is_about(self, session_id: object) -> bool:
        """Return True if the agent means this session, or what belongs to it, by the id."""


_Place = TypeVar("_Place", bound=Place)


def has_come(place: Place) -> bool:
    """Return True if the agent has opened the session, or was asked to."""
    return place.agent_session_id is not None or place.opening


class State(StrEnum):
    """The states of a process, for those who look for one."""

    #: it has not answered `initialize`.
    STARTING = "starting"
    #: no session has it: the next one gets it.
    WAITING = "waiting"
    #: its sessions are at rest, and a further one may come if the agent shares.
    RESTING = "resting"
    #: one of its sessions works.
    WORKING = "working"
    #: no further session comes to it.
    SPOILED = "spoiled"
    #: it is to be killed or ended, and has several sessions: none at rest prompts it.
    DOOMED = "doomed"
    #: it has ended.
    GONE = "gone"


class Sharing(StrEnum):
    """How the sessions of an agent may share a process."""

    NEVER = "never"
    #: all but one of them leave it at their first prompt.
    FRESH = "fresh"
    #: while they are at rest.
    RESTING = "resting"


class Reason(StrEnum):
    """The reasons for which a process that waits is ended."""

    #: no session has taken the process in time.
    UNUSED = "unused"
    #: a login, a logout or a setting went to another process after this one had read them.
    OUTDATED = "outdated"
    #: the process has no model library, and by now one that has it can be forked.
    LIGHT = "light"
    #: the bridge ends.
    END = "end"


class PooledProcess(Generic[_Place]):
    """One process: its places, in the order in which they came, and which of them work."""

    def __init__(self) -> None:
        """Begin without a place."""
        self._places: list[_Place] = []
        #: the session, if there is exactly one.
        self.only: _Place | None = None
        self._working: set[_Place] = set()
        self._fresh: set[_Place] = set()
        #: it has one session at most that had a prompt.
        self.for_one = False
        self._initialized = self._gone = self._doomed = False
        #: it waits for a session (`ProcessPool.keep`); no further session is to come.
        self.waits = self.spoiled = False

    def __iter__(self) -> Iterator[_Place]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    # --- the process ---------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the process; of several that hold, the one that keeps more from it."""
        if self._gone:
            return State.GONE
        if not self._initialized:
            return State.STARTING
        if self._doomed:
            return State.DOOMED
        if self.spoiled:
            return State.SPOILED
        if self.waits:
            return State.WAITING
        return State.WORKING if self.works else State.RESTING

    def note_initialized(self) -> None:
        """Note that the process has answered `initialize`."""
        self._initialized = True

    def note_gone(self) -> None:
        """Note that the process has ended."""
        self._gone = True

    def doom(self) -> tuple[_Place, ...]:
        """Note that the process is to be killed, or to end; returns those to tell, as `note`.

        A session that is alone knows it by itself.
        """
        before = self._occupied()
        self.spoiled, self._doomed = True, self._doomed or self.several
        return self._changed(before)

    # --- its sessions --------------------------------------------------------------------------

    @property
    def several(self) -> bool:
        """True if there is more than one session."""
        return len(self._places) > 1

    @property
    def works(self) -> bool:
        """True while a session works."""
        return bool(self._working)

    @property
    def only_working(self) -> _Place | None:
        """The session that works, if there is exactly one."""
        return next(iter(self._working)) if len(self._working) == 1 else None

    @property
    def paced(self) -> tuple[_Place, ...]:
        """The sessions whose clients the process waits for: those that work, or all if none does.

        A session at rest keeps no other one waiting.
        """
        return tuple(each for each in self._places if each in self._working or not self.works)

    def has_session(self, agent_session_id: str | None) -> bool:
        """Return True if a session of the process has this id at the agent."""
        return any(place.is_about(agent_session_id) for place in self._places)

    def join(self, place: _Place) -> None:
        """Add a session, which is at rest, and fresh until something else is said."""
        if place not in self._places:
            self._places.append(place)
            self._fresh.add(place)
            self._note_only()

    def note_prompted(self, place: _Place) -> tuple[_Place, ...]:
        """Note that a session had a prompt, here or elsewhere; returns those to tell, as `note`."""
        before = self._occupied()
        self._fresh.discard(place)
        return self._changed(before)

    def fresh(self, place: _Place) -> bool:
        """Return True while a session had no prompt."""
        return place in self._fresh

    @property
    def prompted(self) -> int:
        """The number of sessions that had a prompt."""
        return sum(place not in self._fresh for place in self._places)

    def leave(self, place: _Place) -> tuple[_Place, ...]:
        """Remove a session; returns those that the process is not occupied for any more."""
        before = self._occupied()
        self._working.discard(place)
        self._fresh.discard(place)
        before.pop(place, None)
        self._places = [each for each in self._places if each is not place]
        self._note_only()
        return self._changed(before)

    def _note_only(self) -> None:
        self.only = self._places[0] if len(self._places) == 1 else None

    def working(self, place: _Place) -> bool:
        """Return True while this session works."""
        return place in self._working

    def occupied(self, place: _Place) -> bool:
        """Return True while another session works in the process, and this one doesn't.

        Also if the process is doomed, or is for one session that is another one. The one for which
        it is can't be opened elsewhere: what the agent does for a fresh one does not concern it.
        """
        if place in self._working:
            return False
        if self._doomed or not self.for_one:
            return self._doomed or self.works
        if place in self._fresh:
            return self.prompted > 0 or self.works
        return self.prompted > 1

    def note(self, place: _Place, *, works: bool) -> tuple[_Place, ...]:
        """Note that a session works, or that it is at rest; returns those to tell.

        They are those for which the process is `occupied` now and was not, or the other way round.
        """
        before = self._occupied()
        if works and place in self._places:
            self._working.add(place)
        elif not works:
            self._working.discard(place)
        return self._changed(before)

    def _occupied(self) -> dict[_Place, bool]:
        return {each: self.occupied(each) for each in self._places}

    def _changed(self, before: dict[_Place, bool]) -> tuple[_Place, ...]:
        return tuple(each for each, was in before.items() if self.occupied(each) is not was)

    def dies_with(self, place: _Place) -> bool:
        """Return True if the process is to be killed because of trouble with this session.

        Else the session leaves it: it is not alone, and has not come to be opened yet, or another
        session works in the process, or is being opened, and this one doesn't work.
        """
        if not self.several or self._doomed or place in self._working:
            return True
        another_opens = any(each.opening for each in self._places if each is not place)
        return has_come(place) and not (self.works or another_opens)


class Need(Struct, Generic[_Place], eq=False):
    """What is known of a session that needs a process."""

    #: how the agent's sessions may share a process.
    shares: Sharing
    #: the session is new.
    fresh: bool = False
    #: the session's id at the agent, if it has one.
    agent_session_id: str | None = None
    #: the process that it shares if that one will do.
    first: PooledProcess[_Place] | None = None
    #: the process that it has left, and that holds on to it: no other one can open it.
    back: PooledProcess[_Place] | None = None
    #: returns True if a prompt of the session waits for the process.
    prompted: Callable[[], bool] = lambda: False
    #: the start that it waits for, or has waited for.
    start: Start[_Place] | None = None


class Start(Struct, Generic[_Place], eq=False):
    """A start under way. It may spawn two processes: the first may want another version of ACP."""

    #: it is for the next session; else for one that has asked for it.
    for_next: bool
    #: what is known of the sessions that need it, in the order in which they came.
    needs: list[Need[_Place]] = field(default_factory=list)
    #: a session that came meanwhile gets the process.
    claimed: bool = False
    #: the process that waits, or is claimed; None if none has come.
    process: PooledProcess[_Place] | None = None

    @property
    def waits(self) -> bool:
        """True if its process is to wait for whoever comes next."""
        return self.for_next and not self.claimed

    def suits(self, need: Need[_Place]) -> bool:
        """Return False if the session has a prompt, and one that needed the start earlier, too."""
        earlier = takewhile(lambda each: each is not need, self.needs)
        return not (need.prompted() and any(each.prompted() for each in earlier))


class Share(Struct, Generic[_Place], frozen=True):
    """The session gets a place beside others; then the process is `for_one` or not."""

    process: PooledProcess[_Place]
    for_one: bool = False


class Take(Struct, Generic[_Place], frozen=True):
    """The session gets the process that waited."""

    process: PooledProcess[_Place]


class End(Struct, Generic[_Place], frozen=True):
    """The process that waited is to be ended, and the session needs another one."""

    process: PooledProcess[_Place]
    reason: Reason


class Wait(Struct, Generic[_Place], frozen=True):
    """The session waits for a start. If it has `claimed` that, it gets its process."""

    start: Start[_Place]
    claimed: bool


class Begin(Struct, frozen=True):
    """A process is to be started for the session."""


Step: TypeAlias = Share[_Place] | Take[_Place] | End[_Place] | Wait[_Place] | Begin


class ProcessPool(Generic[_Place]):
    """All living processes of an agent, in the order of their starts, and the starts under way."""

    def __init__(self) -> None:
        """Begin without a process."""
        self._processes: list[PooledProcess[_Place]] = []
        self._starts: list[Start[_Place]] = []
        self._closed = False
        #: the agent was seen to hold on to a session that it had closed: only fresh ones share.
        self.holds_on = False
        #: the process that waits for a session; None if none does.
        self.waiting: PooledProcess[_Place] | None = None

    # --- what happens to processes -------------------------------------------------------------

    def add(self, process: PooledProcess[_Place]) -> None:
        """Note that a process has been spawned."""
        self._processes.append(process)

    def remove(self, process: PooledProcess[_Place]) -> None:
        """Note that a process has ended."""
        process.note_gone()
        self.withdraw(process)
        self._processes = [each for each in self._processes if each is not process]

    @property
    def ready(self) -> list[PooledProcess[_Place]]:
        """The living processes that have answered `initialize`, the oldest first."""
        return [each for each in self._processes if each.state is not State.STARTING]

    # --- what a session gets -------------------------------------------------------------------

    def step(self, need: Need[_Place], *, light: bool = False) -> Step[_Place]:
        """Return what is to be done next for a session that needs a process.

        A process that is shared comes first, then the one that waits, then one that is being
        started. `light`: a process that waits and is light can be replaced by a complete one now.
        """
        sharing = self._sharing(need)
        if shared := self.shared(need):
            for_one = sharing is Sharing.FRESH and shared is not need.back
            return Share(shared, for_one=for_one)
        if self.waiting and light:
            return End(self.waiting, Reason.LIGHT)
        if self.waiting:
            return Take(self.waiting)
        if (coming := self.coming) and not coming.claimed:
            return Wait(coming, claimed=True)
        waits = sharing is Sharing.RESTING or (sharing is Sharing.FRESH and need.fresh)
        for start in self._starts if waits else ():
            if need.start in (None, start) and start.suits(need):
                return Wait(start, claimed=False)
        return Begin()

    def _sharing(self, need: Need[_Place]) -> Sharing:
        """Return how the session may share a process, after all that was seen of the agent."""
        held = self.holds_on and need.shares is Sharing.RESTING
        return Sharing.FRESH if held else need.shares

    def shared(self, need: Need[_Place]) -> PooledProcess[_Place] | None:
        """Return a process at rest that the session can share with others; None if there is none.

        `need.back` is preferred, then `need.first`, then the oldest. It is never one in which
        another session has the same id: agents number them in each process and folder.
        """
        fit = [
            each
            for each in self._processes
            if each.state is State.RESTING and not each.has_session(need.agent_session_id)
        ]
        if need.back in fit:
            return need.back
        if (sharing := self._sharing(need)) is Sharing.NEVER:
            return None
        if sharing is Sharing.FRESH:
            fit = [each for each in fit if each.prompted <= need.fresh]
        return need.first if need.first in fit else next(iter(fit), None)

    def withdraw(self, process: PooledProcess[_Place]) -> bool:
        """Let a process wait no more, as somebody takes it or ends it; False if it doesn't wait."""
        waits = self.waiting is process
        if waits:
            self.waiting = None
            process.waits = False
        return waits

    def keep(self, process: PooledProcess[_Place]) -> bool:
        """Let a process without a session wait; False if it can't, and is to be ended.

        It can't if another one waits, if it has ended or is about to, or if others have it.
        """
        if self.waiting is None and process.state is State.RESTING and not process.several:
            self.waiting = process
            process.waits = True
        return self.waiting is process

    # --- starts --------------------------------------------------------------------------------

    def begin(self, need: Need[_Place] | None = None) -> Start[_Place]:
        """Note that a start has begun: for a session that needs it, or for the next one."""
        start: Start[_Place] = Start(need is None, [need] if need else [])
        self._starts.append(start)
        return start

    def begin_wait(self, need: Need[_Place], start: Start[_Place]) -> None:
        """Note that a session waits for a start; it may do so already."""
        if need.start is not start:
            self.end_wait(need)
            need.start = start
            start.needs.append(need)

    def end_wait(self, need: Need[_Place]) -> None:
        """Note that a session waits for no start any more."""
        if need.start:
            need.start.needs = [each for each in need.start.needs if each is not need]

    def under_way(self, start: Start[_Place]) -> bool:
        """Return True while a start has not ended."""
        return start in self._starts

    def end(self, start: Start[_Place]) -> None:
        """Note that a start has ended, well or not."""
        self._starts.remove(start)

    @property
    def coming(self) -> Start[_Place] | None:
        """The start for the next session; None if there is none."""
        return next((start for start in self._starts if start.for_next), None)

    @property
    def wants_one(self) -> bool:
        """True if no process waits or is started for the next session, and the pool is open."""
        return self.waiting is None and self.coming is None and not self._closed

    def close(self) -> None:
        """Start none ahead of a need any more."""
        self._closed = True


class Warmth(Generic[_Place]):
    """Whether the next process is started ahead of any need, as with `--spare`."""

    def __init__(self) -> None:
        """Begin with nothing kept warm."""
        #: somebody keeps one warm, or is about to.
        self.kept = False
        #: the starts in a row whose process no session took.
        self.tries = 0
        #: the process that was last started to be kept warm.
        self._process: PooledProcess[_Place] | None = None
        #: a login, a logout or a setting came since that start; a process reads them then.
        self._outdated = False

    def note_taken(self) -> bool:
        """Note that a session has got a process; returns True if the next is to be started now."""
        self.tries = 0
        begins, self.kept = not self.kept, True
        return begins

    @property
    def goes_on(self) -> bool:
        """True until too many starts in a row were in vain."""
        return self.tries < TRIES

    def note_start(self) -> None:
        """Note that a process is being started to be kept warm."""
        self.tries += 1
        self._outdated = False

    def note_come(self, process: PooledProcess[_Place]) -> bool:
        """Note that the process has come; returns True if it is outdated already."""
        self._process = process
        return self._outdated

    def note_change(self, told: PooledProcess[_Place]) -> PooledProcess[_Place] | None:
        """Note that a login, a logout or a setting went to the process `told`.

        Returns the process that is kept warm, which is outdated; None if that is `told` itself.
        """
        self._outdated = True
        return None if self._process is told else self._process
