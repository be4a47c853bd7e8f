"""Runs a conversation on this terminal, from the start of the bridge to its end."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import anyio
from anyio import to_thread

from acp_bridge.core import errors
from acp_bridge.core.protocol import (
    HAS_STOP,
    HEARS_ACCEPTED,
    HEARS_QUEUE,
    HEARS_STATE,
    OBSERVES,
    ONLY_LOOKS,
    WHOLE_CALLS,
    ErrorCode,
    Json,
    as_object,
    may_of,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.opening import Open, Opened
from acp_bridge.terminal.chat.session_commands import SessionCommands
from acp_bridge.terminal.cli.exits import Exit, of_error
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.limits import reports_limits
from acp_bridge.terminal.shared.reach import LOOKS, NotThere
from acp_bridge.terminal.shared.starting import starting, told_if_slow
from acp_bridge.terminal.view.block_text import harmless, one_line
from acp_bridge.terminal.view.blocks import Tone
from acp_bridge.terminal.view.look import look

if TYPE_CHECKING:
    from acp_bridge.core.journal.records import SessionInfo

#: seconds before a busy bridge is tried again.
_PAUSE: Final = 1.0
#: what `chat` and `attach` ask of the bridge.
_WANTED: Final = dict.fromkeys(
    (HEARS_STATE, HEARS_QUEUE, HEARS_ACCEPTED, WHOLE_CALLS, HAS_STOP), True
)

#: characters of a prompt, and prompts, that are shown.
_LONGEST: Final = 70
_MOST: Final = 10


class Connect(Protocol):
    """Connects to the bridge; `tell` is called with each line of its stderr."""

    def __call__(
        self, listener: Listener, *, tell: Callable[[str], None]
    ) -> AbstractAsyncContextManager[Connection]:
        """Return the connection as a context manager; entering it raises OSError if that fails."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to reach the bridge and open the session, and what to say at the end."""

    connect: Connect
    open: Open
    #: the session's working folder, in which mentioned files are looked for.
    folder: Path
    #: the file with the prompts entered before.
    history: Path
    #: the data folder, with the session's journal; None: that lies on another machine.
    home: Path | None
    #: returns the line printed when the user leaves and the session goes on; it is given the
    #: session's short id.
    goodbye: Callable[[str], str]
    #: returns that line for a session whose bridge has ended, as the chat's own does at its end.
    come_back: Callable[[str], str]
    own_bridge: bool
    #: the agent's name for people; "": not known.
    agent: str = ""
    #: the chat's own bridge goes on with what runs and waits when the user leaves.
    keeps: bool = False
    #: the prompt that is sent as soon as the session is open.
    first: str | None = None
    #: returns how to open the session again, from a cursor on, after the end of the connection;
    #: None: the chat ends with its connection.
    come_again: Callable[[str | None], Open] | None = None
    #: the number of attempts to connect again has no limit; `connect` ends them by an OSError.
    endless: bool = False
    read_only: bool = False
    #: ring the terminal's bell when the user is waited for.
    bell: bool = False
    #: returns the plan for another session, None for a new one, or why that can't be; None: the
    #: chat can't leave for another.
    after: Callable[[SessionInfo | None], Plan | str] | None = None


def add_bell(parser: argparse.ArgumentParser) -> None:
    """Add the option `--bell` to a command's parser."""
    parser.add_argument(
        "--bell",
        action="store_true",
        help="ring the terminal's bell when you are waited for: a permission is asked, or\n"
        "nothing runs any more; 'bell' in notify.toml does the same",
    )


def unfit(env: Mapping[str, str]) -> str | None:
    """Return why this terminal can't be used for a chat, or None."""
    if not all(each is not None and each.isatty() for each in (sys.stdin, sys.stdout)):
        return "this needs a terminal; in a script, use acp-bridge run"
    if env.get("TERM", "dumb") in ("dumb", "unknown"):
        return (
            f"this terminal can't move its cursor (TERM={env.get('TERM', '')}); use acp-bridge run"
        )
    return None


async def converse(plan: Plan) -> int:
    """Run the chat until the person leaves or the bridge ends; returns the exit code."""
    following: Plan | None = plan
    while following is not None:
        code, following = await _converse(following)
    return code


async def _converse(plan: Plan) -> tuple[int, Plan | None]:
    """Run the chat of one session; returns the exit code, and the plan for the one that follows."""
    running = _Running(plan)
    try:
        async with plan.connect(running.conversation, tell=running.log) as connection:
            code = await running.run(connection)
    except NotThere as exc:
        sys.stderr.write(f"acp-bridge: {harmless(exc.why)}\n")
        return exc.code, None
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: the bridge can't be reached: {exc.strerror}\n")
        return Exit.FAILED, None
    await running.say_goodbye()
    return code, running.following


class _Running:
    """A conversation that runs: its screen, its connection and its exit code."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._changed: Callable[[], None] = lambda: None
        self._leave: Callable[[], None] = lambda: None
        self._ring: Callable[[], None] = lambda: None
        self._code = Exit.DONE
        self._login = ""
        self._bridge_ended = False
        self._first = plan.first
        #: the plan for the session that the user has left this one for.
        self.following: Plan | None = None
        self._look = look(os.environ, sys.stdout.encoding)
        self.conversation = conversation = Conversation(
            plan.folder,
            lambda: self._changed(),
            time.monotonic,
            read_only=plan.read_only,
            ring=lambda: self._ring(),
            name=secrets.token_urlsafe(24) if plan.come_again else None,
        )
        go_on = self._go_on if plan.after is not None else None
        conversation.others = self._sessions = SessionCommands(conversation, plan.home, go_on)

    def log(self, line: str) -> None:
        """Show a line of the bridge's log."""
        self.conversation.say(harmless(line))

    async def run(self, connection: Connection) -> int:
        # Import while the bridge starts.
        from acp_bridge.terminal.chat.history import FileHistory
        from acp_bridge.terminal.chat.screen import Screen

        screen = Screen(self.conversation, self._look, FileHistory(self._plan.history))
        self._changed, self._leave = screen.changed, screen.leave
        if self._plan.bell:
            self._ring = screen.ring
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._open, connection)
            tasks.start_soon(self._watch, connection)
            tasks.start_soon(self._watch_session)
            tasks.start_soon(self._sessions.serve, connection)
            tasks.start_soon(self._on_signals)
            await screen.run()
            tasks.cancel_scope.cancel()
        return self._code

    async def say_goodbye(self) -> None:
        """Print how to come back to the session, and the prompts that its bridge left over."""
        session_id, plan = self.conversation.session_id, self._plan
        closed = self.conversation.closed.is_set()
        if session_id is None:
            first = [self._first] if self._first is not None else []
            if prompts := first + [each.text for each in self.conversation.prompts.unanswered]:
                print("\n" + self._look.plain(unsent(prompts)))
            return
        works = plan.keeps and (self.conversation.running or self.conversation.queued)
        if (works or not plan.own_bridge) and not (self._bridge_ended or closed):
            lines = plan.goodbye(session_id[:8])
        else:
            left: list[str] = []
            if plan.home is not None:
                left = await to_thread.run_sync(left_over, plan.home, session_id)
            if not left and (closed or not await self._is_kept(session_id)):
                return
            lines = farewell(left, plan.come_back(session_id[:8]))
        print("\n" + self._look.plain(lines))

    async def _is_kept(self, session_id: str) -> bool:
        home = self._plan.home
        return home is None or await to_thread.run_sync(is_kept, home, session_id)

    async def _open(self, connection: Connection, *, again: bool = False) -> None:
        try:
            own = {**_WANTED, **self.conversation.back.abilities}
            own[OBSERVES] = self._plan.read_only
            news = partial(self.conversation.say, starting(self._plan.agent))
            async with told_if_slow(news):
                about = await connection.initialize(
                    "acp-bridge chat", own=own, within=waits.OWN_BRIDGE
                )
            self._login = _logins(about.get("authMethods"))
            self._note_rights(about)
            self._sessions.reports_limits = reports_limits(about)
            opened = await (self._open_again if again else self._plan.open)(connection)
        except RpcError as error:
            self._refused(error)
        except NoAnswer as failure:
            self._fail(str(failure))
        except ConnectionLost:
            pass  # `_watch` reports it
        else:
            self.conversation.use(connection)
            self.conversation.opened(
                opened.session_id,
                opened.result,
                live=opened.live,
                header="" if again else self._header(as_object(about.get("agentInfo"))),
            )
            if not again:
                self._send_first()

    async def _open_again(self, connection: Connection) -> Opened:
        """Open the session from the last cursor on, or from its beginning if that is refused.

        Raises as `Open` does.
        """
        assert self._plan.come_again is not None
        cursor = self.conversation.back.cursor
        if cursor is not None:
            try:
                return await self._plan.come_again(cursor)(connection)
            except RpcError as error:
                if not errors.is_wrong_cursor(error):
                    raise
        self.conversation.begin_anew()
        return await self._plan.come_again(None)(connection)

    def _send_first(self) -> None:
        """Send the prompt that the user gave on the command line."""
        if self._first is not None:
            self.conversation.enter(self._first)
            self._first = None

    def _header(self, agent: Json) -> str:
        """Return the line with the folder, the agent, and how to get help."""
        name = one_line(agent.get("title") or agent.get("name"), 60)
        folder = one_line(known.with_tilde(str(self._plan.folder)))
        how = "/help lists keys and commands, @ names a file"
        return f" {self._look.marks.dot} ".join(filter(None, (folder, name, how)))

    def _note_rights(self, about: Json) -> None:
        """Make the chat read-only, and say so, if the client's login may only look."""
        if may_of(about) == ONLY_LOOKS and not self.conversation.read_only:
            self.conversation.read_only = True
            self.conversation.say(LOOKS)

    def _refused(self, error: RpcError) -> None:
        said = harmless(errors.whole(error.message, error.data))
        if error.code == ErrorCode.AUTH_REQUIRED:
            why = f"the agent wants a login first{self._login}"
            self._fail(f"{said}\n{why}\nUse its own command for that.", Exit.AUTHENTICATION)
        else:
            self._fail(said, of_error(error))

    async def _watch(self, connection: Connection) -> None:
        await connection.ended.wait()
        code, why = Exit.FAILED, "the bridge has ended"
        while not self.conversation.closed.is_set() and self._may_try():
            self.conversation.lost()
            try:
                async with self._plan.connect(self.conversation, tell=self.log) as another:
                    await self._open(another, again=True)
                    await another.ended.wait()
            except BlockingIOError:  # it is too busy to take one more
                await anyio.sleep(_PAUSE)
            except NotThere as exc:
                code, why = exc.code, harmless(exc.why)
                break
            except OSError:
                break
        if not self.conversation.closed.is_set():
            self._bridge_ended = True
            self._fail(why, code)

    def _may_try(self) -> bool:
        return self.conversation.back.may_try() or self._plan.endless

    async def _watch_session(self) -> None:
        await self.conversation.closed.wait()
        self._leave()

    def _go_on(self, session: SessionInfo | None) -> str | None:
        """Leave for another session; returns why that can't be, or None."""
        assert self._plan.after is not None
        following = self._plan.after(session)
        if isinstance(following, str):
            return following
        self.following = following
        self._leave()
        return None

    async def _on_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                self._leave()

    def _fail(self, why: str, code: Exit = Exit.FAILED) -> None:
        self._code = code
        self.conversation.end()
        self.conversation.say(why, Tone.ERROR)
        self._leave()


def _logins(methods: object) -> str:
    names = [
        one_line(method.get("name") or method.get("id"), 60)
        for method in (methods if isinstance(methods, list) else [])
        if isinstance(method, dict)
    ]
    return f": {', '.join(names)}" if names else ""


def left_over(home: Path, session_id: str) -> list[str]:
    """Return each prompt that a session's ended bridge has left over, its number first, in order.

    Reads the journal; empty if it can't be read.
    """
    # imported here: slow, and needed at the end only
    from acp_bridge.core.journal import JournalError
    from acp_bridge.core.journal.reading import waiting_prompts
    from acp_bridge.core.updates.notices import summary

    try:
        rows = waiting_prompts(home, session_id)
    except JournalError:
        return []
    prompts = [(row.seq, row.params.get("prompt")) for row in rows]
    return [f"{n}: {summary(p if isinstance(p, list) else [], _LONGEST)}" for n, p in prompts]


def is_kept(home: Path, session_id: str) -> bool:
    """Return False if a session can't be opened again, since nothing was said in it.

    Reads the journal; True if it can't be read.
    """
    try:
        return known.kept(home, session_id) is not None
    except known.NotFound:
        return True


def farewell(left: Sequence[str], how: str) -> str:
    """Return the lines about the prompts that are left over and `how` to come back."""
    if not left:
        return how
    them = "One prompt has" if len(left) == 1 else f"{len(left)} prompts have"
    there = "There /queue run runs what is left over, /queue drop forgets it."
    return "\n".join([f"{them} not run:", *_listed(left), how, there])


def unsent(prompts: Sequence[str]) -> str:
    """Return the lines about prompts that were entered before the session was open."""
    them = "One prompt was" if len(prompts) == 1 else f"{len(prompts)} prompts were"
    back = "Up brings back what was entered, in another chat, too."
    listed = _listed([f"{at}. {text}" for at, text in enumerate(prompts, 1)])
    return "\n".join([f"{them} not sent:", *listed, back])


def _listed(prompts: Sequence[str]) -> list[str]:
    lines = [f"  {one_line(text, _LONGEST)}" for text in prompts[:_MOST]]
    more = len(prompts) - _MOST
    return [*lines, f"  and {more} more"] if more > 0 else lines
