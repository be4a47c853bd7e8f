"""The state of one session, and the one way to change it.

- Every part of the session has the core, reads the session's state from it, and tells it what has
  happened (`feed`). An event is taken to its end before the next.
- The frozen state is replaced as soon as the machine has taken an event, before what it asks for is
  done. Followers are told once, when no event is left, of the state before and the state after, and
  only if the two differ in something that concerns them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine import effects as ef
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.events import Moment, Steered
from acp_bridge.core.machine.states import Snapshot
from acp_bridge.core.machine.turns import TurnMachine
from acp_bridge.core.protocol import Json
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.settings import OnCancel, ReloadAfterCancel, Settings
from acp_bridge.core.wire.jsonrpc import Err


def instead_of(effect: ef.Effect, exc: Exception) -> list[ev.Event]:
    """Log that `effect` raised `exc`; returns what keeps its prompt from waiting for ever.

    That is one event for the machine, or none if no prompt waits for the effect.
    """
    error = errors.internal(exc, f"{type(effect).__name__} failed")
    match effect:
        case ef.Commit(key):
            return [ev.CommitFailed(key, error.message)]
        case ef.SendPrompt(epoch, key):  # sending is the last thing done: the agent has nothing
            return [ev.AgentAnswered(epoch, key, Err(error))]
        case ef.Steer(_, key):
            return [ev.SteerAnswered(key, Steered.NOT_TAKEN)]
        case ef.RunHooks(key):
            return [ev.HooksDone(key)]
    return []


async def contained(
    work: Callable[..., Awaitable[None]], args: tuple[object, ...], failed: Callable[[], None]
) -> None:
    """Run `work`; if it raises, log that and call `failed`."""
    what = getattr(work, "__qualname__", "work")
    try:
        await work(*args)
    except Exception as exc:
        errors.internal(exc, f"{what} failed")
        try:
            failed()
        except Exception as worse:  # it must not end the other sessions
            errors.internal(worse, f"{what} failed, and so did what is done then")


class Asked(Struct, frozen=True):
    """The open questions to a person: the oldest in one line, and how many there are."""

    oldest: str
    count: int


class Around(Struct, frozen=True):
    """The part of a session's state that its machine doesn't know."""

    #: the open questions to a person; None if there is none.
    asked: Asked | None = None
    #: how many clients have the session.
    clients: int = 0
    #: the agent has a request beside prompts that may last as long as a turn.
    has_long_request: bool = False
    #: something could not be written into the journal yet.
    journal_behind: bool = False
    #: what runs in the background as clients are told it; None if the agent tells nothing of that.
    background: tuple[Json, ...] | None = None
    #: something runs in the background, or a tool call that a turn has left open goes on.
    in_background: bool = False


class SessionState(Struct, frozen=True):
    """The state of a session: that of its machine, and what is open around it."""

    turns: Snapshot
    around: Around

    @property
    def busy(self) -> bool:
        """True while a prompt has no answer, or the agent works without one."""
        return self.turns.busy or self.around.in_background


#: a part of the session, which is told the state before a change and the state after it.
Follower: TypeAlias = Callable[[SessionState, SessionState], None]
#: returns the followers whom a change of the state concerns, in the order in which they are told.
Concerned: TypeAlias = Callable[[SessionState, SessionState], list[Follower]]


class Core:
    """Holds one session's machine, performs its effects, and tells its followers each change."""

    def __init__(
        self, session_id: str, workspace: Workspace, machine: TurnMachine, tasks: TaskGroup
    ) -> None:
        """Nothing happens before `begin`; spawned work runs in `tasks`."""
        self.id = session_id
        #: where the session works now.
        self.workspace = workspace
        #: set when nothing of the session is left.
        self.closed = anyio.Event()
        #: somebody has closed the session: it ends for all.
        self.closing = False
        self._machine = machine
        #: the machine's state.
        self.now = machine.snapshot
        self._tasks = tasks
        self._look_around: Callable[[], Around] = Around
        self._state = SessionState(machine.snapshot, Around())
        self._told = self._state
        self._events: deque[ev.Event] = deque()
        self._busy = False
        self._perform: Callable[[ef.Effect], None]
        self._flush: Callable[[], object]
        self._concerned: Concerned = lambda before, after: []
        self._link_of: Callable[[int], Link | None]

    def begin(
        self,
        link_of: Callable[[int], Link | None],
        look_around: Callable[[], Around],
        perform: Callable[[ef.Effect], None],
        flush: Callable[[], object],
        concerned: Concerned,
    ) -> None:
        """Connect the core with the session's parts, before the first event.

        `link_of` gives the process of an epoch, if it is there still; `look_around` returns the
        part of the state that the machine doesn't know; `perform` carries out an effect without
        waiting; `flush` sends the updates collected until now; `concerned` returns the followers
        that a change is told to.
        """
        self._link_of = link_of
        self._look_around = look_around
        self._perform = perform
        self._flush = flush
        self._concerned = concerned
        self._told = self._look()

    @property
    def link(self) -> Link | None:
        """The process that has the session open and takes requests, or None."""
        now = self.now
        return self._link_of(now.epoch) if now.takes_requests else None

    @property
    def state(self) -> SessionState:
        """The session's state at this moment: its machine's, and what is open around that."""
        return self._look()

    def feed(self, event: ev.Event) -> None:
        """Queue an event for the machine; unless another is being handled, handle all that wait."""
        self._events.append(event)
        self.settle()

    def feed_at_once(self, event: ev.Event) -> None:
        """Queue an event before all that wait, and handle them as `feed` does."""
        self._events.appendleft(event)
        self.settle()

    def settle(self) -> None:
        """Handle the queued events, then tell the followers if the state has changed.

        Events that these cause are handled, too. Does nothing while it is already at work.
        """
        if self._busy:
            return
        self._busy = True
        try:
            while True:
                while self._events:
                    self._step(self._events.popleft())
                self._flush()
                before, self._told = self._told, self._look()
                if before == self._told:
                    return
                self._tell(before, self._told)
        finally:
            self._busy = False

    def _look(self) -> SessionState:
        around = self._look_around()
        if self.now is not self._state.turns or around != self._state.around:
            self._state = SessionState(self.now, around)
        return self._state

    def _step(self, event: ev.Event) -> None:
        self._flush()
        effects = self._machine.step(event)
        self.now = self._machine.snapshot
        for effect in effects:
            try:
                self._perform(effect)
            except Exception as exc:  # those after it answer somebody (invariants P6, Q9)
                self._events.extend(instead_of(effect, exc))

    def finish(self, effect: ef.Effect, rest: Callable[[], object]) -> None:
        """Call `rest`, with which an effect that had to wait ends.

        If it raises, the machine is told the same as if the effect had failed at once.
        """
        try:
            rest()
        except Exception as exc:
            for event in instead_of(effect, exc):
                self.feed(event)

    def _tell(self, before: SessionState, after: SessionState) -> None:
        for follower in self._concerned(before, after):
            try:
                follower(before, after)
            except Exception as exc:  # the others are told all the same (invariant P6)
                errors.internal(exc, "a change could not be followed")

    def spawn(
        self, work: Callable[..., Awaitable[None]], *args: object, instead: ev.Event | None = None
    ) -> None:
        """Run `work` in a task; if it raises, that is logged, and the machine gets `instead`."""
        failed = partial(self.feed, instead) if instead else lambda: None
        self._tasks.start_soon(contained, work, args, failed)


def new_machine(
    settings: Settings, hooks: frozenset[Moment], link: Link | None, *, steers: bool
) -> TurnMachine:
    """Return the machine of a session, as the settings have it.

    `link`: the process that has the session open already, if one has. `steers`: the agent can take
    words into a turn that runs.
    """
    return TurnMachine(
        epoch=1 if link else 0,
        clear_on_cancel=settings.on_cancel is OnCancel.CLEAR,
        always_reload=settings.reload_after_cancel is ReloadAfterCancel.ALWAYS,
        provisional=link is not None and link.light,
        hooks=hooks,
        steers=steers,
    )
