"""One session's shell: takes what the clients say, performs what the machine asks for.

Every decision about prompts is in `machine/`; the parts (`parts.py`) carry the decisions out, each
through a narrow port. An event is taken to its end before the next (`feed`), and what the agent
showed before it is on its way to the clients by then.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from acp_bridge.agents.link import Link
from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.clients.waiting_requests import WaitingRequests
from acp_bridge.hooks.found import FoundHooks
from acp_bridge.journal import SessionJournal
from acp_bridge.late_replay import LateReplay
from acp_bridge.machine import effects as ef
from acp_bridge.machine import events as ev
from acp_bridge.machine.states import Passing, Permits, Phase, Standstill, State
from acp_bridge.protocol import Json, not_feedback, own_meta
from acp_bridge.session import failures
from acp_bridge.session.opening import Workspace
from acp_bridge.session.parts import Parts
from acp_bridge.session.prompts import queue_command
from acp_bridge.session.session_context import SessionContext
from acp_bridge.session.stepping import Stepping
from acp_bridge.settings import Delivery


class Session:
    """A session of the bridge. It satisfies the ports of its parts."""

    def __init__(
        self,
        context: SessionContext,
        journal: SessionJournal,
        lease: int,
        workspace: Workspace,
        link: Link | None,
        hooks: FoundHooks | None = None,
    ) -> None:
        """`lease`: the lock's descriptor, owned from now on; `link`: the process that has the
        session open, if one has. Raises JournalError."""
        self.id, self.journal, self.workspace = journal.info.session_id, journal, workspace
        #: set when nothing of the session is left; True when `close` was called.
        self.closed, self.closing = anyio.Event(), False
        #: the prompts that wait until the agent has loaded a session that only it knew.
        self.early: WaitingRequests | None = None
        self._context, self._lease = context, lease
        parts = Parts(self, context, journal, lease, link, hooks)
        self.transcript = parts.transcript
        self.title = parts.title
        self.user_settings = parts.user_settings
        self.memory = parts.memory
        self.hooks = parts.hooks
        self.pauses = parts.pauses
        self.to_agent = parts.to_agent
        self.ask = parts.ask
        self.audience = parts.audience
        self.replay = parts.replay
        self.from_agent = parts.from_agent
        self._updates = parts.updates
        self._prompts = parts.prompts
        self._queue = parts.queue
        self._sleep = parts.sleep
        self._processes = parts.processes
        self._performer = parts.performer
        self._machine = parts.machine
        self._stepping = Stepping(self._machine, self)
        if link:
            self._performer.begin(link)

    # --- what the parts see of the machine, and of each other ----------------------------------

    @property
    def epoch(self) -> int:
        return self._machine.snapshot.epoch

    @property
    def permits(self) -> Permits:
        return self._machine.snapshot.permits

    @property
    def passing(self) -> Passing:
        return self._machine.snapshot.permits.requests

    @property
    def stopped(self) -> bool:
        return self._machine.snapshot.stopped

    @property
    def excused(self) -> bool:
        return self.to_agent.busy

    @property
    def unanswered(self) -> tuple[int, ...]:
        return self._machine.snapshot.unanswered

    @property
    def waiting(self) -> tuple[int, ...]:
        return self._machine.snapshot.waiting

    @property
    def running(self) -> int | None:
        return self._machine.snapshot.foremost

    @property
    def standstill(self) -> Standstill:
        return self._machine.snapshot.standstill

    @property
    def at_rest(self) -> bool:
        return self._machine.snapshot.at_rest

    @property
    def provisional(self) -> bool:
        return self._machine.snapshot.provisional

    @property
    def asleep(self) -> bool:
        return self._machine.snapshot.asleep

    @property
    def occupied(self) -> bool:
        return self.from_agent.unread or self.ask.open or self.journal.behind

    @property
    def blocked(self) -> bool:
        return self._machine.snapshot.blocked

    @property
    def ending(self) -> bool:
        return self._machine.snapshot.ending

    @property
    def agent_replays(self) -> bool:
        return self._context.agent_replays

    @property
    def link(self) -> Link | None:
        """The process that has the session open and takes requests, or None."""
        now = self._machine.snapshot
        return self._processes.get(now.epoch) if now.takes_requests else None

    def phase(self, epoch: int) -> Phase:
        return self._machine.snapshot.phase(epoch)

    def disturb(self) -> None:
        self._sleep.disturb()

    def on_question(self) -> None:
        self.audience.look_again()

    def welcome(self, client: Client) -> None:
        self.audience.welcome(client)
        self._context.note_work()

    def wake(self) -> None:
        """Have a process started and given the session, if there is none that may get a prompt."""
        self._performer.hasten()
        self.feed(ev.Warm())

    def take_replayed(self) -> LateReplay | None:
        return self.replay.take_replayed()

    # --- events and effects --------------------------------------------------------------------

    def feed(self, event_: ev.Event) -> None:
        self._stepping.feed(event_)

    def before_step(self) -> None:
        self.transcript.flush()

    def after_steps(self) -> None:
        self._performer.look_again()
        self.pauses.look_again()
        self.transcript.flush()
        self.from_agent.look_again()
        self.to_agent.look_again()
        self._sleep.look_again()
        self.audience.look_again()
        self._context.note_work()

    def perform(self, effect: ef.Effect) -> None:
        self._performer.perform(effect)

    def spawn(
        self, work: Callable[..., Awaitable[None]], *args: object, instead: ev.Event | None = None
    ) -> None:
        """Run work whose failure is this session's only: then the machine is told `instead`."""
        failed = partial(self.feed, instead) if instead else lambda: None
        self._context.tasks.start_soon(failures.contained, work, args, failed)

    def close(self, by: Client | None = None) -> None:
        """End the session: `closed` says when it is over. Its prompts are answered `cancelled`, and
        clients other than the one that closes it are told."""
        self.closing = True
        self.audience.end(by)
        self.ask.close()
        self.feed(ev.Close())

    async def finish(self) -> None:
        try:
            await self.hooks.end("close" if self.closing else "shutdown")
            await self._context.journal.end(self.id)
        finally:  # else it could not be opened again, and who closes it would wait for ever
            os.close(self._lease)
            self.closed.set()

    # --- prompts -------------------------------------------------------------------------------

    def on_prompt(self, request: ClientRequest, params: Json) -> None:
        """Queue a prompt in the order of reading; `params` has been checked."""
        self.transcript.wake(request.client)
        if self.early is not None:
            self.early.add(request)
            return
        words = queue_command.parse(params["prompt"])
        if words is not None and self._queue.takes(words, agent_has_one=self._updates.own_queue):
            self._queue.run(request, params, words)
            return
        params = not_feedback(params)
        asked = own_meta(params).get("delivery", self._context.settings.delivery)
        key = self._prompts.add(params, request)
        self.feed(ev.PromptReceived(key, interrupt=asked == Delivery.INTERRUPT))
        self.pauses.note_prompt(request.client, interrupts=asked == Delivery.INTERRUPT)
        if not self.closing:  # then it was refused, and lists nothing
            self.title.note_prompt(params)

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Take a client's `$/cancel_request`; False when the request is not of this session."""
        if self.early and self.early.cancel_request(client, request_id):
            return True
        key = self._prompts.key_of(client, request_id)
        if key is not None:
            self.feed(ev.CancelPrompt(key, self.audience.own(client)))
            return True
        return self.ask.cancel(client, request_id) or self.to_agent.cancel(client, request_id)

    def pass_notification(self, method: str, params: Json) -> None:
        """Send a client's notification to the agent, which is woken for it if it sleeps."""
        self._sleep.disturb()
        if self.link is None and self._sleep.keeps(method, params):
            self.wake()
        else:
            self.to_agent.pass_notification(method, params)

    # --- what is known of the session ----------------------------------------------------------

    def note_state(self, update: Json) -> Json | None:
        """Keep an update that is about the session; returns it as it is to be shown, if it is."""
        chosen = self.user_settings
        again = self._machine.snapshot.phase(self.epoch) is Phase.REPLAY and chosen.repeats(update)
        # What a process says while it is given the session is of its defaults (invariant R13).
        announced = self._machine.snapshot.state is not State.RELOADING
        chosen.note_update(update, announced=announced)
        told_later = not announced and chosen.tells_later(update)
        shown = self.title.note_update(update)
        return None if again or told_later else shown

    async def rename_at_agent(self, link: Link) -> None:
        """Note the agent's id of the session, and take over what the process said of it so far."""
        ours = self._context.identity
        await self._context.journal.note_agent(self.id, link.agent_session_id, ours)
        link.adopt(self.from_agent)

    async def touch(self) -> None:
        """Note in the listing that the session was used now. Raises JournalError."""
        await self._context.journal.touch(self.id)
