"""Makes, opens and erases sessions in the journal, always under the session's lock.

A session is open in one bridge at a time: the lock is taken before the journal is read
(invariants K3, P12).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents import lease
from acp_bridge.core.agents.holder import write_holder
from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import (
    DatabaseError,
    HeldElsewhere,
    Incomplete,
    IndexUnusable,
    JournalError,
    NewerVersion,
    SessionExists,
    SessionInfo,
    SessionJournal,
    UnknownSession,
    days_ago,
)
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.runtime.threads import NoThread
from acp_bridge.core.session.feature import AnswersClosed
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.session.transcript.transcript_out import IMPORTING
from acp_bridge.core.sessions.elsewhere import Reach
from acp_bridge.core.sessions.pool import Pool
from acp_bridge.core.wire.jsonrpc import RpcError


def _advice() -> str:
    return (
        f"; `{OWN_COMMANDS.line('doctor')}` says what to do, and ACP_BRIDGE_HOME sets another"
        " folder for sessions"
    )


class SessionStore:
    """Creates, opens and erases single sessions."""

    def __init__(self, context: SessionContext, pool: Pool) -> None:
        """`pool` has the agent processes for the sessions. Nothing is read or written yet."""
        self._folder_looks = anyio.Lock()
        self._context = context
        self._pool = pool
        self._swept = False

    async def check_folder(self) -> None:
        """Raise RpcError if no session can be made in the data folder.

        Callers at the same time go on in the order of their calls.
        """
        try:
            async with self._folder_looks:
                await self._context.journal.prepare()
        except JournalError as exc:
            raise self._unwritable(exc) from exc

    async def create(
        self,
        session_id: str,
        workspace: Workspace,
        link: Link,
        reach: Reach | None = None,
        *,
        known: bool = False,
    ) -> Session:
        """Make a session with a process, `link`, that has it open at the agent, or is about to.

        `reach` is tried as long as another bridge holds the lock; its errors pass. `known`: the
        client has had the id before, and may try again if this fails. Raises RpcError,
        SessionExists.
        """
        prompted = session_id == link.agent_session_id  # then it was the agent's before
        session, lock = await self._make(
            session_id,
            workspace,
            link.agent_session_id,
            link,
            prompted=prompted,
            reach=reach,
            known=known,
        )
        link.hold_lock(lock)
        event("session.new", session=session_id, agent=link.name)
        return session

    async def fill(
        self,
        session_id: str,
        workspace: Workspace,
        agent_session_id: str,
        fill: Callable[[SessionJournal], Awaitable[None]],
        *,
        prompted: bool,
    ) -> Session:
        """Make a session that has no process yet; `fill` writes its first content to the journal.

        `prompted`: it has had a prompt; if not, it is listed from its first prompt on. Raises
        RpcError.
        """
        session, _ = await self._make(
            session_id, workspace, agent_session_id, None, fill, prompted=prompted
        )
        event("session.forked", session=session_id)
        return session

    async def _make(
        self,
        session_id: str,
        workspace: Workspace,
        agent_session_id: str | None,
        link: Link | None,
        fill: Callable[[SessionJournal], Awaitable[None]] | None = None,
        *,
        prompted: bool,
        reach: Reach | None = None,
        known: bool = False,
    ) -> tuple[Session, int]:
        context = self._context
        lock = await self._lock(session_id, reach)
        journal: SessionJournal | None = None
        try:
            journal = await context.journal.create(
                session_id,
                cwd=workspace.cwd,
                agent=context.settings.agent_name,
                agent_session_id=agent_session_id,
                agent_info=context.identity.info,
                prompted=prompted,
            )
            if fill:
                await fill(journal)
            found = await context.find(workspace.cwd)
            session = Session(context, self._pool, journal, lock, workspace, link, found)
            session.features.begin("fork" if fill else "resume" if prompted else "startup")
            return session, lock
        except BaseException as exc:
            if journal:
                with suppress(JournalError), anyio.CancelScope(shield=True):
                    await self._unmake(session_id, known=known)
            os.close(lock)
            if isinstance(exc, JournalError) and not isinstance(exc, SessionExists):
                raise self._unwritable(exc) from exc
            raise

    async def _unmake(self, session_id: str, *, known: bool) -> None:
        """Remove a half-made session; with `known` its row stays in the index, set aside."""
        if known:
            await self._context.journal.set_aside(session_id)
        else:
            await self._context.journal.delete(session_id, known=False)

    async def open(
        self, session_id: str, workspace: Workspace | None, reach: Reach | None = None
    ) -> Session | None:
        """Open a session of the journal; return None if the journal has none of this id.

        `workspace`: its folders and MCP servers; None for its recorded folder, and no servers.
        Raises RpcError, also when the session belongs to another agent (invariant R8). `reach` as
        in `create`.
        """
        if not await self._has(session_id):
            return None
        advice = (
            f"; `{OWN_COMMANDS.line('doctor')}` says what is wrong with the data folder, and"
            f" `{OWN_COMMANDS.line('show', session_id)}` may print the session all the same"
        )
        lock = await self._lock(session_id, reach, advice)
        journal: SessionJournal | None = None
        try:
            journal = await self._context.journal.open(session_id)
            if journal.get(IMPORTING):  # the bridge was killed: the transcript may be a half
                with suppress(JournalError), anyio.CancelScope(shield=True):
                    await self._unmake(session_id, known=False)
                os.close(lock)
                return None
            workspace = workspace or Workspace(journal.info.cwd)
            await self._check(journal, workspace)
            context = self._context
            found = await context.find(workspace.cwd)
            session = Session(context, self._pool, journal, lock, workspace, None, found)
            await session.recovery.run()
            session.replay.said = await session.features.open()
        except BaseException as exc:
            if journal:
                await journal.close()
            os.close(lock)
            if isinstance(exc, UnknownSession):  # removed meanwhile, or the file is another's
                return None
            if isinstance(exc, JournalError):
                raise self._unreadable(exc, advice) from exc
            raise
        event("session.opened", session=session_id)
        return session

    async def _has(self, session_id: str) -> bool:
        """Return True if the journal has a session of this id; raises RpcError."""
        try:
            return await self._context.journal.has(session_id)
        except JournalError as exc:
            raise errors.agent_trouble(f"the session can't be read: {exc}") from exc

    async def answer_closed(
        self, session_id: str, answer: AnswersClosed, given: Json
    ) -> Json | None:
        """Return a feature's answer about a session that no bridge has open; raises RpcError.

        None for a session that the journal lacks.
        """
        if not await self._has(session_id):
            return None
        journal, listing = None, self._context.journal
        lock = await self._lock(session_id)
        try:
            journal = await listing.open(session_id)
            self.check_agent(journal.info)
            return await answer(journal, listing, given)
        except UnknownSession:
            raise errors.unknown_session() from None
        except JournalError as exc:
            raise self._unreadable(exc, _advice()) from exc
        finally:
            with anyio.CancelScope(shield=True):
                if journal:
                    await journal.close()
            os.close(lock)

    def _unreadable(self, exc: JournalError, advice: str) -> RpcError:
        match exc:
            case HeldElsewhere():
                return errors.held_elsewhere(str(exc), exc.machine, exc.address)
            case DatabaseError():
                return self._unwritable(exc)
            case Incomplete():
                event("journal.failed", what=exc)
                return errors.agent_trouble(f"the session can't be opened: {exc}")
            case NewerVersion():
                return errors.agent_trouble(f"the session was {exc}: load it with that")
        return errors.internal(exc, f"the session's journal can't be read{advice}")

    async def _check(self, journal: SessionJournal, workspace: Workspace) -> None:
        self.check_agent(journal.info)
        if journal.info.cwd != workspace.cwd:
            await self._context.journal.touch(journal.info.session_id, cwd=workspace.cwd)

    def check_agent(self, info: SessionInfo) -> None:
        """Raise RpcError if the session belongs to another agent (invariant R8)."""
        ours = self._context.identity
        if not ours.owns(info.agent, info.agent_info):
            raise errors.invalid(
                f"the session belongs to the agent {info.agent!r}, this is {ours.name!r}"
                " (--agent-name sets it)",
                "sessionId",
            )

    async def set_aside(self, session_id: str) -> SessionInfo | None:
        """Return the index's row of a session that was removed because it never had a prompt.

        None if there is no such row. Raises RpcError if the session belongs to another agent.
        """
        try:
            found = await self._context.journal.index.set_aside_session(session_id)
        except IndexUnusable as exc:
            event("journal.failed", session=session_id, what=exc)
            return None
        if found:
            self.check_agent(found)
        return found

    async def check_unknown(self, session_id: str) -> None:
        """Raise RpcError if the index knows the session: it was deleted, or its file is damaged.

        The agent is not to be asked for a session of that id then (invariant K10).
        """
        try:
            known, deleted = await self._context.journal.index.session(session_id)
        except IndexUnusable as exc:
            event("journal.failed", session=session_id, what=exc)
            return
        if deleted:
            raise errors.unknown_session()
        if known:
            raise errors.agent_trouble(
                "the session's file is damaged or gone, so it can't be loaded;"
                f" `{OWN_COMMANDS.line('doctor')}` says where it should be, and from a backup it"
                " can be put back"
            )

    async def agent_id(self, session_id: str) -> str | None:
        """Return the id that a session has at this agent; None if it has none.

        If the journal never had the session, `session_id` itself counts as the agent's id. Raises
        RpcError, also when the session belongs to another agent.
        """
        try:
            known, deleted = await self._context.journal.known(session_id)
        except IndexUnusable as exc:
            raise errors.agent_trouble(str(exc)) from exc
        if known is None:
            return session_id
        if not deleted:
            self.check_agent(known)
        ours = self._context.identity.owns(known.agent, known.agent_info)
        return known.agent_session_id if ours else session_id

    async def erase(self, session_id: str, *, known: bool, reach: Reach | None = None) -> None:
        """Delete a session that is not open here from the journal; raises RpcError, JournalError.

        `known`: its id at the agent is remembered as ours. `reach` as in `create`.
        """
        lock = await self._lock(session_id, reach)  # another bridge may have it open
        agent = self._context.settings.agent_name
        try:
            await self._context.journal.delete(session_id, known=known, agent=agent)
        except (IndexUnusable, HeldElsewhere) as exc:
            raise errors.agent_trouble(f"not deleted: {exc}") from exc
        finally:
            os.close(lock)

    def begin_sweep(self) -> None:
        """Have what is left of sessions without a prompt removed, once in a bridge's life."""
        if not self._swept:
            self._swept = True
            self._context.tasks.start_soon(self._sweep)

    async def _sweep(self) -> None:
        """Remove sessions a day old that never had a prompt, each under its lock.

        Files a day old of sessions that were never made completely are removed too.
        """
        journal = self._context.journal
        try:
            for draft in await journal.old_drafts():
                await _under(draft, partial(journal.remove_draft, draft))
            for session_id in await journal.index.unprompted(days_ago(1)):
                set_aside = partial(journal.set_aside, session_id)
                await _under(journal.lock_path(session_id), set_aside)
        except JournalError as exc:
            event("journal.failed", what=exc)

    def _unwritable(self, exc: JournalError | OSError, advice: str = _advice()) -> RpcError:
        """Log why the data folder takes no session, and return the error for the client.

        It names the system's reason, if there is one, and the folder. `advice` ends the message.
        """
        cause = exc if isinstance(exc, OSError) else exc.__cause__
        if isinstance(exc, DatabaseError):
            event("journal.failed", what=cause or exc)
            return errors.agent_trouble(f"no session can be opened now: {exc}")
        if isinstance(cause, NoThread):
            event("journal.failed", what=cause)
            return errors.agent_trouble(f"no session can be opened now: {cause}")
        if isinstance(cause, OSError) and cause.errno:
            event("journal.failed", what=cause)
            where, why = self._context.settings.home, os.strerror(cause.errno)
            return errors.agent_trouble(f"the journal can't be written in {where}: {why}{advice}")
        return errors.internal(exc, f"the journal can't be written{advice}")

    async def _lock(
        self, session_id: str, reach: Reach | None = None, advice: str = _advice()
    ) -> int:
        """Lock a session, and write this bridge into its lock file; return the file's descriptor.

        Raises RpcError if another bridge keeps the lock, or the disk fails. `reach` as in `create`;
        `advice` ends the message if the disk fails.
        """
        path, settings = self._context.journal.lock_path(session_id), self._context.settings
        try:
            await self._context.journal.prepare()
            if reach is None:
                lock = await lease.acquire(path, settings.lease_timeout)
            else:
                try_holder = partial(reach.try_holder, path)
                lock = await lease.acquire(path, settings.lease_timeout, try_holder)
        except lease.Busy:
            raise errors.refused(
                _held_elsewhere(reach.why if reach else None, lease.taker(path))
            ) from None
        except (JournalError, OSError) as exc:
            raise self._unwritable(exc, advice) from exc
        write_holder(lock, self._context.holder)
        return lock


async def _under(path: Path, work: Callable[[], Awaitable[None]]) -> None:
    """Call `work` with the lock file `path` locked; do nothing if another process has the lock."""
    with suppress(lease.Busy, OSError):
        lock = await lease.acquire(path, 0)
        try:
            await work()
        finally:
            os.close(lock)


def _held_elsewhere(why: str | None, pid: int | None) -> str:
    """Return why a session that another bridge holds can't be opened here.

    `why`: the reason why it can't be passed through; `pid`: the process of that bridge. Each is
    None if it is not known.
    """
    told = f" ({why})" if why else ""
    end = f", or end that one: kill {pid}" if pid else ""
    return f"the session is open in another acp-bridge{told}; close it there first{end}"
