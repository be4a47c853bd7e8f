"""The end of a session: the client closes it, or the bridge ends.

A close cancels what is asked of the session; the end of the bridge holds what waits, and the turn
that runs is interrupted. Either way nothing new is taken, and a process that lives is ended first.
"""

from __future__ import annotations

from typing import assert_never

from acp_bridge.machine.effects import Dropped, Effect
from acp_bridge.machine.epochs import Epochs
from acp_bridge.machine.events import Close, Shutdown
from acp_bridge.machine.gate import Gate
from acp_bridge.machine.open_hooks import OpenHooks
from acp_bridge.machine.outcomes import Cancelled
from acp_bridge.machine.prompt_queue import PromptQueue
from acp_bridge.machine.restarts import Restarts
from acp_bridge.machine.stage import Stage
from acp_bridge.machine.states import State
from acp_bridge.machine.turn_end import TurnEnd


class SessionEnd:
    """Takes the word that the session ends; methods return effects."""

    def __init__(
        self,
        stage: Stage,
        queue: PromptQueue,
        gate: Gate,
        epochs: Epochs,
        open_hooks: OpenHooks,
        restarts: Restarts,
        turn_end: TurnEnd,
    ) -> None:
        """`stage` keeps that the session ends."""
        self._stage = stage
        self._queue = queue
        self._gate = gate
        self._epochs = epochs
        self._open_hooks = open_hooks
        self._restarts = restarts
        self._turn_end = turn_end

    def take(self, event: Close | Shutdown) -> list[Effect]:
        """Begin to end the session, or hurry, if it ends already."""
        self._stage.closing = True
        self._gate.forget()
        out = self._epochs.drop_spare()
        if self._stage.state is not State.RUNNING or isinstance(event, Shutdown):
            out += self._open_hooks.stop()
        if isinstance(event, Close):
            self._turn_end.mark_cancelled()
            out += self._queue.drop(Cancelled())
        else:
            out += self._turn_end.abandon()
        return out + self._end_process(event)

    def _end_process(self, event: Close | Shutdown) -> list[Effect]:
        restarts, dying = self._restarts, sorted(self._epochs.dying)
        match self._stage.state:
            case State.IDLE | State.RUNNING | State.DRAINING if not self._queue.running:
                return restarts.close_agent()
            case State.RUNNING:
                return self._turn_end.drain()
            case State.STARTING | State.RELOADING | State.UNAUTHENTICATED:
                return restarts.kill()
            case State.BLOCKED if dying:
                return restarts.kill(*dying)
            case State.COLD | State.BLOCKED:
                return restarts.end()
            case State.CLOSED:
                return [Dropped(event)]
            case State.IDLE | State.DRAINING | State.KILLING:
                return []  # what is on its way leads to the end
            case _:
                assert_never(self._stage.state)
