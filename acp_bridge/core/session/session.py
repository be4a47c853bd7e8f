"""One session: its parts, put together, and what clients and the bridge ask of it.

Every decision about prompts is in `machine/`. The parts carry the decisions out; each has the core,
where it reads the session's state, and the neighbours that it needs, by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio

from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.clients.rights import Right
from acp_bridge.core.clients.waiting_requests import WaitingRequests
from acp_bridge.core.journal import JournalError, SessionJournal, SessionTaken, told
from acp_bridge.core.journal.turns import ASKING
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.effects import Cancelled, Failed, Failure
from acp_bridge.core.machine.events import Moment
from acp_bridge.core.machine.states import Snapshot, Standstill
from acp_bridge.core.protocol import (
    SESSION_CANCEL,
    STEERING,
    Json,
    not_feedback,
    own_meta,
    prompt_key,
    queue_words,
    without_key,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.audience import Audience
from acp_bridge.core.session.clients.permissions import Permissions
from acp_bridge.core.session.clients.questions import Questions
from acp_bridge.core.session.clients.replay import Replay
from acp_bridge.core.session.clients.to_client import ToClient
from acp_bridge.core.session.core import Around, Core, new_machine
from acp_bridge.core.session.effects import Deadlines, Effects
from acp_bridge.core.session.feature import Features, Found
from acp_bridge.core.session.from_agent import FromAgent
from acp_bridge.core.session.kept_params import KeptParams
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.session.process.agent_processes import AgentProcesses, ReadyProcesses
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.session.process.restart import Provisional, Restart
from acp_bridge.core.session.process.sleep import Sleep
from acp_bridge.core.session.process.work import Background, Work
from acp_bridge.core.session.prompts import queue_command
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.prompts.queue_command import QueueCommand
from acp_bridge.core.session.prompts.receipts import Receipts
from acp_bridge.core.session.prompts.turn import Turn
from acp_bridge.core.session.recovery import Recovery
from acp_bridge.core.session.requests.to_agent import ToAgent
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.session.transcript.subagents import Subagents
from acp_bridge.core.session.transcript.transcript_out import CARDS, TranscriptOut
from acp_bridge.core.settings import Delivery
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.asking import Asking
from acp_bridge.core.updates.children import Children
from acp_bridge.core.updates.updates import Updates


class Session:
    """One session: makes its parts, and takes what clients and the bridge ask of it."""

    def __init__(
        self,
        context: SessionContext,
        pool: ReadyProcesses,
        journal: SessionJournal,
        lease: int,
        workspace: Workspace,
        link: Link | None,
        found: Sequence[Found] = (),
    ) -> None:
        """`lease`: the lock's descriptor, owned from now on; `link`: the process that has the
        session open, if one has; `found`: what features were found for it. Raises JournalError."""
        self.id, self.journal = journal.info.session_id, journal
        #: the prompts that wait until the agent has loaded a session that only it knew.
        self.early: WaitingRequests | None = None
        self._context, self._lease, self._keeps_prompts = context, lease, False
        settings = context.settings
        moments = frozenset[Moment]().union(*(each.moments for each in found))
        moments |= {Moment.DEATH} if context.notifier else set()
        machine = new_machine(settings, moments, link, steers=context.steers)
        self.kept_params = kept = KeptParams(journal, context.kept_params)
        self.core = core = Core(self.id, kept.added(workspace), machine, context.tasks)
        self.feed, self.spawn = core.feed, core.spawn

        # What the clients are shown, and what is kept.
        words = queue_command.offered(context.capabilities)
        known = set(journal.used_ids()), queue_command.command(words), journal.get(CARDS)
        asking = Asking(journal.get(ASKING))
        self.updates = updates = Updates(*known, Children(journal.get), asking)
        self.transcript = shown = TranscriptOut(
            self.id, journal, updates, core.spawn, settings.client_limit // 32
        )
        self.listing, self.remembered = context.journal, context.remembered
        #: the session is listed: the journal has taken a prompt.
        self._listed = journal.info.prompted
        self.user_settings = chosen = UserSettings(journal)
        self.memory = memory = Memory(journal)
        self.prompts = prompts = Prompts(journal, shown, core, self._touch)
        _follow(journal, core, shown)
        self.recovery = Recovery(journal, prompts, updates)
        self.deadline = context.command.deadline
        self.pauses = pauses = Pauses(core, shown, context.capabilities)
        self._processes = processes = AgentProcesses(
            context, pool, lease, core, lambda: journal.info.agent_session_id
        )
        provisional = Provisional(core)
        self._provisional, patience = provisional, settings.request_timeout
        self.to_agent = to_agent = ToAgent(core, shown, chosen, updates, self.wake, patience)
        self.link_of = processes.link
        makes = [*(each.make for each in found), *(each.make for each in context.plugins)]
        self.features = features = Features([one for make in makes for one in make(self, settings)])

        # What clients ask.
        words = (*words, *features.words)
        updates.command.offer(queue_command.command(words))
        self.background = background = Background(core, updates, shown, patience)
        self._queue = QueueCommand(core, prompts, shown, memory, pauses, features, words)
        self._receipts = Receipts(core, journal, shown, prompts, pauses)
        self._turn = turn = Turn(
            core, journal, shown, updates, prompts, memory, features, background
        )

        # The clients that have the session.
        permissions = Permissions(features.decider, updates, shown.show)
        self._questions = people = Questions(
            core, shown, prompts, updates.children, permissions.note, kept=settings.keep > 0
        )
        self.audience = Audience(
            core, settings, shown, prompts, people, features, background, self.close
        )
        self.replay = Replay(
            core,
            journal,
            shown,
            prompts,
            chosen,
            pauses,
            self.audience,
            self.recovery,
            updates,
            agent_replays=context.agent_replays,
        )

        # What the agent says.
        to_client = ToClient(
            self.id, shown.asked, updates, shown.record_at_once, permissions, people
        )
        work = Work(core, updates, shown, background, settings)
        pacing = self.audience.pacing
        self._sleep = sleep = Sleep(
            core,
            settings.sleep_after,
            context.reloads,
            updates,
            memory,
            self.unread,
            features.keep_awake,
            to_agent.notify,
        )
        self.from_agent = from_agent = FromAgent(
            core,
            journal,
            updates,
            shown,
            to_client,
            pacing,
            chosen,
            to_agent,
            Subagents(updates, shown),
            work,
            features,
            sleep.disturb if sleep.seconds else None,
        )
        processes.owner = from_agent

        # What the machine asks for, and who follows where it stands.
        restart = Restart(
            core,
            journal,
            shown,
            updates,
            chosen,
            to_agent,
            memory,
            sleep,
            self._rename_at_agent,
            context.reloads,
        )
        effects = Effects(
            core=core,
            context=context,
            processes=processes,
            restart=restart,
            provisional=provisional,
            sleep=sleep,
            work=work,
            background=background,
            prompts=prompts,
            turn=turn,
            pauses=pauses,
            features=features,
            deadlines=Deadlines(core, settings),
            from_agent=from_agent,
            to_agent=to_agent,
            audience=self.audience,
            finish=self._finish,
            grace=settings.close_grace,
        )
        core.begin(
            processes.get,
            self._look_around,
            effects.perform,
            shown.end_read,
            effects.concerned,
        )
        if link:
            processes.add(link, 1)
            provisional.begin(link)
            sleep.begin(link)
        _look(journal)

    def offer(self, link: Link) -> None:
        """Let the first start take this process, in which the agent has the session open."""
        self._processes.offer(link)

    # --- where it stands -----------------------------------------------------------------------

    @property
    def now(self) -> Snapshot:
        """The state of the session's machine."""
        return self.core.now

    @property
    def attended(self) -> bool:
        """True while a client has the session."""
        return bool(self.transcript.views)

    @property
    def busy(self) -> bool:
        """True while a prompt has no answer, or the agent works without one."""
        return self.core.state.busy

    @property
    def link(self) -> Link | None:
        """The process that has the session open and takes requests, or None."""
        return self.core.link

    @property
    def workspace(self) -> Workspace:
        """The folders and MCP servers that the session has now."""
        return self.core.workspace

    @property
    def closing(self) -> bool:
        """True once somebody has closed the session: it ends for all."""
        return self.core.closing

    @property
    def closed(self) -> anyio.Event:
        """Set when nothing of the session is left."""
        return self.core.closed

    @property
    def capabilities(self) -> object:
        """What the agent said in `initialize` that it can do."""
        return self._context.capabilities

    @property
    def agent_name(self) -> str:
        """The name under which the agent's sessions are kept."""
        return self._context.identity.name

    @property
    def steers(self) -> bool:
        """True if the agent takes words into a turn that runs."""
        return self._context.steers

    def unread(self) -> bool:
        """Return True while the process is not read, because a client doesn't read."""
        return self.audience.pacing.waits

    def join_turn(self, key: int) -> list[Json]:
        """Show the words of a prompt in the turn that runs. Return the blocks to send."""
        return self._turn.join(key)

    def when_shown(self, act: Callable[[int], None]) -> None:
        """Call `act` once, with the process's epoch, when the agent shows more of its turn."""
        self.from_agent.when_shown.append(act)

    def tell_queue(self) -> None:
        """Tell the clients what waits, if that has changed."""
        self.audience.standing.follow_queue()

    def _look_around(self) -> Around:
        rests = self.core.now.running is None
        return Around(
            asked=self._questions.asked,
            clients=len(self.transcript.views),
            has_long_request=self.to_agent.has_long_request,
            journal_behind=self.journal.behind,
            background=self.background.listed,
            in_background=bool(self.background.titles) or (rests and self.updates.works_on_a_call),
        )

    # --- its end -------------------------------------------------------------------------------

    def close(
        self,
        by: Client | None = None,
        *,
        keeps_prompts: bool = False,
        said: str = notices.CLOSED_BY_OTHER,
    ) -> None:
        """Begin to end the session for all; `closed` is set at its end.

        Its prompts are answered `cancelled`. With `keeps_prompts` those that wait are left over,
        and answered with an error that says so. `said` is shown to every client but `by`; if that
        is None, to nobody.
        """
        self.core.closing = True
        self._keeps_prompts |= keeps_prompts
        self.audience.end(by, said)
        self.features.begin_close()
        self.feed(ev.Close(keeps_prompts))

    async def _finish(self) -> None:
        try:
            if self.closing:
                self.prompts.end_left_over(
                    Failed(Failure.KEPT) if self._keeps_prompts else Cancelled()
                )
            await self.features.close("close" if self.closing else "shutdown")
            await self._processes.end_offered()
            self.transcript.end()
            await self._context.journal.end(self.id)
        finally:  # else it could not be opened again, and who closes it would wait for ever
            os.close(self._lease)
            self.closed.set()

    def wake(self) -> None:
        """Start a process for the session if none runs, and swap a provisional one at once."""
        if self.now.provisional:
            self._provisional.hasten()
        if not self.now.takes_requests:
            self.feed(ev.Warm())

    # --- what clients ask ----------------------------------------------------------------------

    def on_prompt(self, request: ClientRequest, params: Json) -> None:
        """Queue a prompt, or answer a `/queue` command or a prompt that was sent before.

        `params` has been checked. Raises RpcError.
        """
        self.transcript.end_quiet(request.client)
        self.audience.take_back_stop(request.client)
        if self.early is not None:
            self.early.add(request)
            return
        self.features.take_words()
        words = queue_words(prompt := params["prompt"])
        of_agent = words is not None and self.updates.command.is_agents(prompt)
        if words is not None and self._queue.takes(words, agent_has_one=of_agent):
            self._queue.run(request, without_key(params), words)
            return
        params = not_feedback(params)
        name = prompt_key(params)
        if name is not None and self._receipts.take(request, params, name):
            return
        asked = own_meta(params).get("delivery", self._context.settings.delivery)
        key = self.prompts.add(params, request)
        interrupts, steers = asked == Delivery.INTERRUPT, asked == Delivery.STEER
        steers &= STEERING in self.features.takes
        if steers:
            self.prompts.get(key).delivery = "queued"  # until it has joined a turn
        self.feed(ev.PromptReceived(key, interrupts, steers))
        if self.now.standstill is not Standstill.OPEN:
            self.pauses.note_prompt(request.client, interrupts=interrupts)
        if not (self.features.note_prompt(params) or self._listed or self.closing):
            self.spawn(self._list)
        self._listed = self.journal.info.prompted

    def on_steering(self, request: ClientRequest, params: Json) -> None:
        """Take a `_session/steering`, words for the running turn; `params` has been checked.

        Raises RpcError.
        """
        self.transcript.end_quiet(request.client)
        if self.early is not None:
            self.early.add(request)
        else:
            self.features.take_words()
            self.features.take(request, params)

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Cancel the prompt, `/queue wait` or other request of a client that has this id.

        False if there is none.
        """
        if self.early and self.early.cancel_request(client, request_id):
            return True
        key = self.prompts.key_of(client, request_id)
        if key is not None:
            if self.prompts.withdraw(key, client, request_id):
                return True
            own = self.audience.own(client) | {key}
            self.feed(ev.CancelPrompt(key, own, spares=client.abilities.shows_said))
            return True
        if any(each.is_of(client, request_id) for each in self.prompts.waits_for_work):
            self.feed(ev.Cancel(frozenset(), spares=client.abilities.shows_said))
            return True
        cancel = self.features.cancel_request
        return cancel(client, request_id) or self.to_agent.cancel(client, request_id)

    def has_child(self, key: str) -> bool:
        """Return True if the session has, or had, the subagent of this key."""
        return self.updates.children.get(key) is not None

    def cancel_child(self, client: Client, child_id: str) -> None:
        """Cancel a subagent's work for a client, if its agent lets it be cancelled."""
        child, link = self.updates.children.get(child_id.removeprefix(self.id)), self.link
        has = self.transcript.view_of(client) is not None and client.may(Right.STOP)
        if child and child.can_cancel and has and link and child.agent_id in link.children:
            link.peer.notify(SESSION_CANCEL, {"sessionId": child.agent_id})

    def pass_notification(self, method: str, params: Json) -> None:
        """Send a client's notification to the agent; a sleeping agent is woken for it."""
        self._sleep.disturb()
        if self.link is None and self._sleep.keeps(method, params):
            self.wake()
        else:
            self.to_agent.pass_notification(method, params)

    def move(self, workspace: Workspace) -> None:
        """Set other roots, MCP servers and kept parameters; the next process gets them.

        Raises JournalError.
        """
        self.core.workspace = self.kept_params.added(workspace)

    # --- the journal ---------------------------------------------------------------------------

    async def _rename_at_agent(self, link: Link) -> None:
        """Note the agent's id of the session, and begin to receive the process's messages."""
        ours = self._context.identity
        await self._context.journal.note_agent(self.id, link.agent_session_id, ours)
        link.adopt(self.from_agent)

    async def _list(self) -> None:
        """List the session, which has its first prompt."""
        try:
            await self._context.journal.touch(self.id)
        except JournalError as exc:
            event("journal.failed", session=self.id, what=exc)

    async def _touch(self) -> None:
        """Note in the listing that the session was used now, and tell the features.

        Raises JournalError.
        """
        await self._context.journal.touch(self.id)
        await self.features.note_use()


def _follow(journal: SessionJournal, core: Core, transcript: TranscriptOut) -> None:
    """Have the journal tell machine and clients when its database is away, is back or is lost."""

    def away(seconds: float) -> None:
        transcript.say_away(seconds)
        core.feed(ev.JournalAway())

    def back(lost: JournalError | None) -> None:
        if isinstance(lost, SessionTaken):
            core.feed(ev.Taken(told(lost)))  # clients are told when nothing of it lives here
            return
        if lost:
            transcript.say_lost(str(lost))
        core.feed(ev.JournalLost(told(lost)) if lost else ev.JournalBack())

    journal.on_away, journal.on_back = away, back


def _look(journal: SessionJournal) -> None:
    """Tell the session if another bridge took it before anybody followed the journal."""
    with suppress(JournalError):
        try:
            journal.look()
        except SessionTaken as lost:
            journal.on_back(lost)
