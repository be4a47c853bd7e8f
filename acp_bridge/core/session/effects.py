"""Carries out what one session's machine asks for, each effect by the part that knows how.

It also knows the parts that follow the session's state, and which changes concern each of them.

Nothing is waited for here: work that takes time runs in a task of its own and ends in an event.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from msgspec import Struct

from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine import effects as ef
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.events import Timer
from acp_bridge.core.machine.states import Passing, Standstill, State
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.audience import Audience
from acp_bridge.core.session.core import Core, Follower, SessionState
from acp_bridge.core.session.feature import Features
from acp_bridge.core.session.from_agent import FromAgent
from acp_bridge.core.session.process.agent_processes import AgentProcesses
from acp_bridge.core.session.process.restart import Provisional, Restart
from acp_bridge.core.session.process.sleep import Sleep
from acp_bridge.core.session.process.work import Background, Work
from acp_bridge.core.session.prompts import answers
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.prompts.turn import Turn
from acp_bridge.core.session.requests.to_agent import ToAgent
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.settings import Settings

logger = logging.getLogger(__name__)


class Deadlines:
    """The timers of one session, one of each kind at most: the machine is told when one passes."""

    def __init__(self, core: Core, settings: Settings) -> None:
        """No timer runs yet; the settings say how long each one will."""
        self._core = core
        self._seconds = {
            Timer.SPARE: settings.drain_timeout / 2,
            Timer.DRAIN: settings.drain_timeout,
            Timer.KILL: settings.kill_timeout,
            Timer.RESTART: settings.restart_timeout,
            Timer.SIGN: settings.sign_interval,
        }
        self._armed: dict[Timer, anyio.CancelScope] = {}

    def arm(self, timer: Timer, token: int) -> None:
        """Start a timer, in place of one of the same kind; its `Deadline` has this token."""
        self.disarm(timer)
        scope = self._armed[timer] = anyio.CancelScope()
        self._core.spawn(self._wait, timer, token, scope)

    def disarm(self, timer: Timer) -> None:
        """Stop a timer; nothing happens if it is not armed."""
        if scope := self._armed.pop(timer, None):
            scope.cancel()

    async def _wait(self, timer: Timer, token: int, scope: anyio.CancelScope) -> None:
        with scope:
            await anyio.sleep(self._seconds[timer])
        if not scope.cancel_called:  # it may have been disarmed just as it passed
            event("deadline", session=self._core.id, what=timer.name.lower())
            self._core.feed(ev.Deadline(timer, token))


class Effects(Struct, frozen=True):
    """Passes each effect, and each change of the state, to the parts of the session concerned."""

    core: Core
    context: SessionContext
    processes: AgentProcesses
    restart: Restart
    provisional: Provisional
    sleep: Sleep
    work: Work
    background: Background
    prompts: Prompts
    turn: Turn
    pauses: Pauses
    features: Features
    deadlines: Deadlines
    from_agent: FromAgent
    to_agent: ToAgent
    audience: Audience
    #: closes the journal and lets go of the lock, once the machine has closed the session.
    finish: Callable[[], Awaitable[None]]
    #: seconds that an agent has to end by itself.
    grace: float

    def perform(self, effect: ef.Effect) -> None:
        """Carry out one effect, without waiting."""
        spawn, processes = self.core.spawn, self.processes
        match effect:
            # --- to the agent
            case ef.SendPrompt(epoch, key):
                if self.sleep.seconds:
                    self.sleep.note_turn()
                processes.link(epoch).note_prompted()
                processes.link(epoch).note_work(works=True)
                self.turn.begin(processes.link(epoch), key)
            case ef.SendCancel(epoch, key, spares):
                self.turn.cancel(processes.link(epoch), key, spares=spares)
            case ef.StopWork(epoch):
                self.turn.stop_work(processes.link(epoch), spares=effect.spares)
                self.work.stop(effect)
            case ef.SendPause(epoch, token):
                self.pauses.ask_agent(processes.link(epoch), token)
            case ef.SendGo(epoch):
                self.pauses.tell_agent(processes.link(epoch))
            # --- its processes
            case ef.Start(epoch):
                self.restart.failure_told = False
                spawn(processes.start, epoch, f"{self.core.id[:8]}#{epoch}")
            case ef.Open(epoch):
                spawn(self._open, processes.link(epoch))
            case ef.Kill(epoch):
                if link := processes.get(epoch):
                    link.doom()
                spawn(self._kill, epoch, self.work.stops_in(epoch))
            case ef.Leave(epoch):
                spawn(processes.leave, epoch)
            case ef.CloseAgent(epoch):
                spawn(processes.close, epoch, self.grace)
            case ef.Release(epoch):
                self._release(epoch)
            # --- what becomes of prompts
            case ef.Commit(key):
                self.prompts.commit(key)
            case ef.AnswerPrompt(key, outcome):
                self.restart.failure_told |= answers.says_why_not_ready(outcome)
                self.turn.say_not_run(key, outcome)
                self.turn.say_what_lacks(outcome)
                self.prompts.answer(key, outcome)
            case ef.NoteOutcome(key, answer):
                self.prompts.note(key, answer)
            case ef.EndTurn(key, answer):
                self.prompts.end_turn(key, answer)
            case ef.Interrupted(key):
                self.prompts.interrupt(key)
            case ef.LeaveOver(keys):
                self.prompts.leave_over(keys)
            case ef.CloseCards(spares):
                self.turn.close_cards(spares=spares)
            case ef.TellTaken(why):
                self.turn.say_taken(str(why))
            case ef.TellDeath(how):
                self.features.note_death(how)
                if self.context.notifier:
                    self.context.notifier.note_death(self.core)
            # --- time, and the end
            case ef.Arm(timer, token):
                self.deadlines.arm(timer, token)
            case ef.Disarm(timer):
                self.deadlines.disarm(timer)
            case ef.StillWaits():
                self.pauses.give_sign()
            case ef.Closed():
                spawn(self.finish)
            case ef.Dropped(dropped):
                logger.debug("event.dropped session=%s what=%s", self.core.id, dropped)
            case _:
                # Without hooks there are none to stop.
                if not (self.features.perform(effect) or isinstance(effect, ef.StopHooks)):
                    raise TypeError(f"no feature carries out {type(effect).__name__}")

    def concerned(self, before: SessionState, after: SessionState) -> list[Follower]:
        """Return the followers that a change of the state concerns, in the order of telling."""
        was, now, context = before.turns, after.turns, self.context
        on_its_way = now.permits.requests in (Passing.WAITS, Passing.SETTINGS)
        who: list[Follower] = []
        moved = now.state is not was.state or now.running != was.running
        if now.blocked and not self.restart.failure_told:
            who.append(self.restart.say_not_ready)
        if moved and (self.restart.starting or now.state is State.STARTING):
            who.append(partial(self.restart.follow_start, context.settings.agent_name))
        if now.waiting and not was.waiting:
            who.append(self.processes.note_prompt)
        if now.provisional and now.waiting:
            who.append(self.provisional.follow)
        if (link := self.processes.get(now.epoch)) and link.works is not _works(after):
            who.append(self._note_work)
        if now.standstill is not self.pauses.told:
            who.append(self.pauses.follow)
        who += self.features.followers(before, after)
        if moved:
            who.append(self.work.follow)
        stops = now.state is State.KILLING and was.state is not State.WORKING
        if self.prompts.waits_for_work and not (now.works or stops):
            who.append(self.prompts.end_waits_for_work)
        if now.permits is not was.permits:
            who.append(self.from_agent.follow)
        if self.to_agent.deferred and not on_its_way:
            who.append(self.to_agent.follow)
        if self.sleep.seconds:
            who.append(self.sleep.follow)
        who.append(self.audience.follow)
        if note_work := context.note_work:
            who.append(lambda before, after: note_work())
        if context.notifier:
            who.append(self._notify)
        return who

    def _note_work(self, before: SessionState, after: SessionState) -> None:
        """Tell the other sessions of the process that this one works, or is at rest."""
        if link := self.processes.get(after.turns.epoch):
            link.note_work(works=_works(after))

    def _notify(self, before: SessionState, after: SessionState) -> None:
        """Tell the notifier a change, and whether the bridge holds the queue, not the user."""
        held = after.turns.standstill is Standstill.HELD and self.pauses.because is not None
        if self.context.notifier:
            self.context.notifier.follow(self.core, after, held=held)

    def _release(self, epoch: int) -> None:
        """Forget a process that is dead, and end what it has left open."""
        if link := self.processes.forget(epoch):
            link.at_clients.release()
        self.turn.end_cards(epoch)
        self.background.end(epoch)

    async def _kill(self, epoch: int, at_work: bool) -> None:
        """Kill a process; `at_work`: it was told to stop what it does outside of a prompt."""
        link = self.processes.get(epoch)
        try:
            if at_work and link and not self.core.now.taken:  # that hurries
                await self.work.say_killed(link)
        finally:
            await self.processes.kill(epoch)

    async def _open(self, link: Link) -> None:
        """Give a process the session, and tell the machine how that went."""
        outcome = await self.restart.run(link)
        self.processes.note_opened(link, well=not isinstance(outcome, ev.LoadRefused))
        self.core.feed(outcome)
        if self.core.now.provisional:
            self.provisional.begin(link)


def _works(state: SessionState) -> bool:
    """Return True while the agent has a prompt of the session, or works for it without one."""
    around = state.around
    at_work = state.turns.state in (State.RUNNING, State.DRAINING, State.WORKING)
    beside = around.has_long_request or around.in_background or bool(around.background)
    return at_work or beside
