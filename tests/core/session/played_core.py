"""The core of a session as its parts see it, played by the test."""

from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup

from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import PERMITS, Phase, Snapshot, Standstill, State
from acp_bridge.core.records import replace
from acp_bridge.core.session.core import Around, Core, SessionState
from acp_bridge.core.session.opening import Workspace


class PlayedCore(Core):
    """Keeps what it is told, and stands where the test sets it."""

    def __init__(self, tasks: TaskGroup | None = None) -> None:
        """`tasks` runs what is spawned, if given."""
        self.id, self.workspace, self.closing = "s", Workspace("/w"), False
        self._runs = tasks
        self.fed: list[ev.Event] = []
        #: the names of what was spawned.
        self.spawned: list[str] = []
        self.epoch = 1
        self.machine_state = State.RUNNING
        #: how the process that has the session is taken, if not as the state says.
        self.phase_now: Phase | None = None
        self.waiting: tuple[int, ...] = ()
        self.unanswered: tuple[int, ...] = ()
        self.running: int | None = None
        self.standstill = Standstill.OPEN
        self.link_now: Link | None = None

    def take(self) -> list[ev.Event]:
        """Return what was fed since the last call."""
        taken, self.fed = self.fed, []
        return taken

    @property
    def now(self) -> Snapshot:  # type: ignore[override]
        permits = PERMITS[self.machine_state]
        return Snapshot(
            state=self.machine_state,
            epoch=self.epoch,
            permits=replace(permits, updates=self.phase_now) if self.phase_now else permits,
            running=self.running,
            waiting=self.waiting,
            unanswered=self.unanswered,
            oldest=next(iter(self.unanswered), None),
            standstill=self.standstill,
            at_rest=self.machine_state is State.IDLE,
            may_work=self.machine_state is State.WORKING,
            asleep=False,
            provisional=False,
            ending=False,
        )

    @property
    def link(self) -> Link | None:
        return self.link_now

    @property
    def state(self) -> SessionState:
        return SessionState(self.now, Around())

    def feed(self, event: ev.Event) -> None:
        self.fed.append(event)

    def settle(self) -> None:
        """Do nothing: nobody follows."""

    def spawn(
        self, work: Callable[..., Awaitable[None]], *args: object, instead: ev.Event | None = None
    ) -> None:
        self.spawned.append(work.__name__)
        if self._runs is None:  # then it is only noted
            return

        async def run() -> None:
            await work(*args)

        self._runs.start_soon(run)
