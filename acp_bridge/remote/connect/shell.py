"""Runs the router: carries messages between an editor's streams and connections to its places.

- The router's steps are carried out at once, in order. The tasks that read messages wait only for
  the editor to take what was written.
- A connection that is lost is tried again without end, after pauses of up to `LONGEST` seconds. A
  refused token ends that, and at the first place everything, as the end of the editor's input does.
  A place other than the first must be reached with the first try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.runtime import waits
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Decoder, Malformed, Message, encode
from acp_bridge.core.wire.streams import Incoming, Outgoing, Streams, next_bytes
from acp_bridge.remote.connect.folders import Folders
from acp_bridge.remote.connect.line import NotTrusted, Unreached
from acp_bridge.remote.connect.router import At, Leave, Open, Place, Router, Step
from acp_bridge.remote.connect.way_out import HangUp, ToEditor, ToServer
from acp_bridge.remote.serve import websocket

#: seconds between two tries to connect, at first and at most.
SHORTEST: Final = 0.5
LONGEST: Final = 30.0
#: seconds after which a connection counts as stable, and the longest pause after an unstable one.
_HOLDS: Final = 5.0
_FLAPS: Final = 2.0
#: seconds without a connection after which the user is told, and after which requests that are
#: sent once fail.
SAID: Final = 5.0
WAITS: Final = 60.0
#: bytes that may wait for the editor while more is read.
_FLOOD: Final = 1 << 20
#: seconds at the end for a reader to take the last messages.
_FLUSH: Final = 1.0
#: bytes of the longest line of the editor: less than a server takes, since a message gets longer
#: here by its key and by other paths.
_LONGEST_LINE: Final = websocket.LONGEST - (1 << 18)
#: the HTTP status of a server that refuses a token.
_REFUSED: Final = 401

#: opens a connection to a place; raises Unreached, NotTrusted.
Reach: TypeAlias = Callable[[Place], AbstractAsyncContextManager[Streams]]
#: carries out the router's steps.
Do: TypeAlias = Callable[[Sequence[Step]], None]


class Backoff:
    """Computes the pause in seconds before the next try to connect."""

    def __init__(self) -> None:
        self._next = SHORTEST

    def after_failure(self) -> float:
        """Return the pause after a failed try: twice the one before, up to `LONGEST`."""
        pause, self._next = self._next, min(2 * self._next, LONGEST)
        return pause

    def after_line(self, lasted: float) -> float:
        """Return the pause after a connection that `lasted` seconds: short if it was stable."""
        self._next = SHORTEST if lasted >= _HOLDS else min(self._next, _FLAPS)
        return self.after_failure()


class Refused(Exception):
    """The first place refuses this user's token; the text says why."""


class _Line:
    """The line to one place: a connection, which is opened again whenever it is lost."""

    def __init__(
        self, place: Place, router: Router, do: Do, reach: Reach, tell: Callable[[str], None]
    ) -> None:
        """`tell`: logs why there is no connection. `do`: carries out the router's steps."""
        self._place, self._router, self._do = place, router, do
        self._reach = reach
        self._tell = tell
        self._told = ""
        self._wanted = anyio.Event()
        self._scope = anyio.CancelScope()
        #: the stream to the place; None while there is no connection.
        self.outgoing: Outgoing | None = None

    def want(self) -> None:
        """Shorten the pause before the next try, since the editor has sent a message."""
        self._wanted.set()

    def hang_up(self, reason: str) -> None:
        """Close the present connection, and log the reason."""
        self._say(reason)
        if self.outgoing is not None:
            self.outgoing.close()

    def leave(self) -> None:
        """End the line for good."""
        self._scope.cancel()

    async def keep(self, editor: Outgoing) -> str | None:
        """Open one connection after the other, until `leave`, or the place is given up.

        Returns why the place refuses this user; None if it does not.
        """
        refusal = None
        with self._scope:
            async with anyio.create_task_group() as tasks:
                refusal = await self._keep(editor, tasks)
                tasks.cancel_scope.cancel()
        return refusal

    async def _keep(self, editor: Outgoing, tasks: TaskGroup) -> str | None:
        backoff = Backoff()
        patience = self._lose_patience(tasks)
        is_kept = self._place == self._router.first
        if not is_kept:
            tasks.start_soon(self._end_silence)
        while True:
            try:
                async with self._reach(self._place) as (incoming, outgoing):
                    is_kept = True
                    patience.cancel()
                    began = anyio.current_time()
                    await self._use(incoming, outgoing, editor)
                    patience = self._lose_patience(tasks)
            except (NotTrusted, Unreached) as exc:
                why = str(exc)
                if isinstance(exc, NotTrusted):  # some networks intercept connections for a while
                    why = f"its certificate is not trusted: {exc}"
                elif exc.status == _REFUSED:
                    return why
                self._say(why)
                if not is_kept:
                    self._do(self._router.unreached(self._place, why))
                    return None
                pause = backoff.after_failure()
            else:
                self._told = ""
                pause = backoff.after_line(anyio.current_time() - began)
            await self._rest(pause)

    def _say(self, why: str) -> None:
        if why != self._told:
            self._told = why
            self._tell(why)

    async def _rest(self, pause: float) -> None:
        """Wait `pause` seconds before the next try; only `SHORTEST` after a call of `want`."""
        await anyio.sleep(SHORTEST)
        self._wanted = anyio.Event()
        with anyio.move_on_after(pause - SHORTEST):
            await self._wanted.wait()

    def _lose_patience(self, tasks: TaskGroup) -> anyio.CancelScope:
        """Tell the router when there was no connection for `SAID` and for `WAITS` seconds.

        Returns the scope whose cancelling ends that.
        """
        scope = anyio.CancelScope()

        async def wait() -> None:
            with scope:
                await anyio.sleep(SAID)
                self._do(self._router.is_down_for_long(self._place))
                await anyio.sleep(WAITS - SAID)
                self._do(self._router.wait_no_more(self._place))

        tasks.start_soon(wait)
        return scope

    async def _end_silence(self) -> None:
        """Tell the router after `WAITS` seconds that the place has had its time to answer."""
        await anyio.sleep(WAITS)
        self._do(self._router.is_late(self._place))

    async def _use(self, incoming: Incoming, outgoing: Outgoing, editor: Outgoing) -> None:
        """Carry messages over a connection until it is gone."""
        decoder = Decoder()
        self.outgoing = outgoing
        self._do(self._router.line_up(self._place))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outgoing.run)
            while data := await incoming.read():
                for message in decoder.feed(data):
                    if isinstance(message, Malformed):
                        self._tell(f"what it said can't be read: {message.reason}")
                    else:
                        self._do(self._router.from_server(self._place, message))
                await editor.drain_below(_FLOOD)
            tasks.cancel_scope.cancel()
        self.outgoing = None
        self._do(self._router.line_down(self._place))


class Shell:
    """Connects one editor, by its streams, with a line to each of its places."""

    def __init__(
        self,
        router: Router,
        editor: Streams,
        reach: Reach,
        folders: Folders,
        tell: Callable[[Place, str], None],
    ) -> None:
        """`tell`: logs why there is no connection to a place; `folders`: translates paths."""
        self._router = router
        self._incoming, self._editor = editor
        self._reach = reach
        self._folders = folders
        self._tell = tell
        self._lines: dict[Place, _Line] = {}
        self._tasks = anyio.create_task_group()
        self._refusal: Refused | None = None

    async def run(self) -> None:
        """Serve until the editor's stream ends; raises Refused if the first place refuses."""
        async with self._tasks as tasks:
            tasks.start_soon(self._editor.run)
            self._open(self._router.first)
            await self._read_editor()
            tasks.cancel_scope.cancel()
        if self._refusal:
            self._do(self._router.end(str(self._refusal)))
        with anyio.CancelScope(shield=True):
            await self._editor.flush(_FLUSH)
        self._incoming.close()
        self._editor.close()
        if self._refusal:
            raise self._refusal

    def _open(self, place: Place) -> None:
        tell = partial(self._tell, place)
        line = self._lines[place] = _Line(place, self._router, self._do, self._reach, tell)
        self._tasks.start_soon(self._keep, place, line)

    async def _keep(self, place: Place, line: _Line) -> None:
        why = await line.keep(self._editor)
        if why is not None and place == self._router.first:
            self._refusal = Refused(why)
            self._tasks.cancel_scope.cancel()
        elif why is not None:
            self._tell(place, why)
            self._do(self._router.refused(place, why))

    # --- the editor

    async def _read_editor(self) -> None:
        decoder = Decoder(_LONGEST_LINE, strict=True, joins=True)

        def feed(data: bytes) -> None:
            self._take(decoder.feed(data))

        bound = waits.REST_OF_MESSAGE
        while data := await next_bytes(self._incoming, decoder, feed, bound):
            feed(data)
        self._take(decoder.eof())
        for line in list(self._lines.values()):
            if line.outgoing is not None:  # a Stop right before the end is a Stop
                await line.outgoing.flush(_FLUSH)

    def _take(self, messages: Sequence[Message | Malformed]) -> None:
        for message in messages:
            if isinstance(message, Malformed):
                refusal = jsonrpc.error(message.id, message.error)
                if not message.answer:
                    self._editor.write(encode(refusal))
                elif message.id is not None:  # the server waits for an answer
                    self._do(self._router.from_editor(refusal))
                continue
            self._do(self._router.from_editor(self._folders.outward(message)))
            for line in self._lines.values():
                line.want()

    def _do(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case ToEditor(message):
                    self._editor.write(encode(self._folders.inward(message)))
                case Open(place):
                    self._open(place)
                case Leave(place):
                    self._lines.pop(place).leave()
                case At(place, ToServer(message)):
                    if (outgoing := self._lines[place].outgoing) is not None:
                        outgoing.write(encode(message))
                case At(place, HangUp(reason)):
                    self._lines[place].hang_up(reason)
