"""The agent processes of one session: started, given the session, killed.

At most one of them has the session open; the machine says when (HAZARDS P12). An epoch is known
here from its start until it is released.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge import errors
from acp_bridge import signals as sig
from acp_bridge.agents.link import Link
from acp_bridge.agents.process import StartFailed
from acp_bridge.log import event
from acp_bridge.replays import LateReplay
from acp_bridge.session.errands import for_agent
from acp_bridge.session.opening import AuthNeeded, Refused, Reopening
from acp_bridge.wire.jsonrpc import Err, Ok, RpcError

if TYPE_CHECKING:
    from acp_bridge.session.session import Session

Json = dict[str, Any]


@dataclass(slots=True)
class _Member:
    link: Link
    starting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    started: anyio.Event = field(default_factory=anyio.Event)


class Crew:
    """A session's processes, by epoch. Each piece of work here ends in an event."""

    def __init__(self, session: Session, lease: int, link: Link | None) -> None:
        """`link`: the process of epoch 1, if there is one that has the session open."""
        self._session = session
        self._lease = lease
        self._members: dict[int, _Member] = {}
        if link:
            self._add(link, 1).started.set()

    def link(self, epoch: int) -> Link:
        """The process of an epoch."""
        return self._members[epoch].link

    def get(self, epoch: int) -> Link | None:
        """The process of an epoch, if it is there still."""
        member = self._members.get(epoch)
        return member.link if member else None

    def forget(self, epoch: int) -> Link | None:
        """The tree is dead, or given up."""
        member = self._members.pop(epoch, None)
        return member.link if member else None

    def _add(self, link: Link, epoch: int) -> _Member:
        link.epoch = epoch
        member = self._members[epoch] = _Member(link)
        return member

    async def start(self, epoch: int) -> None:
        """Up to `initialize`; the process that waits in the lobby is taken if there is one."""
        host = self._session.host
        if waiting := host.lobby.take_ready():
            self._add(waiting, epoch).started.set()
            waiting.hold_lock(self._lease)
            waiting.adopt(self._session.intake)
            self._session.feed(sig.Started(epoch))
            return
        link = Link(host.command, self._session.intake, f"{self._session.id[:8]}#{epoch}")
        member = self._add(link, epoch)
        outcome: sig.Event | None = None
        try:
            with member.starting:
                try:
                    await link.start(host.tasks, lock_fd=self._lease)
                    outcome = sig.Started(epoch)
                except StartFailed as exc:
                    outcome = sig.StartFailed(epoch, exc.permanent, str(exc))
                except RpcError as exc:
                    outcome = sig.StartFailed(epoch, False, exc.message)
                except Exception as exc:
                    errors.internal(exc, "an agent could not be started")
                    outcome = sig.StartFailed(epoch, False, "the system refused")
        finally:
            member.started.set()
        if outcome:
            self._session.feed(outcome)

    async def open(self, epoch: int) -> None:
        """Give the process the session, then the user's settings."""
        session = self._session
        link = self.link(epoch)
        session.intake.expect_replay()
        agent_id = session.journal.info.agent_session_id
        found = session.id == agent_id  # at the agent, which has turns of its own
        opening = Reopening(
            link,
            session.setup,
            agent_id,
            session.journal.turns_finished() + found,
            session.host.credentials,
            session.outlet.notice,
        )
        try:
            result = await opening.run()
            if opening.replays:
                said = await LateReplay.of(session.journal.replay())
                session.updates.expect_late_replay(said)
            await self._settle(link, result)
        except AuthNeeded as exc:
            event("session.auth_needed", session=session.id, agent=link.name)
            session.feed(sig.NeedsAuth(epoch, exc.error))
        except Refused as exc:
            event("session.refused", session=session.id, agent=link.name, what=exc)
            session.feed(sig.LoadRefused(epoch, exc.permanent, str(exc)))
        except RpcError as exc:
            session.feed(sig.LoadRefused(epoch, False, exc.message))
        except Exception as exc:
            what = errors.internal(exc, "the session could not be opened")
            session.feed(sig.LoadRefused(epoch, False, what.message))
        else:
            event("session.reopened", session=session.id, agent=link.name)
            session.feed(sig.Loaded(epoch))

    async def _settle(self, link: Link, result: Json) -> None:
        """Note the agent's id of the session; bring its settings up to the user's (R9).

        Ends without a step between the last setting and the return, so none is overtaken by the
        next prompt.
        """
        session, choices = self._session, self._session.choices
        if link.agent_session_id != session.journal.info.agent_session_id:
            await session.host.journal.touch(session.id, agent_session_id=link.agent_session_id)
        link.adopt(session.intake)
        known = choices.shown
        choices.note_result(session.updates.settings(result))
        await choices.restore(link, [(c.method, c.params) for c in session.errands.waiting])
        while session.errands.waiting:
            call = session.errands.waiting.pop(0)
            try:
                params = for_agent(link, call.params)
                answer: Ok | Err = Ok(await link.ask_for(call, call.method, params))
            except RpcError as exc:
                answer = Err(exc)
            session.errands.answer(call, answer)
        for update in choices.news(known):
            session.outlet.show({"update": update})
        session.outlet.flush()

    async def kill(self, epoch: int) -> None:
        """Kill the tree; without an event if it is not dead after a bound."""
        if member := self._members.get(epoch):
            member.starting.cancel()
            await member.started.wait()
            if not await member.link.kill():
                return
        self._session.feed(sig.TreeDead(epoch))

    async def close(self, epoch: int) -> None:
        """Let the agent close the session and end, bounded; then kill what is left."""
        link, grace = self.link(epoch), self._session.host.settings.close_grace
        with anyio.move_on_after(grace):
            if link.can("sessionCapabilities", "close"):
                try:
                    await link.ask("session/close", {"sessionId": link.agent_session_id})
                except RpcError as exc:
                    event("agent.close_refused", session=self._session.id, what=exc.message)
            await link.close(grace)
        await self.kill(epoch)

    async def end(self) -> None:
        """Nothing of any process is left when this returns."""
        for member in list(self._members.values()):
            member.starting.cancel()
            await member.started.wait()
            await member.link.kill()
