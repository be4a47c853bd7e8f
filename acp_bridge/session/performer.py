"""Carries out what one session's machine asks for: each effect goes to the part that knows how."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

from acp_bridge.agents.link import Link
from acp_bridge.machine import effects as ef
from acp_bridge.session.deadlines import Deadlines
from acp_bridge.session.process.process_effects import ProcessEffects
from acp_bridge.session.process.sleep import Sleep
from acp_bridge.session.prompts.blocked_notice import BlockedNotice
from acp_bridge.session.prompts.hooks import SessionHooks
from acp_bridge.session.prompts.pauses import Pauses
from acp_bridge.session.prompts.prompts import Prompts
from acp_bridge.session.prompts.turn import Turn

logger = logging.getLogger(__name__)


class PerformerPort(Protocol):
    """What the performer needs of its session."""

    id: str

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a piece of work whose failure is this session's only."""

    async def finish(self) -> None:
        """Let go of the session."""


class Performer:
    """Performs effects in the order in which they come, without waiting."""

    def __init__(
        self,
        port: PerformerPort,
        processes: ProcessEffects,
        prompts: Prompts,
        turn: Turn,
        pauses: Pauses,
        hooks: SessionHooks,
        sleep: Sleep,
        deadlines: Deadlines,
        blocked: BlockedNotice,
    ) -> None:
        """Nothing is asked for yet."""
        self._port = port
        self._processes = processes
        self._prompts = prompts
        self._turn = turn
        self._pauses = pauses
        self._hooks = hooks
        self._sleep = sleep
        self._deadlines = deadlines
        self._blocked = blocked

    def perform(self, effect: ef.Effect) -> None:
        """Carry out one effect."""
        match effect:
            case ef.SendPrompt() | ef.SendCancel() | ef.SendPause() | ef.SendGo():
                self._send(effect)
            case ef.Start() | ef.Open() | ef.Kill() | ef.CloseAgent() | ef.Release():
                if isinstance(effect, ef.Start):
                    self._blocked.note_start()
                self._processes.perform(effect)
            case ef.StillWaits():
                self._pauses.give_sign()
            case ef.CloseCards():
                self._turn.close_cards()
            case ef.Closed():
                self._port.spawn(self._port.finish)
            case ef.Arm(timer, token):
                self._deadlines.arm(timer, token)
            case ef.Disarm(timer):
                self._deadlines.disarm(timer)
            case ef.Dropped(event):
                logger.debug("event.dropped session=%s what=%s", self._port.id, event)
            case (
                ef.Commit()
                | ef.AnswerPrompt()
                | ef.NoteOutcome()
                | ef.Interrupted()
                | ef.LeaveOver()
            ):
                self._record(effect)
            case _:
                self._hooks.perform(effect)

    def _send(self, effect: ef.SendPrompt | ef.SendCancel | ef.SendPause | ef.SendGo) -> None:
        """Send to the agent."""
        link = self._processes.link(effect.epoch)
        match effect:
            case ef.SendPrompt(_, key):
                self._sleep.note_turn()
                self._turn.begin(link, key)
            case ef.SendCancel(_, key):
                self._turn.cancel(link, key)
            case ef.SendPause(_, token):
                self._pauses.ask_agent(link, token)
            case ef.SendGo():
                self._pauses.tell_agent(link)
            case _:
                assert_never(effect)

    def _record(
        self, effect: ef.Commit | ef.AnswerPrompt | ef.NoteOutcome | ef.Interrupted | ef.LeaveOver
    ) -> None:
        """Write down what becomes of prompts, and answer them."""
        match effect:
            case ef.Commit(key):
                self._prompts.commit(key)
            case ef.AnswerPrompt(key, outcome):
                self._blocked.note_answer(outcome)
                self._turn.say_not_run(key, outcome)
                self._prompts.answer(key, outcome)
            case ef.NoteOutcome(key, answer):
                self._prompts.note(key, answer)
            case ef.Interrupted(key):
                self._prompts.interrupt(key)
            case ef.LeaveOver(keys):
                self._prompts.leave_over(keys)
            case _:
                assert_never(effect)

    def begin(self, link: Link) -> None:
        """Take the process in which the session was made."""
        self._processes.begin(link)
        self._sleep.begin(link)

    def hasten(self) -> None:
        """Have a process that may not get a prompt replaced now."""
        self._processes.provisional.hasten()

    def look_again(self) -> None:
        """Follow a change of the machine's state."""
        self._blocked.look_again()
        self._processes.provisional.look_again()
