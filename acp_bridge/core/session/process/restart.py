"""Gives a new process what the last one had: the session, its settings, requests that waited.

That no process takes the session is said once: by a prompt's answer, or by a notice, which is shown
to the clients that have the session and not recorded (invariant R3).

The process is initialized, and no other process has the session open (invariant P12). The user's
settings are in force before the next prompt, or the prompt does not run (invariant R9).

An agent that was forked before the model library was loaded (`agents.parent`) may not get a prompt:
the session's process is provisional. It is swapped, by an ordinary restart, as soon as the parent
has loaded the library, or at once when the model is needed; then the restart waits for the parent.
The swap waits until the provisional process has answered every request, `waits.REQUEST` at most.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents.failed_start import NOT_READY
from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import SessionJournal
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import State
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.opening import NotLoaded, Opening, Refused
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.session.process.sleep import Reloads, Sleep
from acp_bridge.core.session.requests.to_agent import ToAgent
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import agent_trouble, notices
from acp_bridge.core.updates.late_replay import LateReplay
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import RpcError

#: seconds between two looks at a process that has requests.
_LOOK: Final = 0.01


class Restart:
    """Gives the session to each new process."""

    def __init__(
        self,
        core: Core,
        journal: SessionJournal,
        transcript: TranscriptOut,
        updates: Updates,
        user_settings: UserSettings,
        to_agent: ToAgent,
        memory: Memory,
        sleep: Sleep,
        rename: Callable[[Link], Awaitable[None]],
        reloads: Reloads,
    ) -> None:
        """`rename` notes the agent's id of the session and takes the process over; it raises
        JournalError. `reloads` keeps, for later bridges, whether the agent takes a session up."""
        self._core = core
        self._rename = rename
        self._reloads = reloads
        self._journal = journal
        self._transcript = transcript
        self._updates = updates
        self._user_settings = user_settings
        self._to_agent = to_agent
        self._memory = memory
        self._sleep = sleep
        #: a prompt's answer, or the notice, has said why no process could be started.
        self.failure_told = False
        #: ends the wait for a start that takes long; None while no process starts.
        self.starting: anyio.CancelScope | None = None

    def say_not_ready(self, before: SessionState, after: SessionState) -> None:
        """Show clients a notice that no process takes the session, and why."""
        self.failure_told = True
        self._transcript.show_only(notices.notice(notices.not_ready(self._memory.refusal)))

    def follow_start(self, agent: str, before: SessionState, after: SessionState) -> None:
        """Show clients a notice that the agent, of this name, is starting if that takes long."""
        if after.turns.state is State.RELOADING:
            return
        if self.starting:
            self.starting.cancel()
            self.starting = None
        if after.turns.state is State.STARTING:
            self.starting = anyio.CancelScope()
            self._core.spawn(self._tell_slow_start, os.path.basename(agent), self.starting)

    async def _tell_slow_start(self, agent: str, scope: anyio.CancelScope) -> None:
        with scope:
            await anyio.sleep(waits.SLOW_START)
            if self._core.now.waiting:
                self._transcript.show_only(notices.notice(agent_trouble.starting(agent)))

    async def run(self, link: Link) -> ev.Event:
        """Give the process the session; returns the event that says how that went."""
        session_id, epoch = self._journal.info.session_id, link.epoch
        self._updates.new_process(epoch)
        try:
            await self._open(link)
        except NotLoaded as exc:
            event("session.not_loaded", session=session_id, agent=link.name, what=exc)
            self._memory.refusal = str(exc)
            self._core.spawn(self._reloads.forget, link)
            why = await _with_lines(link, f"{exc}. {notices.MEMORY_WAYS}")
            return ev.LoadRefused(epoch, exc.permanent, why)
        except Refused as exc:
            event("session.refused", session=session_id, agent=link.name, what=exc)
            return ev.LoadRefused(epoch, exc.permanent, await _with_lines(link, str(exc)))
        except RpcError as exc:
            event("session.auth_needed", session=session_id, agent=link.name)
            return ev.NeedsAuth(epoch, exc)
        except Exception as exc:
            if self._core.now.state is State.CLOSED:  # with the session the journal was closed
                what = "the session has ended"
            else:
                what = errors.internal(exc, "the session could not be opened").message
            return ev.LoadRefused(epoch, False, what)
        event("session.reopened", session=session_id, agent=link.name)
        return ev.Loaded(epoch, link.light)

    async def _open(self, link: Link) -> None:
        """Open the session, then bring its settings up to the user's.

        Ends without a step between the last setting and the return, so that none is overtaken by
        the next prompt. Raises Refused, JournalError, or RpcError of code AUTH_REQUIRED.
        """
        opening = Opening(link, self._core.workspace)
        known = self._memory.known
        self._user_settings.hush()
        result = await opening.reopen(known, self._transcript.notice)
        replayed, self._updates.just_read = self._updates.just_read, None
        late = (replayed or await self._recorded()) if opening.replays else None
        await self._rename(link)
        if link.gone:  # the next process may have the session by now
            raise Refused("the agent's process has ended", permanent=False)
        resumed = opening.taken_up and not opening.replays and known.remembered
        await self._memory.note_open(is_new=opening.is_new, resumed=resumed)
        if known.remembered and opening.taken_up:
            self._core.spawn(self._reloads.note, link)
        if late:
            self._updates.expect_late_replay(late, doubt=known.remembered)
        self._user_settings.note_result(result)
        deferred = [(asked.method, asked.params) for asked in self._to_agent.deferred]
        await self._user_settings.restore(link, deferred, result)
        if self._sleep.seconds:
            await self._sleep.look(link)
            self._sleep.send_kept(link)
        if self._to_agent.deferred:
            await self._to_agent.send_deferred(link)
        for name, before, now in self._user_settings.take_given_up():
            self._transcript.notice(notices.given_up(name, before, now))
        for update in self._user_settings.take_news():
            self._transcript.show({"update": update})
        self._transcript.flush()

    async def _recorded(self) -> LateReplay:
        late = LateReplay()
        async for page in self._journal.replay():
            for params in page:
                late.note(params)
        return late


async def _with_lines(link: Link, why: str) -> object:
    """Return why a process did not take the session, with the lines that it wrote meanwhile."""
    error = await link.with_lines(f"{NOT_READY}: {why}")
    return error if error.trouble.lines else why


class Provisional:
    """Swaps one session's provisional process for one that has loaded the model library."""

    def __init__(self, core: Core) -> None:
        """Nothing happens before `begin`."""
        self._core = core
        self._needed = anyio.Event()

    def begin(self, link: Link) -> None:
        """Plan the swap of the process that now has the session, if it is a light one."""
        if link.light:
            self._needed = anyio.Event()
            self._core.spawn(self._replace, link)
            if self._core.now.provisional and self._core.now.waiting:
                self.hasten()

    def hasten(self) -> None:
        """Swap the provisional process at once, since the model is needed."""
        self._needed.set()

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Swap the process at once: in the new state a prompt waits for the model."""
        self.hasten()

    async def _replace(self, link: Link) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._loaded, link, tasks.cancel_scope)
            await self._needed.wait()
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(waits.REQUEST):
            while link.busy and not link.gone:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_LOOK)
        if self._core.now.provisional and self._core.link is link:
            self._core.feed(ev.ReplaceProcess())

    async def _loaded(self, link: Link, scope: anyio.CancelScope) -> None:
        if parent := link.command.parent:
            await parent.settled()
        scope.cancel()
