"""Runs the machine: an editor on two streams here, and a line that is opened again and again.

- What the machine says is done at once, in order; where messages are read nothing waits but for
  the other end to take what was written.
- Without a line another one is tried for, after pauses of up to `LONGEST` seconds, without end.
  A token that is refused ends it, and so does the end of what the editor sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from acp_bridge.connect.folders import Folders
from acp_bridge.connect.line import NotTrusted, Unreached
from acp_bridge.connect.machine import Machine
from acp_bridge.connect.way_out import Action, HangUp, ToEditor, ToServer
from acp_bridge.wire import jsonrpc
from acp_bridge.wire.jsonrpc import Decoder, Malformed, Message, encode
from acp_bridge.wire.streams import Incoming, Outgoing, Streams

#: seconds between two tries, at first and at most.
SHORTEST: Final = 0.5
LONGEST: Final = 30.0
#: seconds after which a line counts as one that holds, and the longest pause behind another one.
_HOLDS: Final = 5.0
_FLAPS: Final = 2.0
#: seconds without a line: after these the sessions say so, after those what is sent once waits no
#: more.
SAID: Final = 5.0
WAITS: Final = 60.0
#: bytes that may wait for the editor before more is read.
_FLOOD: Final = 1 << 20
#: seconds in which the editor takes what was said last.
_FLUSH: Final = 1.0
#: what a server answers to a token that it doesn't know.
_REFUSED: Final = 401

#: opens a connection; raises Unreached, NotTrusted.
Open: TypeAlias = Callable[[], AbstractAsyncContextManager[Streams]]


class Backoff:
    """Reckons the pause in seconds before the next try to open a line."""

    def __init__(self) -> None:
        self._next = SHORTEST

    def after_failure(self) -> float:
        """Return the pause after a try that has failed: twice the one before, up to `LONGEST`."""
        pause, self._next = self._next, min(2 * self._next, LONGEST)
        return pause

    def after_line(self, lasted: float) -> float:
        """Return the pause after a line that `lasted` seconds: the shortest one if it has held."""
        self._next = SHORTEST if lasted >= _HOLDS else min(self._next, _FLAPS)
        return self.after_failure()


class Refused(Exception):
    """The other end lets nobody in as this user is known there; the text says why."""


class Shell:
    """One editor, one machine, one line at a time."""

    def __init__(
        self,
        machine: Machine,
        editor: Streams,
        open_line: Open,
        folders: Folders,
        tell: Callable[[str], None],
    ) -> None:
        """`tell`: says why there is no line, where a person may look for it."""
        self._machine = machine
        self._incoming, self._editor = editor
        self._open = open_line
        self._folders = folders
        self._tell = tell
        self._line: Outgoing | None = None
        self._told = ""
        self._wanted = anyio.Event()

    async def run(self) -> None:
        """Serve until the editor's stream ends; raises Refused."""
        refusal: Refused | None = None
        async with anyio.create_task_group() as tasks:

            async def keep_line() -> None:
                nonlocal refusal
                try:
                    await self._keep_line(tasks)
                except Refused as exc:
                    refusal = exc
                    tasks.cancel_scope.cancel()

            tasks.start_soon(self._editor.run)
            tasks.start_soon(keep_line)
            await self._read_editor()
            tasks.cancel_scope.cancel()
        if refusal:
            self._do(self._machine.end(str(refusal)))
        with anyio.CancelScope(shield=True):
            await self._editor.flush(_FLUSH)
        self._incoming.close()
        self._editor.close()
        if refusal:
            raise refusal

    # --- the editor

    async def _read_editor(self) -> None:
        decoder = Decoder()
        while data := await self._incoming.read():
            self._take(decoder.feed(data))
        self._take(decoder.eof())
        if self._line is not None:  # a Stop right before the end is a Stop
            await self._line.flush(_FLUSH)

    def _take(self, messages: Sequence[Message | Malformed]) -> None:
        for message in messages:
            if isinstance(message, Malformed):
                if not message.answer:
                    self._editor.write(encode(jsonrpc.error(message.id, message.error)))
                continue
            self._do(self._machine.from_editor(self._folders.outward(message)))
            self._wanted.set()

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case ToEditor(message):
                    self._editor.write(encode(self._folders.inward(message)))
                case ToServer(message):
                    if self._line is not None:
                        self._line.write(encode(message))
                case HangUp(reason):
                    self._say(reason)
                    if self._line is not None:
                        self._line.close()

    # --- the line

    async def _keep_line(self, tasks: TaskGroup) -> None:
        """Open one line after the other; raises Refused."""
        backoff = Backoff()
        patience = self._lose_patience(tasks)
        while True:
            try:
                async with self._open() as (incoming, outgoing):
                    patience.cancel()
                    began = anyio.current_time()
                    await self._use(incoming, outgoing)
                    patience = self._lose_patience(tasks)
            except NotTrusted as exc:  # some networks answer in the name of others, for a while
                self._say(f"its certificate is not trusted: {exc}")
                pause = backoff.after_failure()
            except Unreached as exc:
                if exc.status == _REFUSED:
                    raise Refused(str(exc)) from exc
                self._say(str(exc))
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
        """Wait for the next try; not for long when the editor wants something."""
        await anyio.sleep(SHORTEST)
        self._wanted = anyio.Event()
        with anyio.move_on_after(pause - SHORTEST):
            await self._wanted.wait()

    def _lose_patience(self, tasks: TaskGroup) -> anyio.CancelScope:
        """Tell the machine how long there is no line, until the scope is cancelled."""
        scope = anyio.CancelScope()

        async def wait() -> None:
            with scope:
                await anyio.sleep(SAID)
                self._do(self._machine.is_down_for_long())
                await anyio.sleep(WAITS - SAID)
                self._do(self._machine.wait_no_more())

        tasks.start_soon(wait)
        return scope

    async def _use(self, incoming: Incoming, outgoing: Outgoing) -> None:
        """Carry messages until the line is gone."""
        decoder = Decoder()
        self._line = outgoing
        self._do(self._machine.line_up())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outgoing.run)
            while data := await incoming.read():
                for message in decoder.feed(data):
                    if isinstance(message, Malformed):
                        self._tell(f"what it said can't be read: {message.reason}")
                    else:
                        self._do(self._machine.from_server(message))
                await self._editor.drain_below(_FLOOD)
            tasks.cancel_scope.cancel()
        self._line = None
        self._do(self._machine.line_down())
