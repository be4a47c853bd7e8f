"""A session, as its parts see it: takes their events and runs their work."""

from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup

from acp_bridge.machine import events as ev


class Port:
    """Keeps the events that it is fed; what it runs may fail the test."""

    id = "s"

    def __init__(self, tasks: TaskGroup) -> None:
        self.fed: list[ev.Event] = []
        #: called after each event.
        self.on_feed: Callable[[], None] = lambda: None
        self._tasks = tasks

    def feed(self, event_: ev.Event) -> None:
        self.fed.append(event_)
        self.on_feed()

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        async def run() -> None:
            await work(*args)

        self._tasks.start_soon(run)
