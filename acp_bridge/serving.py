"""Makes one bridge, for a client on two descriptors or for remote ones, and runs it to its end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core import keys
from acp_bridge.core.agents.birth import Newborn
from acp_bridge.core.agents.connection import AgentCommand
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.parent import AgentParent, can_fork
from acp_bridge.core.agents.spoken_version import SpokenVersion
from acp_bridge.core.agents.standing import StandingRequests
from acp_bridge.core.bridge.bridge import Bridge
from acp_bridge.core.ends import Ends
from acp_bridge.core.journal import Journal
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import signals
from acp_bridge.core.runtime.keep import Waiter
from acp_bridge.core.runtime.log import event, logger
from acp_bridge.core.session.feature import Plugin
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.settings import NOTIFY_FILE, AgentProtocol, Settings
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.features.asking import ask
from acp_bridge.features.hooks import in_session
from acp_bridge.features.queue_changes import changes
from acp_bridge.features.quotas import snapshots
from acp_bridge.features.repository import working_folder
from acp_bridge.features.spending import account
from acp_bridge.features.steering import steering
from acp_bridge.features.system_prompt import system_prompt
from acp_bridge.features.titles import title
from acp_bridge.features.usage_limits import hold
from acp_bridge.features.watch import silence
from acp_bridge.sharing.elsewhere.passages import Passages
from acp_bridge.sharing.listening.listening import Listening
from acp_bridge.versions.ends import agent_of_version_2, client_of_version_2

if TYPE_CHECKING:
    from acp_bridge.trace.trace import Trace

#: all features, a plugin for each folder, in the order in which a session calls them.
PLUGINS: Final[tuple[Plugin, ...]] = (
    in_session.PLUGIN,
    account.PLUGIN,
    hold.PLUGIN,
    silence.PLUGIN,
    working_folder.PLUGIN,
    steering.PLUGIN,
    changes.PLUGIN,
    title.PLUGIN,
    system_prompt.PLUGIN,
    ask.PLUGIN,
    snapshots.PLUGIN,
)
#: seconds for which a session of remote clients goes on that none of them has open.
KEEP: Final = 8 * 3600.0


async def serve(
    settings: Settings,
    stdin: int,
    stdout: int,
    on_end: Callable[[], None] | None = None,
    waiter: Waiter | None = None,
    early: Sequence[Newborn] = (),
) -> None:
    """Run a bridge for the client on these descriptors until it is gone; they are owned here.

    `on_end` is called when the end begins, which takes `waits.ENDED` at most but for agents that
    can't be killed: those are waited for. With a `waiter` the bridge goes on without the client as
    `settings.keep` says. `early`: processes of the agent that were started already.
    """
    async with _bridge(settings, on_end, waiter, early=early) as (bridge, _, received):
        await bridge.serve(Reader(stdin), Writer(stdout), received)


async def serve_remote(
    settings: Settings,
    let_in: Callable[[Bridge], Coroutine[Any, Any, None]],
    on_end: Callable[[], None] | None = None,
    address: str | None = None,
) -> None:
    """Run a bridge without a client on stdin until a signal asks to end; `on_end` as in `serve`.

    `address`: the origin under which other machines reach it.

    `settings.keep`, or `KEEP` if that is 0, bounds each session that no client has open.
    `let_in` runs beside it, and lets clients join with `Bridge.join_remote`; it is cancelled when
    all has ended. Its exception ends the bridge, and is raised.
    """
    kept = replace(settings, keep=settings.keep or KEEP)
    async with _bridge(kept, on_end, address=address) as (bridge, tasks, received):
        tasks.start_soon(let_in, bridge)
        await bridge.serve_remote(received)


@asynccontextmanager
async def _bridge(
    settings: Settings,
    on_end: Callable[[], None] | None,
    waiter: Waiter | None = None,
    address: str | None = None,
    early: Sequence[Newborn] = (),
) -> AsyncIterator[tuple[Bridge, TaskGroup, int]]:
    """Give a bridge that listens, its task group, and the descriptor to read signals from."""
    event("bridge.started", agent=settings.agent_name, home=settings.home.name)
    # until the tasks have ended, when nobody reads or writes them
    with signals.Received() as received, _traced(settings.trace) as trace:
        deadline = Deadline() if settings.journal else None
        async with anyio.create_task_group() as journal_tasks:  # they outlive it
            async with (
                _journal(settings, journal_tasks, deadline, address) as journal,
                anyio.create_task_group() as tasks,
            ):
                if trace:
                    tasks.start_soon(trace.run)
                # A process that does not answer one of these is to be started all the same.
                standing = StandingRequests(
                    min(settings.request_timeout, settings.start_timeout / 4)
                )
                parent = None
                if settings.parent and can_fork():
                    keys_file = settings.home / keys.FILE
                    parent = AgentParent(settings.parent, settings.folder, keys_file)
                    tasks.start_soon(parent.run)
                command = _command(settings, standing, parent, trace, deadline, early)
                context = SessionContext(settings, journal, tasks, command, plugins=PLUGINS)
                _notify(context)
                bridge = _listening(context, on_end, waiter)
                yield bridge, tasks, received
                await command.end_early()
                tasks.cancel_scope.cancel()
            journal_tasks.cancel_scope.cancel()


def _command(
    settings: Settings,
    standing: StandingRequests,
    parent: AgentParent | None,
    trace: Trace | None,
    deadline: Deadline | None,
    early: Sequence[Newborn],
) -> AgentCommand:
    spoken = SpokenVersion(AgentProtocol.V1 if settings.ours else settings.agent_protocol)
    return AgentCommand(
        settings.command,
        {},
        standing,
        spoken,
        settings.agent_files,
        settings.folder,
        parent,
        name=settings.agent_name,
        keys_in=settings.home,
        ours=settings.ours,
        ends=Ends(trace, client_of_version_2, agent_of_version_2),
        deadline=deadline,
        early=list(early),
    )


@asynccontextmanager
async def _journal(
    settings: Settings, tasks: TaskGroup, deadline: Deadline | None, address: str | None
) -> AsyncIterator[Journal]:
    """Give the journal; one in a database sets the `deadline` of guards by its lease."""
    if settings.journal is None or deadline is None:
        yield Journal(settings.home)
        return
    from acp_bridge.postgres.files import opened

    memories = settings.home / "agent" if settings.builtin else None
    where = settings.journal, settings.home, settings.lease
    async with opened(*where, tasks, deadline.set, memories, address) as journal:
        yield journal


def _listening(
    context: SessionContext, on_end: Callable[[], None] | None, waiter: Waiter | None
) -> Bridge:
    """Return a bridge which more clients may join over a socket, from its first answer on."""
    listening = Listening(context.settings, context.tasks)
    context.socket = listening.path

    def end() -> None:
        if on_end:
            on_end()
        listening.stop()

    bridge = Bridge(context, end, waiter, Passages, listening.look_again)
    context.tasks.start_soon(listening.run, bridge.introduced, bridge.join)
    return bridge


def _notify(context: SessionContext) -> None:
    """Start what tells the user that a session waits, as `notify.toml` says, if it is there."""
    if not os.path.lexists(context.settings.home / NOTIFY_FILE):
        return
    from acp_bridge.features.notify.notifier import made_for

    if notifier := made_for(context.settings.home):
        context.notifier = notifier
        context.tasks.start_soon(notifier.run)


@contextmanager
def _traced(path: Path | None) -> Iterator[Trace | None]:
    """Give a trace that is written to the file `path`; None without one, or (logged) on failure."""
    if path is None:
        yield None
        return
    from acp_bridge.trace.file import TraceFile
    from acp_bridge.trace.trace import Trace

    try:
        trace = Trace(TraceFile(path))
    except OSError as exc:
        logger.warning("there is no trace: %s: %s", path, exc.strerror)
        yield None
        return
    try:
        yield trace
    finally:
        trace.close()
