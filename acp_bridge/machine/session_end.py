"""The end of a session: the client closes it, or the bridge ends.

A close cancels what is asked of the session; the end of the bridge holds what waits, and the turn
that runs is interrupted. Either way nothing new is taken, and a process that lives is ended first.
"""

from __future__ import annotations

from typing import assert_never

from acp_bridge.machine.effects import Dropped, Effect
from acp_bridge.machine.event_taker import EventTaker
from acp_bridge.machine.events import Close, Shutdown
from acp_bridge.machine.outcomes import Cancelled
from acp_bridge.machine.states import State


class SessionEnd(EventTaker):
    """Takes the word that the session ends; methods return effects."""

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
