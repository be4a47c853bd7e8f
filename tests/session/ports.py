"""A session as its parts see it, played by the test."""

from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup

from acp_bridge.agents.link import Link
from acp_bridge.clients.client import Client
from acp_bridge.journal import JournalError
from acp_bridge.machine import events as ev
from acp_bridge.machine.states import PERMITS, Passing, Permits, Phase, Standstill, State
from acp_bridge.protocol import Json
from acp_bridge.session.opening import Workspace


class Reloads:
    """Keeps what is noted of reloads."""

    is_ours = False

    def __init__(self) -> None:
        self.worked = False

    async def seen(self, link: Link) -> bool:
        return self.worked

    async def note(self, link: Link) -> None:
        self.worked = True

    async def forget(self, link: Link) -> None:
        self.worked = False


class Port:
    """Stands in for the session: keeps what it is told, and is in the state that the test sets.

    Every part of a session finds here what its own port asks for.
    """

    id = "s"

    def __init__(self, tasks: TaskGroup | None = None) -> None:
        """`tasks` runs what is spawned, if given."""
        self._tasks = tasks
        self.fed: list[ev.Event] = []
        #: the names of what was spawned.
        self.spawned: list[str] = []
        self.kept: list[Json] = []
        self.woken = 0
        #: the clients that have been shown the session.
        self.welcomed: list[Client] = []
        self.touched = 0
        self.untouchable = False
        self.disturbed = 0
        self.epoch = 1
        self.state = State.RUNNING
        #: how the process that has the session is taken, if not as the state says.
        self.phase_now: Phase | None = None
        #: the client has asked the agent something that is not answered yet.
        self.excused = False
        self.waiting: tuple[int, ...] = ()
        self.unanswered: tuple[int, ...] = ()
        self.running: int | None = None
        #: what is said to a client that loads of work that goes on.
        self.work: str | None = None
        self.closing = self.occupied = self.asleep = False
        self.ending = False
        self.standstill = Standstill.OPEN
        self.agent_replays = True
        self.link: Link | None = None
        self.workspace = Workspace("/w")

    # --- the machine ---------------------------------------------------------------------------

    def feed(self, event_: ev.Event) -> None:
        self.fed.append(event_)

    def take(self) -> list[ev.Event]:
        """Return what was fed since the last call."""
        taken, self.fed = self.fed, []
        return taken

    @property
    def at_rest(self) -> bool:
        return self.state is State.IDLE

    @property
    def permits(self) -> Permits:
        return PERMITS[self.state]

    @property
    def passing(self) -> Passing:
        return self.permits.requests

    @property
    def stopped(self) -> bool:
        return self.permits.drains or self.phase_now is Phase.LEAK

    def phase(self, epoch: int) -> Phase:
        if epoch != self.epoch:
            return Phase.NOTHING
        return self.phase_now or self.permits.updates

    # --- the other parts -----------------------------------------------------------------------

    def note_state(self, update: Json) -> Json | None:
        self.kept.append(update)
        return update

    def at_work(self, client: Client) -> str | None:
        return self.work

    def disturb(self) -> None:
        self.disturbed += 1

    def wake(self) -> None:
        self.woken += 1

    def welcome(self, client: Client) -> None:
        self.welcomed.append(client)

    def spawn(
        self, work: Callable[..., Awaitable[None]], *args: object, instead: ev.Event | None = None
    ) -> None:
        self.spawned.append(work.__name__)
        if self._tasks is None:  # then it is only noted
            return

        async def run() -> None:
            await work(*args)

        self._tasks.start_soon(run)

    async def touch(self) -> None:
        self.touched += 1
        if self.untouchable:
            raise JournalError("no")
