"""Follows the feed of one conversation without gaps.

The stored log is read first, then events come live, and after each cut the log is read again.

Invariants
- The log is read once the live feed is open; live events that come meanwhile are added after it.
- After a cut it reconnects for ever, after 1 s, doubling to 30 s; only a final answer of the server
  ends it.
- Events that wait are bounded in number: a client that does not read costs a reconnection.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from agent.client import Update
from agent.openhands.backoff import pause_after
from agent.openhands.events import Event, Json, Snapshot, Status, read, status_of
from agent.openhands.events_socket import EventsSocket
from agent.openhands.feed import Feed, Taken
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.server import Server

logger = logging.getLogger(__name__)

#: seconds between two attempts to connect
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
#: seconds for the first event, the state, which shows that the subscription works; the server sends
#: it only while no command runs
_SUBSCRIBED: Final = 2.0
#: how many live events may wait while the log is read
_BACKLOG: Final = 20_000

Show = Callable[[Update], Awaitable[None]]
#: called with each new event, and True for the user's own message
Tell = Callable[[Event, bool], Awaitable[None]]
OpenSocket = Callable[[], AbstractAsyncContextManager[EventsSocket]]


class LiveFeed:
    """The feed of one conversation.

    `show` shows an update to the client; `tell` gets each new event after its updates; `gone` gets
    the reason when the feed has ended for good.
    """

    def __init__(
        self,
        server: Server,
        open_socket: OpenSocket,
        conversation_id: str,
        show: Show,
        tell: Tell,
        gone: Callable[[ServerProblem], Awaitable[None]],
    ) -> None:
        self.feed = Feed()
        #: why the feed has ended for good; None while it has not
        self.ended: ServerProblem | None = None
        #: an event came since the last time this was set to False
        self.heard = False
        #: this connection has sent the whole state; an earlier connection's may be outdated
        self.state_known = False
        self._server = server
        self._open_socket = open_socket
        self._id = conversation_id
        self._show = show
        self._tell = tell
        self._gone = gone
        self._newest: str | None = None
        self._reading = anyio.Lock()
        self._live = False
        self._changed = anyio.Event()
        self._connection = anyio.CancelScope()
        self._hurry = anyio.Event()
        #: not set during a replay
        self._still = anyio.Event()
        self._still.set()

    async def run(self) -> None:
        """Connects again and again, until the server's answer is final, or until cancelled."""
        failures = 0
        while self.ended is None:
            problem: ServerProblem | None = None
            with anyio.CancelScope() as self._connection:
                try:
                    async with self._open_socket() as socket:
                        await self._follow(socket)
                except ServerProblem as failed:
                    logger.info("the feed of %s was cut: %s", self._id, failed)
                    problem = failed
            was_live, self._live = self._live, False
            self.state_known = False
            self.feed.cut()
            self._note_change()
            if problem is not None and problem.final:
                await self.end(problem)
            failures = 1 if was_live else failures + 1
            if self.ended is None:
                with anyio.move_on_after(pause_after(failures, _FIRST_PAUSE, _LONGEST_PAUSE)):
                    await self._hurry.wait()
                self._hurry = anyio.Event()

    async def end(self, problem: ServerProblem) -> None:
        """Ends the feed for good; `problem` is the reason, for the callback `gone`."""
        if self.ended is None:
            self.ended = problem
            self._connection.cancel()
            self._note_change()
            await self._gone(problem)

    def reconnect(self) -> None:
        """Drops the connection, which may be dead although it was not cut, and connects again."""
        self._connection.cancel()
        self._hurry.set()

    async def wait_live(self) -> None:
        """Waits until the feed is live. Raises ServerProblem if it has ended for good."""
        self._hurry.set()
        while not self._live:
            if self.ended is not None:
                raise self.ended
            await self._changed.wait()

    async def sync(self, *, replay: bool = False, silent: bool = False) -> Status | None:
        """Reads the log from the last known event on; returns the conversation's status.

        `replay`: the user's own messages are shown too; `silent`: nothing is shown. Raises
        ServerProblem.
        """
        async with self._reading:
            async for page in self._server.events(self._id, self._newest):
                for raw in page:
                    if (event := read(raw)) is not None:
                        await self._take(self.feed.stored(event, replay=replay), silent=silent)
                        self._newest = event.id
        return status_of(await self._server.status(self._id))

    async def replay(self) -> None:
        """Shows the whole log again; live events that come meanwhile are added after it."""
        self._still = anyio.Event()
        try:
            async with self._reading:
                fresh, newest = self.feed.successor(), self._newest
                async for page in self._server.events(self._id, None):
                    for raw in page:
                        if (event := read(raw)) is not None:
                            for update in fresh.stored(event, replay=True).updates:
                                await self._show(update)
                            newest = event.id
                self.feed, self._newest = fresh, newest
        finally:
            self._still.set()

    async def _follow(self, socket: EventsSocket) -> None:
        problem: ServerProblem | None = None
        send, receive = anyio.create_memory_object_stream[Json](_BACKLOG)

        async def pump() -> None:
            nonlocal problem
            with send:
                problem = await _pump(socket, send)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump)
            with receive:
                try:
                    first: Json | None = None
                    with anyio.move_on_after(_SUBSCRIBED):
                        first = await receive.receive()
                    await self.sync()
                    if first is not None:
                        await self._live_event(first)
                    self._live = True
                    self._note_change()
                    async for raw in receive:
                        if first is None:  # subscribed: everything before this event is in the log
                            first = raw
                            await self.sync()
                        await self._live_event(raw)
                except anyio.EndOfStream:
                    pass
                except ServerProblem as failed:
                    problem = problem or failed
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def _live_event(self, raw: Json) -> None:
        self.heard = True
        await self._still.wait()
        if (event := read(raw)) is not None:
            self.state_known = self.state_known or isinstance(event, Snapshot)
            await self._take(self.feed.live(event))

    async def _take(self, taken: Taken, *, silent: bool = False) -> None:
        for update in () if silent else taken.updates:
            await self._show(update)
        if taken.event is not None:
            await self._tell(taken.event, taken.ours)

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def _pump(socket: EventsSocket, send: MemoryObjectSendStream[Json]) -> ServerProblem:
    """Passes events of `socket` on to `send` until the connection ends or too many events wait.

    Returns the reason.
    """
    while True:
        try:
            send.send_nowait(await socket.receive())
        except ServerProblem as problem:
            return problem
        except anyio.WouldBlock:
            return ServerProblem(Kind.UNSURE, "Too many events wait.")
